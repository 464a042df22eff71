# SPDX-License-Identifier: Apache-2.0
"""One call in a hundred takes a second: what do second calls make of the slowest rows?

A Python function that sleeps for 20 ms, or for a second. No Spark; 100 calls at a time, and input
that never pauses. Measured is the time of a row from the start of its first call to its answer.
Goals: the p99.9 with ``hedge=`` at most a fifth of that without, for at most 5 % more calls.
"""

from __future__ import annotations

import asyncio
import random
from time import perf_counter

import pyarrow as pa
from figures import Figure, Settings, alternate

import sparkawait as sa
import sparkawait.arrow

CALLS = 100
FAST, SLOW = 0.02, 1.0
SLOW_SHARE = 0.01
HEDGE = sa.Hedge(after="p95", max_extra=0.05)


class Service:
    """Counts calls, and how long each row waited."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calls = 0
        self.began: dict[int, float] = {}
        self.waited: list[float] = []

    async def call(self, row: sa.typing.Row) -> dict[str, int]:
        """Takes its time, which no two calls of a row share."""
        self.calls += 1
        began = self.began.setdefault(row.x, perf_counter())
        await asyncio.sleep(SLOW if self.random.random() < SLOW_SHARE else FAST)
        self.waited.append(perf_counter() - began)
        return {"v": row.x}


def figures(settings: Settings) -> list[Figure]:
    """Measures the p99.9, and calls for each row."""
    rows = settings.rows(50_000)
    extra: list[float] = []

    def tail(hedge: sa.Hedge | None) -> float:
        service = Service(len(extra))
        function = sa.async_function("v bigint", idempotent=True)(service.call)
        batch = pa.record_batch({"x": pa.array(range(rows))})
        out = sa.arrow.unordered_wait([batch], function, hedge=hedge, max_concurrency=CALLS)
        found = sum(one.num_rows for one in out)
        if found != rows:
            msg = f"{rows} rows came in and {found} out"
            raise RuntimeError(msg)
        if hedge is not None:
            extra.append(service.calls / rows)
        return sorted(service.waited)[int(len(service.waited) * 0.999)]

    hedged, plain = alternate(settings.rounds, lambda: tail(HEDGE), lambda: tail(None))
    name = f"Python function, 1 % of the calls 1 s, others 20 ms, {CALLS} at a time"
    return [
        Figure(f"{name}: p99.9", "s", hedged, "without hedge", plain, goal=0.2, at_most=True),
        Figure(f"{name}: calls a row", "", extra, "", [], goal=1.05, of_ratio=False, at_most=True),
    ]
