# SPDX-License-Identifier: Apache-2.0
"""Metrics of all tasks, on the driver."""

import gc
import json
import logging
import sys

import pyarrow as pa
import pytest
from pyspark.accumulators import _accumulatorRegistry

import sparkawait as sa
from sparkawait import retry
from sparkawait._plan import resolve as options
from sparkawait._plan.plan import Chain
from sparkawait._worker.metrics import merge, of_one_task
from sparkawait.spark import owner as owners
from sparkawait.spark.tasks import run_task
from tests.support.waiting import wait_until

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


def test_sums_that_nobody_can_read_are_not_kept(spark):
    """A `foreachBatch` makes some in each micro-batch; the accumulator is one for all."""
    known = len(_accumulatorRegistry)
    for _ in range(3):
        sa.ordered_wait(spark.range(3), double, metrics=sa.Metrics())
    owner = owners._owner_of(spark)
    gc.collect()

    assert len(_accumulatorRegistry) <= known + 1  # that of the owner, if this was the first call
    assert not owner._counted_in


def test_what_describes_one_moment_is_left_out():
    assert of_one_task({"attempts": 1, "in_flight": 4, "queue_size": 9, "oldest_age": 1.5}) == {
        "tasks": 1,
        "attempts": 1,
    }


def test_no_task_gives_no_metrics():
    counted = sa.Metrics().snapshot()
    assert (counted["tasks"], counted["attempts"], counted["call_latency"]) == (0, 0, [])


def test_metrics_of_all_tasks_are_added(spark):
    @sa.async_function("doubled bigint")
    async def fail_odd(row):
        if row["id"] % 2:
            raise OSError
        return {"doubled": 2 * row["id"]}

    metrics = sa.Metrics()
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


@pytest.fixture(params=[True, False], ids=["one host", "cluster"])
def has_link(request, spark, monkeypatch):
    """Whether tasks reach the driver while they run, or leave their counts in their errors."""
    if not request.param:
        monkeypatch.setattr(owners._owner_of(spark).reports, "address", None)
    return request.param


def failing_at(last, metrics, once=None):
    """Calls for ten rows in each of two tasks; the call for row `last` raises, or does it once."""

    @sa.async_function("doubled bigint")
    async def fail(row):
        if row["id"] == last and (once is None or once.take()):
            message = "[sparkawait.metrics 0 {}]"
            raise OSError(message)
        return {"doubled": 2 * row["id"]}

    return fail, {"metrics": metrics, "capacity": 1}


@pytest.mark.usefixtures("has_link")
def test_what_a_failed_task_counted_is_told_apart(spark, once):
    metrics, other = sa.Metrics(), sa.Metrics()
    fail, given = failing_at(19, metrics, once)

    assert sa.ordered_wait(spark.range(20, numPartitions=2), fail, **given).count() == 20
    sa.ordered_wait(spark.range(5, numPartitions=1), double, metrics=other).collect()

    snapshot = metrics.snapshot()
    failed = snapshot.pop("failed_tasks")
    assert (snapshot["tasks"], snapshot["attempts"], snapshot["failed"]) == (2, 20, 0)
    assert (failed["tasks"], failed["attempts"], failed["emitted"]) == (1, 10, 9)
    assert sum(count for _, count in failed["call_latency"]) == 10
    # The same ones, and those of this object.
    assert metrics.snapshot()["failed_tasks"] == failed
    assert other.snapshot()["failed_tasks"]["tasks"] == 0


def test_every_run_of_a_task_that_fails_a_job_is_counted(spark, has_link):
    metrics = sa.Metrics()
    fail, given = failing_at(9, metrics)
    broken = sa.ordered_wait(spark.range(10, numPartitions=1), fail, **given)

    with pytest.raises(Exception, match="for row 9 of partition 0") as info:
        broken.collect()
    told = str(info.value)
    mark = owners._owner_of(spark).reports.mark
    if has_link:
        assert mark not in told
    elif sys.version_info >= (3, 11):
        # Not the last line of the error, which people read first.
        assert 0 < told.index(mark) < told.index("see docs/errors.md#")

    runs = int(spark.sparkContext.master.rstrip("]").rpartition(",")[2])
    snapshot = metrics.snapshot()
    assert snapshot["tasks"] == 0
    assert snapshot["failed_tasks"]["tasks"] == runs
    assert snapshot["failed_tasks"]["attempts"] == 10 * runs


@pytest.mark.usefixtures("has_link")
def test_failed_tasks_of_a_chain_and_of_a_column_are_counted(spark):
    @sa.async_function("same bigint")
    async def first(row):
        return {"same": row["id"]}

    metrics = sa.Metrics()
    fail, given = failing_at(3, metrics)
    before = sa.ordered_wait(spark.range(4, numPartitions=1), first, metrics=metrics)

    with pytest.raises(Exception, match="for row 3 of partition 0"):
        sa.ordered_wait(before, fail, chain=True, **given).collect()
    with pytest.raises(Exception, match="for row 3 of partition 0"):
        spark.range(4, numPartitions=1).select(sa.async_udf(fail, **given)("id")).collect()

    runs = int(spark.sparkContext.master.rstrip("]").rpartition(",")[2])
    failed = metrics.snapshot()["failed_tasks"]
    assert set(failed["operators"]) == {first.name, fail.name}
    assert failed["operators"][fail.name]["attempts"] == 4 * runs
    # Two operators in a chain, and one.
    assert failed["tasks"] == 3 * runs


def test_a_call_before_the_one_that_fails_is_counted_on_one_host(spark, has_link):
    before, after = sa.Metrics(), sa.Metrics()
    fail, given = failing_at(9, after)
    rows = sa.ordered_wait(spark.range(10, numPartitions=1), double, metrics=before)

    with pytest.raises(Exception, match="for row 9 of partition 0"):
        sa.ordered_wait(rows.drop("doubled"), fail, **given).collect()

    runs = int(spark.sparkContext.master.rstrip("]").rpartition(",")[2])
    assert after.snapshot()["failed_tasks"]["tasks"] == runs
    if has_link:
        # Its own task is stopped, and says so a moment later.
        wait_until(lambda: before.snapshot()["attempts"] == 10 * runs)
    else:
        assert before.snapshot() == sa.Metrics().snapshot()


def test_metrics_of_the_function_are_added(spark):
    class Counting(sa.AsyncFunction):
        schema = "doubled bigint"

        def open(self, context):
            self.context = context

        async def async_invoke(self, row):
            self.context.add_metric("bytes", 10)
            return {"doubled": 2 * row["id"]}

    metrics = sa.Metrics()

    sa.ordered_wait(spark.range(7, numPartitions=2), Counting(), metrics=metrics).collect()

    assert metrics.snapshot()["function.bytes"] == 70


def test_every_task_logs_its_metrics(caplog):
    plan = options.resolve("ordered", double, input_schema=None)
    batch = pa.RecordBatch.from_pydict({"id": [1, 2, 3]})

    with caplog.at_level(logging.INFO, logger="sparkawait"):
        list(run_task(Chain.of(plan), iter([batch])))

    [line] = [line for line in caplog.messages if line.startswith("double, ")]
    where, _, counts = line.partition(": ")
    assert where == "double, partition 0, succeeded"
    assert json.loads(counts)["emitted"] == 3


def test_a_column_function_has_metrics_too(spark):
    metrics = sa.Metrics()
    doubled = sa.async_udf(double, metrics=metrics)

    spark.range(10, numPartitions=2).select(doubled("id")).collect()

    assert metrics.snapshot()["attempts"] == 10


def test_one_object_adds_up_tasks_of_spark_and_of_this_process(spark):
    metrics = sa.Metrics()
    rows = spark.range(13, numPartitions=3)

    assert sa.ordered_wait(rows, double, metrics=metrics).count() == 13
    out = sa.arrow.ordered_wait(pa.table({"id": [*range(7)]}), double, metrics=metrics)
    assert out.to_table().num_rows == 7

    counts = metrics.snapshot()
    assert (counts["tasks"], counts["attempts"], counts["emitted"]) == (4, 20, 20)
    assert counts["failed_tasks"]["tasks"] == 0
