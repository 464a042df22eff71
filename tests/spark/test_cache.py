# SPDX-License-Identifier: Apache-2.0
"""Results are kept from one task and one query to the next."""

import pytest

import sparkawait as sa

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]


def test_one_worker_makes_one_call_for_each_key(spark, calls):
    @sa.async_function("square bigint")
    async def square(row):
        calls.add(str(row["k"]))
        return {"square": row["k"] ** 2}

    numbers = spark.range(200, numPartitions=1).selectExpr("id % 7 as k")
    cache = sa.Cache(key="k")
    squares = sa.ordered_wait(numbers, square, cache=cache)

    rows = squares.collect()

    assert [row.square for row in rows] == [(number % 7) ** 2 for number in range(200)]
    assert calls.counts() == {str(key): 1 for key in range(7)}


def test_metrics_of_the_cache_are_added_up(spark):
    @sa.async_function("one bigint")
    async def one(row):
        return {"one": 1}

    metrics = sa.Metrics()
    numbers = spark.range(100, numPartitions=2).selectExpr("id % 5 as k")

    sa.unordered_wait(numbers, one, cache=sa.Cache(key="k"), metrics=metrics).collect()

    counted = metrics.snapshot()
    assert counted["cache_hits"] + counted["cache_misses"] == 100
    assert 5 <= counted["cache_loads"] <= 10
