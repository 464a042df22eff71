# SPDX-License-Identifier: Apache-2.0
"""A service that counts in windows of time, and says in its headers what is left."""

from __future__ import annotations

import threading
import time

from tests.support.scripted_server import Answer

__all__ = ["MOST", "Windows"]

MOST = 6
WINDOW = 1.0


class Windows:
    """A service that takes a rest after so many requests, or tokens, and says so."""

    def __init__(self, counted: str, cost: int) -> None:
        self._suffix = counted
        self._cost = cost
        self._left = MOST * cost
        self._ends = float("inf")
        self._lock = threading.Lock()

    def answer(self, _: str, __: int) -> Answer:
        with self._lock:
            now = time.monotonic()
            if now >= self._ends:
                self._left, self._ends = MOST * self._cost, float("inf")
            is_refused = self._left < self._cost
            self._left -= 0 if is_refused else self._cost
            if self._left < self._cost:
                self._ends = min(self._ends, now + WINDOW)
            headers = {
                f"x-ratelimit-remaining{self._suffix}": str(self._left),
                f"x-ratelimit-reset{self._suffix}": f"{min(self._ends - now, WINDOW):.6f}",
            }
        return (429, headers, b"{}") if is_refused else (200, headers, b'{"seen": 1}')
