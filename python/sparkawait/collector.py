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

__all__ = ["THRESHOLD", "collecting_less_often"]

THRESHOLD = 10_000
"""New objects that make the collector run. More saves little; fewer shows at 10,000 calls."""

_lock = threading.Lock()
_users = 0
_before = 0


@contextmanager
def collecting_less_often() -> Generator[None, None, None]:
    """Raises the threshold of the youngest generation while at least one user is inside.

    A collector that is switched off, or runs less often already, is left as it is; so is one that
    somebody else has set meanwhile.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _users, _before  # noqa: PLW0603 - the collector is one per process
    with _lock:
        _users += 1
        youngest, *older = gc.get_threshold()
        if _users == 1:
            _before = youngest
            if 0 < youngest < THRESHOLD:
                gc.set_threshold(THRESHOLD, *older)


def _leave() -> None:
    global _users  # noqa: PLW0603 - the collector is one per process
    with _lock:
        _users -= 1
        youngest, *older = gc.get_threshold()
        if _users == 0 and youngest == THRESHOLD:
            gc.set_threshold(_before, *older)
