# SPDX-License-Identifier: Apache-2.0
"""Plain functions, which are called in threads of Spark's workers."""

import os
import threading
import time

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.spark.carried import SLOW

# What it is about is in the worker, which is the same on each Spark.
pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]


def double(row):
    return {"doubled": 2 * row["id"]}


WAITS = {
    "ordered": sa.ordered_wait,
    "unordered": sa.unordered_wait,
    "by key": lambda df, function, **given: sa.key_ordered_wait(
        df, function, key=F.col("id") % 7, **given
    ),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_plain_function_is_called_once_for_each_row(spark, calls, wait):
    def noted(row):
        calls.add(row.id)
        time.sleep(0.001)
        return double(row)

    rows = wait(spark.range(331, numPartitions=3), noted, schema="doubled long", timeout="1 min")

    assert sorted(map(tuple, rows.collect())) == [(i, 2 * i) for i in range(331)]
    assert calls.counts() == {str(i): 1 for i in range(331)}


def test_as_many_threads_as_are_said_call_at_the_same_time(spark):
    threads = 71

    class Together(sa.AsyncFunction):
        schema = "together long"

        def __init__(self):
            self.threads = threads

        def open(self, context):
            self.barrier = threading.Barrier(threads)

        def async_invoke(self, row):
            self.barrier.wait(20)  # passes once all of them are there
            return {"together": threads}

    rows = sa.unordered_wait(
        spark.range(2 * threads, numPartitions=1), Together(), tuning=sa.Tuning(warm_up=False)
    )
    assert rows.count() == 2 * threads
    assert rows.where(F.col("together") == threads).count() == 2 * threads


def test_it_goes_with_functions_beside_it_and_behind_it_and_with_captured_failures(spark):
    @sa.async_function("halved double", threads=5)
    def halve(row):
        if row.id % 13 == 0:
            raise ConnectionError(row.id)
        return {"halved": row.id / 2}

    @sa.async_function
    async def tripled(row) -> int:
        return 3 * row.id

    @sa.async_function("sum double", batch=7)
    def add(rows):
        return [None if row.halved is None else row.halved + row.tripled for row in rows]

    first = sa.unordered_wait(
        spark.range(101, numPartitions=2), [halve.with_options(on_error="null"), tripled]
    )
    rows = sa.ordered_wait(first, add, chain=True, retry=sa.retry.fixed_delay(1, 0)).collect()

    assert sorted((row.id, row["sum"]) for row in rows) == [
        (i, None if i % 13 == 0 else i / 2 + 3 * i) for i in range(101)
    ]


def test_a_job_ends_although_calls_hang(spark):
    def hangs(row):
        if row.id % 29 == 3:
            time.sleep(3600)
        return double(row)

    rows = sa.unordered_wait(
        spark.range(61, numPartitions=2),
        sa.async_function(hangs, threads=13),
        schema="doubled long",
        timeout="613ms",
        on_error="capture",
    ).collect()

    assert len(rows) == 61
    failed = [row for row in rows if row.error is not None]
    # On a machine that stands still, others run out of time, too.
    assert {row.id for row in failed} >= {3, 32}
    assert {row.error.kind for row in failed} == {"element-timed-out"}
    assert all(row.doubled == 2 * row.id for row in rows if row.error is None)


def test_fewer_threads_than_calls_are_said_with_the_number_over_all_tasks(spark, caplog):
    def few(row):
        return double(row)

    sa.ordered_wait(spark.range(1), few, schema="doubled long", max_concurrency=997)

    tasks = spark.sparkContext.defaultParallelism
    (said,) = [it.getMessage() for it in caplog.records if "is a plain function" in it.msg]
    assert f"at most 64 threads of a task, {64 * tasks} in the {tasks} tasks that run at" in said


def test_its_calls_outlive_a_micro_batch_and_are_made_once(stream):
    calls, gate = stream.calls, str(stream.gate)

    def waits_at_the_gate(row):
        calls.add(row["id"])
        while row["id"] == SLOW and not os.path.exists(gate):  # noqa: PTH110 - in a worker
            time.sleep(0.01)
        return double(row)

    rows = sa.unordered_wait(
        stream.source,
        waits_at_the_gate,
        schema="doubled long",
        timeout=None,
        carry_over=sa.CarryOver(),
    )
    stream.put(range(13))
    stream.start(rows)
    stream.until_out(set(range(13)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(13))

    assert [stream.calls_of(id_) for id_ in range(13)] == [1] * 13
