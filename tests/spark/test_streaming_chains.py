# SPDX-License-Identifier: Apache-2.0
"""Structured Streaming through chained calls: one operator for Spark, and every row once."""

import asyncio

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.spark.events import double, stream, write

pytestmark = pytest.mark.spark

WAITS = {
    "ordered": sa.ordered_wait,
    "unordered": sa.unordered_wait,
    "key_ordered": sa.key_ordered_wait,
}
EXPECTED = [(number, 2 * number, 2 * number + 1) for number in range(100)]


@sa.async_function("after bigint")
async def add_one(row):
    await asyncio.sleep(0.001 * (row["id"] % 2))
    return {"after": row["doubled"] + 1}


@pytest.fixture
def start(tmp_path):
    """Starts a query with a checkpoint of its own; without a trigger it runs on."""
    queries = []

    def start(writer, name="checkpoint", **trigger):
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        queries.append((writer.trigger(**trigger) if trigger else writer).start())
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


def calls(df, first, second, **given):
    for mode, function, chain in ((first, double, False), (second, add_one, True)):
        options = {"key": F.col("id") % 7} if mode == "key_ordered" else {}
        df = WAITS[mode](df, function, chain=chain, **options, **given)
    return df


def found(spark, name):
    return sorted((row.id, row.doubled, row.after) for row in spark.table(name).collect())


def plan_of(query):
    return query._jsq.explainInternal(False)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("ordered", "unordered", marks=pytest.mark.nightly),
        ("unordered", "key_ordered"),
        pytest.param("key_ordered", "ordered", marks=pytest.mark.nightly),
    ],
)
def test_every_row_of_every_micro_batch_comes_out_once(spark, events, start, first, second):
    name = f"chain_{first}_{second}"
    metrics = sa.Metrics()
    out = calls(events, first, second, metrics=metrics)

    query = start(out.writeStream.format("memory").queryName(name), availableNow=True)
    query.awaitTermination()

    assert out.isStreaming
    assert sum(progress["numInputRows"] > 0 for progress in query.recentProgress) == 5
    assert plan_of(query).count("MapInArrow") == 1
    assert found(spark, name) == EXPECTED
    counts = metrics.snapshot()["operators"]
    assert {operator: it["emitted"] for operator, it in counts.items()} == {
        "double": 100,
        "add_one": 100,
    }


def test_a_query_that_runs_on_takes_what_comes_later(spark, source_folder, start):
    for number in range(4):
        write(source_folder, number)
    out = calls(stream(spark, source_folder), "unordered", "ordered")

    query = start(out.writeStream.format("memory").queryName("running"))
    query.processAllAvailable()
    assert found(spark, "running") == EXPECTED[:40]
    for number in range(4, 10):
        write(source_folder, number)
    query.processAllAvailable()

    assert query.isActive
    assert found(spark, "running") == EXPECTED


def test_a_trigger_of_time_takes_what_comes_later(spark, source_folder, start):
    write(source_folder, 0)
    out = calls(stream(spark, source_folder), "ordered", "key_ordered")

    writer = out.writeStream.format("memory").queryName("timed")
    query = start(writer, processingTime="10 milliseconds")
    query.processAllAvailable()
    write(source_folder, 1)
    query.processAllAvailable()

    assert found(spark, "timed") == EXPECTED[:20]


def test_a_restarted_stream_goes_on_behind_what_was_committed(spark, events, start, once, tmp_path):
    @sa.async_function("after bigint")
    async def fail_once(row):
        if row["id"] == 55:
            # Both attempts of the task, so that the query fails.
            for path in (first, second):
                if path.take():
                    message = "the service is away"
                    raise ConnectionError(message)
        return {"after": row["doubled"] + 1}

    first, second = once, type(once)(tmp_path / "twice")
    out = str(tmp_path / "out")

    def run():
        df = sa.ordered_wait(sa.unordered_wait(events, double), fail_once, chain=True)
        writer = df.writeStream.format("json").option("path", out)
        start(writer, availableNow=True).awaitTermination()

    with pytest.raises(Exception, match="the service is away"):
        run()
    run()

    rows = spark.read.schema("id bigint, doubled bigint, after bigint").json(out).collect()
    assert sorted(tuple(row) for row in rows) == EXPECTED


def test_each_batch_of_a_stream_may_be_chained(events, start):
    batches = {}

    def keep(batch, number):
        batches[number] = [row.after for row in calls(batch, "ordered", "ordered").collect()]

    start(events.writeStream.foreachBatch(keep), availableNow=True).awaitTermination()

    # Each has two files, which Spark may read in any order.
    assert [sorted(batches[number]) for number in sorted(batches)] == [
        [after for _, _, after in EXPECTED[begin : begin + 20]] for begin in range(0, 100, 20)
    ]


def test_a_watermark_declared_before_works_after(spark, events, start):
    late = events.withWatermark("time", "5 seconds")
    counts = (
        calls(late, "unordered", "ordered")
        .groupBy(F.window("time", "10 seconds"))
        .agg(F.sum("after").alias("sum"))
        .select(F.unix_timestamp("window.start").alias("start"), "sum")
    )

    writer = counts.writeStream.format("memory").outputMode("append").queryName("chain_windows")
    start(writer, availableNow=True).awaitTermination()

    rows = spark.table("chain_windows").orderBy("start").collect()
    # The last window stays open: nothing later came.
    assert [row.sum for row in rows] == [
        sum(after for _, _, after in EXPECTED[begin : begin + 10]) for begin in range(0, 90, 10)
    ]
