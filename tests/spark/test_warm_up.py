# SPDX-License-Identifier: Apache-2.0
"""The first task of a function in a worker begins with few calls."""

import asyncio

import pytest

import sparkawait as sa

pytestmark = pytest.mark.spark


class Counted(sa.AsyncFunction):
    """Holds the first calls until `barrier` of them are there; tells how many had started then."""

    schema = "started bigint"

    def __init__(self, barrier: int) -> None:
        self.barrier = barrier

    def open(self, context: sa.typing.FunctionContext) -> None:
        self.started = 0
        self.enough = asyncio.Event()

    async def async_invoke(self, row: sa.typing.Row) -> dict[str, int]:
        self.started += 1
        if self.started == self.barrier:
            # Whatever else may start at this moment has time to do so.
            for _ in range(1_000):
                await asyncio.sleep(0)
            self.enough.set()
        await self.enough.wait()
        return {"started": self.started}


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_a_limit_waits_for_few_calls(spark, wait):
    numbers = spark.range(10_000, numPartitions=1)

    (row,) = wait(numbers, Counted(12), capacity=100, timeout=None).limit(1).collect()

    assert row.started == 12


def test_all_calls_are_made_without_a_warm_up(spark):
    numbers = spark.range(10_000, numPartitions=1)

    out = sa.unordered_wait(
        numbers, Counted(100), capacity=100, timeout="20s", tuning=sa.Tuning(warm_up=False)
    )

    assert out.limit(1).collect()[0].started == 100
