# SPDX-License-Identifier: Apache-2.0
"""How long a step may wait for its calls without holding up its query.

```text
  batch N      |-- work --|-- waits --|                 |-- N + 1
               ^ trigger              |<--- idle ------>|
```

Between two micro-batches a query is idle until its trigger comes. A step may wait for half of what
the last step waited and was idle for together, less what Spark needs. A query that is never idle
waits no longer than it has to. To be used from any thread of a worker.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

LEAST = 0.05
"""Seconds that a step waits in any case: quick calls need not be carried over."""
_MOST = 30.0
"""Workers that are idle for a minute are ended, and tasks are killed that do not seem to go on."""
_SPARKS = 1.0
"""Seconds that Spark may take between two steps of a query that is not idle."""
_MOST_RUNS = 64


@dataclass
class _Run:
    """The last step of a run of a query in this process.

    Attributes:
        batch: The number of its micro-batch.
        begun: When it began, in seconds.
        ended: When it ended.
        allowed: For how long it might wait.
    """

    batch: int
    begun: float
    ended: float
    allowed: float


class Pace:
    """When steps of this process began and ended, by the runs of queries that they are of."""

    def __init__(self) -> None:
        """Knows of none yet."""
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def begin(self, run: str, batch: int, now: float) -> float:
        """Notes that a step begins; returns for how many seconds it may wait for its calls.

        Args:
            run: The run of the query.
            batch: The number of its micro-batch.
            now: The time in seconds.
        """
        with self._lock:
            last = self._runs.get(run)
            if last is not None and batch <= last.batch:
                # Another shard of the micro-batch, or a step that is carried out again.
                return last.allowed
            allowed = LEAST if last is None else _allowed(last, batch, now)
            self._runs[run] = _Run(batch, now, now, allowed)
            self._runs.move_to_end(run)
            while len(self._runs) > _MOST_RUNS:
                self._runs.popitem(last=False)
            return allowed

    def end(self, run: str, batch: int, now: float) -> None:
        """Notes that a step has ended."""
        with self._lock:
            last = self._runs.get(run)
            if last is not None and last.batch == batch:
                last.ended = now


def _allowed(last: _Run, batch: int, now: float) -> float:
    waited = min(last.ended - last.begun, last.allowed)
    # Micro-batches in between had no rows here.
    spare = (now - last.ended + waited) / (batch - last.batch)
    return min(max((spare - _SPARKS) / 2, LEAST), _MOST)


PACE = Pace()
"""That of this process."""
