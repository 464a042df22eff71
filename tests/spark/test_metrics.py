# SPDX-License-Identifier: Apache-2.0
"""Metrics of all tasks, on the driver."""

import logging

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import retry
from sparkawait._plan import options
from sparkawait._plan.chain import Chain
from sparkawait.spark import Metrics
from sparkawait.spark.metrics import merge, of_one_task
from sparkawait.spark.partition import run_task

pytestmark = pytest.mark.spark


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row["id"]}


def test_counters_are_added():
    assert merge({"attempts": 2, "retries": 1}, {"attempts": 3, "failed": 1}) == {
        "attempts": 5,
        "retries": 1,
        "failed": 1,
    }


def test_latency_buckets_are_merged():
    merged = merge(
        {"call_latency": [(0.001, 5), (0.1, 1)]}, {"call_latency": [(0.001, 2), (0.01, 3)]}
    )

    assert merged == {"call_latency": [(0.001, 7), (0.01, 3), (0.1, 1)]}


def test_merging_leaves_its_arguments_alone():
    left, right = {"call_latency": [(0.001, 5)]}, {"call_latency": [(0.001, 2)]}

    merge(left, right)

    assert (left, right) == ({"call_latency": [(0.001, 5)]}, {"call_latency": [(0.001, 2)]})


def test_what_describes_one_moment_is_left_out():
    assert of_one_task({"attempts": 1, "in_flight": 4, "queue_size": 9, "oldest_age": 1.5}) == {
        "tasks": 1,
        "attempts": 1,
    }


def test_no_task_gives_no_metrics(spark):
    assert Metrics(spark).snapshot() == {"tasks": 0}


def test_metrics_of_all_tasks_are_added(spark):
    @sa.async_function("doubled bigint")
    async def fail_odd(row):
        if row["id"] % 2:
            raise OSError
        return {"doubled": 2 * row["id"]}

    metrics = Metrics(spark)
    out = sa.ordered_wait(
        spark.range(100, numPartitions=4),
        fail_odd,
        retry=retry.fixed_delay(1, 0),
        on_error="drop",
        metrics=metrics,
    )

    assert out.count() == 50
    snapshot = metrics.snapshot()
    assert snapshot["tasks"] == 4
    assert snapshot["admitted"] == 100
    assert snapshot["attempts"] == 150
    assert snapshot["retries"] == 50
    assert snapshot["emitted"] == 50
    assert snapshot["failed"] == 50
    assert sum(count for _, count in snapshot["call_latency"]) == 150


def test_metrics_of_the_function_are_added(spark):
    class Counting(sa.AsyncFunction):
        schema = "doubled bigint"

        def open(self, context):
            self.context = context

        async def async_invoke(self, row):
            self.context.add_metric("bytes", 10)
            return {"doubled": 2 * row["id"]}

    metrics = Metrics(spark)

    sa.ordered_wait(spark.range(7, numPartitions=2), Counting(), metrics=metrics).collect()

    assert metrics.snapshot()["function.bytes"] == 70


def test_every_task_logs_its_metrics(caplog):
    plan = options.resolve("ordered", double, input_schema=None)
    batch = pa.RecordBatch.from_pydict({"id": [1, 2, 3]})

    with caplog.at_level(logging.INFO, logger="sparkawait"):
        list(run_task(Chain.of(plan), iter([batch]), [None]))

    assert "double, partition 0: {" in caplog.text
    assert "'emitted': 3" in caplog.text


def test_a_column_function_has_metrics_too(spark):
    metrics = Metrics(spark)
    doubled = sa.async_udf(double, metrics=metrics)

    spark.range(10, numPartitions=2).select(doubled("id")).collect()

    assert metrics.snapshot()["attempts"] == 10
