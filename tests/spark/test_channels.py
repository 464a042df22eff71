# SPDX-License-Identifier: Apache-2.0
"""Channels over DataFrames: columns, expressions, and what goes wrong with them."""

import asyncio

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait._worker.metrics import merge, of_one_task
from sparkawait.exceptions import ErrorKind

pytestmark = pytest.mark.spark


@sa.async_function("seen string")
async def see(row):
    return {"seen": ",".join(row)}


@pytest.mark.parametrize("mode", ["ordered_wait", "unordered_wait", "key_ordered_wait"])
def test_an_expression_is_a_channel_and_nobody_sees_it(spark, mode):
    rows = spark.range(200, numPartitions=1).withColumn("host", F.concat(F.lit("h"), F.col("id")))
    metrics = sa.Metrics()
    key = {"key": "id"} if mode == "key_ordered_wait" else {}

    out = getattr(sa, mode)(rows, see, channel=F.col("id") % 3, metrics=metrics, **key)
    found = out.collect()

    assert out.columns == ["id", "host", "seen"]
    assert sorted(row.id for row in found) == list(range(200))
    assert {row.seen for row in found} == {"id,host"}
    channels = metrics.snapshot()["channels"]
    assert {name: counts["calls"] for name, counts in channels.items()} == {
        "0": 67,
        "1": 67,
        "2": 66,
    }


def test_adaptive_calls_go_to_the_executors(spark):
    @sa.async_function("seen bigint")
    async def crowded(row):
        # The destination 1 bears one call at a time.
        if row["id"] % 2 and running:
            raise ConnectionRefusedError
        running.append(row["id"])
        await asyncio.sleep(0)
        running.pop()
        return {"seen": row["id"]}

    running: list[int] = []
    rows = spark.range(200, numPartitions=2)

    out = sa.unordered_wait(
        rows,
        crowded,
        channel=F.col("id") % 2,
        max_concurrency=sa.Adaptive(initial=5),
        retry=sa.retry.fixed_delay(100_000, "1ms", budget=None),
    )

    assert sorted(row.seen for row in out.collect()) == list(range(200))


def test_columns_with_odd_names_and_an_expression_go_together(spark):
    rows = spark.range(20, numPartitions=1).toDF("a.b").withColumn("A.B c", F.lit(1))

    out = sa.ordered_wait(rows, see, channel=F.col("`a.b`") % 2)

    assert {row.seen for row in out.collect()} == {"a.b,A.B c"}


def test_a_column_named_by_its_name_stays_in_the_output(spark):
    rows = spark.range(20, numPartitions=1).selectExpr("id", "if(id % 4 = 0, null, 't') as tenant")

    out = sa.ordered_wait(rows, see, channel=sa.Channel("tenant", count=2))

    assert [row.id for row in out.collect()] == list(range(20))
    assert out.columns == ["id", "tenant", "seen"]


def test_a_stream_takes_an_expression(spark):
    rows = spark.readStream.format("rate").load()

    out = sa.unordered_wait(rows, see, channel=F.minute("timestamp"))

    assert out.isStreaming
    assert out.columns == ["timestamp", "value", "seen"]


@pytest.mark.parametrize(
    ("channel", "message"),
    [
        # Functions: without a session there are no columns.
        (lambda: F.col("absent"), "`channel` cannot be computed: "),
        (lambda: F.create_map(F.lit("a"), F.col("id")), "`channel` is a map<string,bigint>, whose"),
    ],
)
def test_an_expression_that_spark_cannot_take_is_refused_at_once(spark, channel, message):
    with pytest.raises(sa.ConfigurationError) as info:
        sa.ordered_wait(spark.range(3), see, channel=channel())

    assert str(info.value).startswith(message)
    assert info.value.kind is ErrorKind.CHANNELS_INVALID


def test_an_unknown_column_is_refused_at_once(spark):
    with pytest.raises(sa.ConfigurationError, match="`channel` names column `host`"):
        sa.ordered_wait(spark.range(3), see, channel="host")


def test_an_expression_that_fails_on_a_row_fails_the_query(spark):
    rows = spark.range(20, numPartitions=1)

    host = F.raise_error(F.lit("no host in row")).cast("string")
    out = sa.ordered_wait(rows, see, channel=host)

    with pytest.raises(Exception, match="no host in row"):
        out.collect()


def test_channels_of_all_tasks_are_added_and_the_most_starved_are_kept():
    def task(names):
        counts = {
            name: {"calls": 1, "latency": 0.5, "starved": index, "backlog": 0}
            for index, name in enumerate(names)
        }
        rest = {"calls": 10, "latency": 1.0, "starved": 0.0}
        return {"channels": counts, "other_channels": rest, "active_channels": 3}

    merged = merge({}, of_one_task(task(range(60))))
    merged = merge(merged, of_one_task(task(range(40, 100))))

    assert "active_channels" not in merged
    assert len(merged["channels"]) == 64
    assert merged["channels"][59] == {"calls": 2, "latency": 1.0, "starved": 59 + 19}
    shown = sum(counts["calls"] for counts in merged["channels"].values())
    assert shown + merged["other_channels"]["calls"] == 120 + 20
