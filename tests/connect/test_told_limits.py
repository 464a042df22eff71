# SPDX-License-Identifier: Apache-2.0
"""What good replies say of the limits of their service keeps calls from being refused."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.options import resolve_unpickled
from tests.support.scripted_server import Answer, ScriptedServer

MOST = 6
ROWS = MOST + 2
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


def run(windows: Windows, limit: sa.RateLimit, **options: object) -> tuple[int, int]:
    """Returns the rows that were answered, and the requests that this took."""
    with ScriptedServer(windows.answer) as server:
        plan = resolve_unpickled(
            "unordered",
            sa.http.get(f"{server.url}/{{id}}", "seen int", proxy=False),
            input_schema=None,
            rate_limit=limit,
            retry=sa.retry.fixed_delay(50, "20ms"),
            timeout="60s",
            # Replies to calls that overlap may be served in another order than they were made.
            max_concurrency=1,
            **options,
        )
        out = arrow.run(plan, iter([pa.record_batch({"id": range(ROWS)})]))
        return sum(part.num_rows for part in out), len(server.requests)


@pytest.mark.parametrize(
    ("counted", "cost", "scope", "channels"),
    [
        ("", 1, "task", {}),
        ("", 1, "host", {"channel": "id"}),
        ("", 1, "task", {"channel": "id", "channels": sa.Channels()}),
        ("-tokens", 50, "task", {"channel": "id"}),
        ("-tokens", 50, "host", {}),
    ],
)
def test_what_is_left_of_a_limit_lowers_the_one_that_stands_for_it(counted, cost, scope, channels):
    # It comes back too slowly to be counted on.
    limit = sa.RateLimit("20/s", 100_000, cost, scope, name=f"told {counted} {sorted(channels)}")
    rows, requests = run(Windows(counted, cost), limit, **channels)
    assert (rows, requests) == (ROWS, ROWS)


@pytest.mark.parametrize(
    ("counts", "counted", "cost"),
    [("other", "", 1), ("tokens", "", 1), (None, "-tokens", 1), (None, "", 50)],
)
def test_what_a_limit_does_not_stand_for_says_nothing_of_it(counts, counted, cost):
    limit = sa.RateLimit("100_000/s", burst=100_000, cost=cost, counts=counts)
    rows, requests = run(Windows(counted, cost), limit)
    assert rows == ROWS
    assert requests > ROWS
