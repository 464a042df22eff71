# SPDX-License-Identifier: Apache-2.0
"""Where the lines of the logger ``sparkawait`` go, and how those of Rust come to it.

```text
  threads of Rust --> queue, 256 lines --> event loop thread --> logger --> its handlers,
                      never waits, counts what is lost            else standard error of a worker
```

Any thread may log; a Python worker's standard error ends in the executor's log.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkawait._core import Log


LEVEL_VARIABLE = "SPARKAWAIT_LOG"
"""Names the least level of a worker's lines; ``WARNING`` without it."""

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_DATE_FORMAT = "%y/%m/%d %H:%M:%S"  # Spark's own
_logger = logging.getLogger("sparkawait")


class RustLines:
    """Has the lines of Rust logged by the thread of a loop. One per process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits for lines; to be called before `loop` runs, or on its thread."""
        from sparkawait._core import Log

        self._log: Log = Log(_logger.getEffectiveLevel())
        loop.add_reader(self._log.fileno(), self.deliver)

    def deliver(self) -> None:
        """Logs what waits."""
        lines, lost = self._log.take()
        for level, text in lines:
            _logger.log(level, "%s", text)
        if lost:
            _logger.warning("%d more lines were lost, because they came too fast", lost)


@functools.cache
def write_to_standard_error() -> None:
    """Has the lines of a Spark worker written, unless its logging is set up by somebody else."""
    level = os.environ.get(LEVEL_VARIABLE, "").upper()
    if level in _LEVELS:
        _logger.setLevel(level)
    if not _logger.hasHandlers():
        handler = _StandardError()
        handler.setFormatter(logging.Formatter(_FORMAT, _DATE_FORMAT))
        _logger.addHandler(handler)
    if level and level not in _LEVELS:
        _logger.warning("%s must be one of %s", LEVEL_VARIABLE, ", ".join(_LEVELS))


class _StandardError(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Steps back when somebody sets up logging later on."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)
