# SPDX-License-Identifier: Apache-2.0
"""Structured Streaming: watermarks pass, and every row of every micro-batch comes out once."""

from itertools import chain

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.spark.events import double

pytestmark = pytest.mark.spark


@pytest.fixture
def run(tmp_path):
    """Runs a stream until it has read everything there is."""

    def run(writer, name="checkpoint"):
        query = (
            writer.option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return run


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_every_row_of_every_micro_batch_comes_out_once(spark, events, run, wait):
    name = f"out_{wait.__name__}"

    query = run(wait(events, double).writeStream.format("memory").queryName(name))

    assert sum(progress["numInputRows"] > 0 for progress in query.recentProgress) == 5
    rows = spark.table(name).collect()
    assert sorted((row.id, row.doubled) for row in rows) == [(id_, 2 * id_) for id_ in range(100)]


def test_foreach_batch_gets_every_row_once(events, run):
    batches = {}

    def keep(batch, number):
        batches[number] = [row.doubled for row in batch.collect()]

    run(events.transform(sa.ordered_wait, double).writeStream.foreachBatch(keep))

    assert sorted(chain.from_iterable(batches.values())) == list(range(0, 200, 2))
    assert len(batches) == 5


def test_a_restarted_stream_goes_on_behind_what_was_committed(spark, events, run, once, tmp_path):
    @sa.async_function("doubled bigint")
    async def fail_once(row):
        if row["id"] == 55:
            # Both attempts of the task, so that the query fails.
            for path in (first, second):
                if path.take():
                    message = "the service is away"
                    raise ConnectionError(message)
        return {"doubled": 2 * row["id"]}

    first, second = once, type(once)(tmp_path / "twice")

    def write():
        return (
            sa.ordered_wait(events, fail_once)
            .writeStream.format("json")
            .option("path", str(tmp_path / "out"))
        )

    with pytest.raises(Exception, match="the service is away"):
        run(write())
    run(write())

    rows = spark.read.schema("id bigint, doubled bigint").json(str(tmp_path / "out")).collect()
    assert sorted((row.id, row.doubled) for row in rows) == [(id_, 2 * id_) for id_ in range(100)]


def test_a_watermark_declared_before_works_after(spark, events, run):
    counts = (
        sa.ordered_wait(events.withWatermark("time", "5 seconds"), double)
        .groupBy(F.window("time", "10 seconds"))
        .agg(F.sum("doubled").alias("sum"))
        .select(F.unix_timestamp("window.start").alias("start"), "sum")
    )

    run(counts.writeStream.format("memory").outputMode("append").queryName("windows"))

    rows = spark.table("windows").orderBy("start").collect()
    # The last window stays open: nothing later came.
    assert [row.sum for row in rows] == [
        sum(range(2 * start, 2 * start + 20, 2)) for start in range(0, 90, 10)
    ]


def test_event_time_metadata_of_a_stream_is_kept(events):
    out = sa.unordered_wait(events.withWatermark("time", "5 seconds"), double)

    assert out.isStreaming
    assert out.schema["time"].metadata == {"spark.watermarkDelayMs": 5000}


def test_column_functions_work_on_streams(spark, events, run):
    doubled = sa.async_udf(double)

    run(
        events.select("id", doubled("id").alias("doubled"))
        .writeStream.format("memory")
        .queryName("column")
    )

    assert sorted(row.doubled for row in spark.table("column").collect()) == list(range(0, 200, 2))
