# SPDX-License-Identifier: Apache-2.0
"""Python's garbage collector, made to run less often while calls are in flight.

Each call in flight holds about ten objects that the collector traverses. With its default threshold
it runs after every 700 of them; with 10,000 calls in flight it then takes 40 % of the time and
finds nothing, since finished calls are freed by their reference counts. Any thread may use it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

THRESHOLD = 10_000
"""New objects that make the collector run, at least. Fewer shows at 1,000 calls."""
OBJECTS_PER_CALL = 20
"""The same for each call that may be in flight: twice what one holds, so that calls which end and
start together do not make it run. Garbage then takes about twice the space of the calls. At 10,000
calls a quarter of it makes the collector take 0.6 to 2.3 us a row; half of it is enough there."""
MOST = 1_000_000
"""The most that the threshold is raised to, in objects: some 100 MB of garbage."""


class _Threshold:
    """The threshold of the youngest generation, shared by all tasks of the process.

    A collector that is switched off, or runs less often already, is left as it is; so is one that
    somebody else has set meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._calls = 0
        """Of all users together."""
        self._before = 0
        """What it was before the first user."""
        self._own = 0
        """What it was set to last."""

    def enter(self, calls: int) -> None:
        with self._lock:
            if self._users == 0:
                self._before = self._own = gc.get_threshold()[0]
            self._users += 1
            self._calls += calls
            self._set(max(self._before, min(MOST, max(THRESHOLD, OBJECTS_PER_CALL * self._calls))))

    def leave(self, calls: int) -> None:
        with self._lock:
            self._users -= 1
            self._calls -= calls
            if self._users == 0:
                self._set(self._before)

    def _set(self, wanted: int) -> None:
        youngest, *older = gc.get_threshold()
        if self._before > 0 and youngest == self._own:
            gc.set_threshold(wanted, *older)
            self._own = wanted


_threshold = _Threshold()
"""One per process, as the collector is."""


@contextmanager
def collecting_less_often(calls: int) -> Generator[None, None, None]:
    """Raises the threshold of the youngest generation while at least one user is inside.

    Args:
        calls: How many calls of Python functions the user may have in flight.
    """
    _threshold.enter(calls)
    try:
        yield
    finally:
        _threshold.leave(calls)
