# SPDX-License-Identifier: Apache-2.0
"""The thread that writes what a task has completed into its journal.

```text
  task (Rust) --entries--> JournalPort --> this thread --> a file
       ^-------- the number of the commit that is done <-----+
```
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from sparkawait._core import JournalPort
from sparkawait._worker import address_space

if TYPE_CHECKING:
    from sparkawait._worker.journal import TaskJournal

_logger = logging.getLogger("sparkawait")


class Commits:
    """Writes the commits of one task.

    Args:
        journal: Where to.
    """

    def __init__(self, journal: TaskJournal) -> None:
        """Starts nothing yet."""
        self._journal = journal
        self._port = JournalPort()
        self._thread: threading.Thread | None = None
        self._has_failed = False

    @property
    def arguments(self) -> dict[str, Any]:
        """What `_core.Task` is told of the journal."""
        journal = self._journal
        return {
            "port": self._port,
            "interval": journal.interval,
            "max_bytes": journal.max_bytes,
            "keeps_input": journal.keep_input,
        }

    def start(self) -> None:
        """Starts the thread."""
        thread = threading.Thread(target=self._write, name="sparkawait-journal", daemon=True)
        self._thread = address_space.start(thread)

    def finish(self) -> None:
        """Waits until all is written that the task has completed, once that was closed.

        Its files are put together then. Where that fails they stay as they are.
        """
        self._port.close()
        if self._thread is not None:
            self._thread.join()
        try:
            if not self._has_failed:
                self._journal.finish()
        except Exception as error:  # noqa: BLE001 - whatever a file system raises
            _logger.warning("the files of a journal were not put together: %s", error)

    def _write(self) -> None:
        try:
            while (taken := self._port.take()) is not None:
                number, entries = taken
                self._journal.write(entries)
                self._port.committed(number)
                self._journal.tidy()
        except BaseException as error:  # noqa: BLE001 - raised again by the task
            self._has_failed = True
            self._port.failed(error)
