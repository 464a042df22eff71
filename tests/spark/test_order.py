# SPDX-License-Identifier: Apache-2.0
"""Every row comes out exactly once, in the order that was asked for."""

import asyncio
from collections import defaultdict

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa

pytestmark = pytest.mark.spark

ROWS = 1000


@pytest.fixture
def numbered(spark):
    return spark.range(ROWS, numPartitions=7).withColumn("partition", F.spark_partition_id())


@pytest.fixture
def uneven(calls):
    """Every seventh call takes longer than its neighbours."""

    @sa.async_function("doubled bigint")
    async def double(row):
        calls.add(row["id"])
        if row["id"] % 7 == 0:
            await asyncio.sleep(0.003)
        return {"doubled": 2 * row["id"]}

    return double


def by_partition(rows):
    partitions = defaultdict(list)
    for row in rows:
        partitions[row.partition].append(row.id)
    return partitions


def test_ordered_wait_keeps_the_order_of_every_partition(numbered, uneven):
    rows = numbered.transform(sa.ordered_wait, uneven).collect()

    assert [row.id for row in rows] == list(range(ROWS))
    assert all(row.doubled == 2 * row.id for row in rows)


def test_unordered_wait_emits_every_row_of_every_partition_once(numbered, uneven):
    expected = by_partition(numbered.collect())

    found = by_partition(sa.unordered_wait(numbered, uneven).collect())

    assert {partition: sorted(ids) for partition, ids in found.items()} == expected


def test_unordered_wait_lets_fast_rows_overtake(spark):
    class FirstIsSlow(sa.AsyncFunction):
        schema = "answer string"

        def open(self, context):
            self.others = 0
            self.all_others_came = asyncio.Event()

        async def async_invoke(self, row):
            if row["id"] == 0:
                await self.all_others_came.wait()
            else:
                self.others += 1
                if self.others == 9:
                    self.all_others_came.set()
            return {"answer": "x"}

    rows = sa.unordered_wait(spark.range(10, numPartitions=1), FirstIsSlow()).collect()

    assert rows[-1].id == 0


def test_key_ordered_wait_keeps_the_order_of_every_key(numbered, uneven):
    keyed = numbered.withColumn("key", F.col("id") % 13)

    rows = sa.key_ordered_wait(keyed, uneven, key="key").collect()

    assert sorted(row.id for row in rows) == list(range(ROWS))
    by_key = defaultdict(list)
    for row in rows:
        by_key[row.partition, row.key].append(row.id)
    assert all(ids == sorted(ids) for ids in by_key.values())


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_every_row_is_called_for_once(numbered, uneven, calls, wait):
    assert numbered.transform(wait, uneven).count() == ROWS

    assert calls.counts() == {str(number): 1 for number in range(ROWS)}


def test_no_more_calls_are_in_flight_than_max_concurrency(spark):
    in_flight = 0

    @sa.async_function("found bigint")
    async def count(row):
        nonlocal in_flight
        in_flight += 1
        await asyncio.sleep(0.001)
        found, in_flight = in_flight, in_flight - 1
        return {"found": found}

    found = sa.ordered_wait(
        spark.range(200, numPartitions=2), count, capacity=50, max_concurrency=3
    ).agg(F.max("found"))

    assert found.first()[0] == 3


def test_rows_with_several_or_no_results_become_as_many_rows(spark):
    @sa.async_function("copy bigint")
    async def repeat(row):
        return [{"copy": copy} for copy in range(row["id"] % 3)]

    rows = sa.ordered_wait(spark.range(9, numPartitions=2), repeat).collect()

    assert [(row.id, row.copy) for row in rows] == [
        (number, copy) for number in range(9) for copy in range(number % 3)
    ]


def test_empty_partitions_are_not_called_for(spark, calls):
    @sa.async_function("doubled bigint")
    async def double(row):
        calls.add("call")
        return {"doubled": 2 * row["id"]}

    sparse = spark.range(100, numPartitions=10).where("id >= 95")

    assert [row.doubled for row in sa.ordered_wait(sparse, double).collect()] == [
        190,
        192,
        194,
        196,
        198,
    ]
    assert sa.ordered_wait(sparse.where("id < 0"), double).collect() == []
    assert calls.counts() == {"call": 5}


def test_two_operators_work_in_one_plan(numbered):
    @sa.async_function("doubled bigint")
    async def double(row):
        await asyncio.sleep(0)
        return {"doubled": 2 * row["id"]}

    @sa.async_function("sum bigint")
    async def add(row):
        await asyncio.sleep(0)
        return {"sum": row["id"] + row["doubled"]}

    rows = numbered.transform(sa.ordered_wait, double).transform(sa.ordered_wait, add).collect()

    assert [row.sum for row in rows] == [3 * number for number in range(ROWS)]


def test_watermark_is_not_crossed_by_unordered_rows(spark):
    """Batches have 50 rows, and a watermark follows each."""

    @sa.async_function("answer string")
    async def later_is_faster(row):
        await asyncio.sleep(0.002 * (row["id"] % 50 == 0))
        return {"answer": "x"}

    events = spark.range(200, numPartitions=1).withColumn("time", F.timestamp_seconds("id"))
    strategy = sa.WatermarkStrategy.for_bounded_out_of_orderness("time", 0)

    rows = sa.unordered_wait(events, later_is_faster, watermark=strategy).collect()

    ids = [row.id for row in rows]
    segments = [ids[start : start + 50] for start in range(0, 200, 50)]
    assert [sorted(segment) for segment in segments] == [
        list(range(start, start + 50)) for start in range(0, 200, 50)
    ]
    assert ids != sorted(ids)
