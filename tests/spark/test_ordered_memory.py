# SPDX-License-Identifier: Apache-2.0
"""What ordered tasks hold fits into the memory that Spark leaves for Python workers by default."""

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkawait as sa

pytestmark = pytest.mark.spark

WORKERS = 4
OVERHEAD = 384 << 20
"""What an executor has beside its heap by default, at least (`spark.executor.memoryOverhead`)."""
TASKS, ROWS, SLOW, BEHIND = 2, 40_000, 25_007, 9_003


def test_four_workers_that_wait_for_a_slow_row_fit_into_the_overhead(spark: SparkSession):
    class Slow(sa.AsyncFunction):
        """Answers a row when many behind it have been called, and tells the bytes of its worker."""

        schema = "found string, bytes bigint"

        def __init__(self) -> None:
            self.behind = 0

        async def open(self, context: sa.typing.FunctionContext) -> None:
            self.enough = asyncio.Event()

        async def async_invoke(self, row: sa.typing.Row) -> dict[str, object]:
            number, held = row["id"] % ROWS, 0
            if number == SLOW:
                await self.enough.wait()
                held = bytes_of_this_worker()
            elif number > SLOW:
                self.behind += 1
                if self.behind == BEHIND:
                    self.enough.set()
            return {"found": "x" * 1_003, "bytes": held}

    def bytes_of_this_worker() -> int:
        # What it shares with the others counts in part.
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
        return next(int(it.split()[1]) for it in lines if it.startswith("Pss:")) * 1024

    rows = spark.range(TASKS * ROWS, numPartitions=TASKS)
    found = sa.ordered_wait(rows, Slow(), timeout="20s")
    counts = found.selectExpr("count(*) as rows", "max(bytes) as bytes").first()

    assert counts is not None
    assert counts["rows"] == TASKS * ROWS
    assert 0 < WORKERS * counts["bytes"] < OVERHEAD
