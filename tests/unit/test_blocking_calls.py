# SPDX-License-Identifier: Apache-2.0
"""Clients that block, called in threads."""

import asyncio
import threading

import pyarrow as pa

import sparkawait as sa

CALLS = 97


def test_as_many_blocking_calls_run_at_a_time_as_are_asked_for():
    together = threading.Barrier(CALLS)

    @sa.async_function("doubled long")
    async def double(row):
        await asyncio.to_thread(together.wait)  # passes once all of them are there
        return {"doubled": 2 * row["id"]}

    rows = pa.table({"id": list(range(2 * CALLS))})
    out = sa.arrow.unordered_wait(rows, double, max_concurrency=CALLS, warm_up=False)
    found = out.to_table().to_pylist()

    assert sorted((row["id"], row["doubled"]) for row in found) == [
        (i, 2 * i) for i in range(2 * CALLS)
    ]
