# SPDX-License-Identifier: Apache-2.0
"""Several functions for each row, side by side; the oracle is one call after the other."""

import asyncio
from collections import Counter

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait import ConfigurationError
from sparkawait.testing import simulated

pytestmark = pytest.mark.spark

ROWS = 300
WAITS = {
    "ordered": sa.ordered_wait,
    "unordered": sa.unordered_wait,
    "key_ordered": sa.key_ordered_wait,
}


@sa.async_function("doubled bigint, seen string, same timestamp", idempotent=True)
async def double(row):
    await asyncio.sleep(0.001 * (row["id"] % 3))
    return {"doubled": 2 * row["id"], "seen": ",".join(row), "same": row["at"]}


@sa.async_function("answer struct<half: int, rest: array<int>>")
async def halve(row):
    if row["id"] % 10 == 7:
        raise LookupError
    await asyncio.sleep(0.001 * (row["id"] % 2))
    return {"answer": {"half": row["id"] // 2, "rest": [row["id"] % 2]}}


@sa.async_function("again bigint", idempotent=True)
async def again(row):
    return {"again": row["doubled"]}


@sa.async_function("calls bigint")
async def count_calls(row):
    called[row["id"] % 7] += 1
    await asyncio.sleep(0)
    return {"calls": called[row["id"] % 7]}


called: Counter = Counter()


def numbered(spark):
    made = spark.range(ROWS, numPartitions=2).withColumn("key", F.col("id") % 10)
    return made.withColumn("at", F.timestamp_seconds("id")).withColumn("a.b", F.lit("x"))


def wait(mode, df, function, **given):
    if mode == "key_ordered":
        given["key"] = F.col("id") % 10
    return WAITS[mode](df, function, **given)


@pytest.mark.parametrize("mode", WAITS)
def test_columns_are_those_of_calls_one_after_the_other(spark, mode):
    df = numbered(spark)
    captured = halve.with_options(on_error=sa.OnError(column="why"))

    found = wait(mode, df, [double, captured], max_concurrency=20)
    expected = wait(mode, wait(mode, df, double), captured)

    rows = found.collect()
    assert found.schema == expected.schema
    assert sorted(rows) == sorted(expected.collect())
    assert {row.seen for row in rows} == {"id,key,at,a.b"}
    if mode == "ordered":
        assert [row.id for row in rows] == list(range(ROWS))
    if mode == "key_ordered":
        by_partition = [[row.id for row in rows if row.id // 150 == part] for part in (0, 1)]
        for ids in by_partition:
            assert all(ids.index(it) < ids.index(it + 10) for it in ids if it + 10 in ids)


def test_options_of_a_function_may_be_expressions(spark):
    functions = [
        double.with_options(channel=sa.Channel(F.col("id") % 3, count=3)),
        count_calls.with_options(cache=sa.Cache(key=F.col("id") % 7)),
        simulated(),
    ]

    found = sa.unordered_wait(numbered(spark).coalesce(1), functions)
    rows = found.collect()

    assert found.columns[4:] == ["doubled", "seen", "same", "calls", "ordinal"]
    assert sorted(row.id for row in rows) == list(range(ROWS))
    by_key = {row.id % 7: row.calls for row in rows}
    assert all(row.calls == by_key[row.id % 7] for row in rows)
    assert sorted(by_key.values()) == [1] * 7


def test_side_by_side_calls_are_chained_and_counted(spark):
    metrics = sa.Metrics()
    limit = sa.RateLimit("1000000/s", scope="job", name="all")

    first = sa.unordered_wait(numbered(spark), [double, simulated()], metrics=metrics)
    second = sa.ordered_wait(
        first,
        [
            halve.with_options(on_error="drop", rate_limit=limit),
            again.with_options(hedge=sa.Hedge()),
        ],
        chain=True,
        metrics=metrics,
    )
    rows = second.collect()

    assert sorted(row.id for row in rows) == [it for it in range(ROWS) if it % 10 != 7]
    snapshot = metrics.snapshot()
    operators = snapshot["operators"]
    assert operators["double"]["attempts"] == operators["halve"]["attempts"] == ROWS
    assert snapshot["rate_limits"]["all"]["permits"] == ROWS
    assert operators["[halve, again]"]["dropped"] == ROWS // 10
    plan = second._jdf.queryExecution().executedPlan().toString()
    assert plan.count("MapInArrow") == 1


def test_a_failure_names_the_function_and_the_row(spark):
    df = numbered(spark).coalesce(1)
    with pytest.raises(Exception, match="`halve` failed for row 7 of partition 0"):
        sa.ordered_wait(df, [double, halve]).collect()


def test_a_stream_passes_every_row_once(spark, tmp_path):
    source, out = str(tmp_path / "source"), str(tmp_path / "out")
    numbered(spark).drop("a.b").write.parquet(source)
    stream = spark.readStream.schema("id bigint, key bigint, at timestamp").parquet(source)

    result = sa.unordered_wait(stream, [double, simulated()])
    query = (
        result.writeStream.format("parquet")
        .option("path", out)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    rows = spark.read.parquet(out).collect()
    assert sorted((row.id, row.doubled) for row in rows) == [(it, 2 * it) for it in range(ROWS)]


def test_what_cannot_be_called_side_by_side_is_refused_on_the_driver(spark):
    df = numbered(spark)
    stream = spark.readStream.format("rate").load().selectExpr("value as id", "timestamp as at")
    items = sa.http.get("http://h/{id}", "item int", rows="items")
    carried = sa.unordered_wait(stream, simulated(), carry_over=sa.CarryOver())

    def refused(message, df, function, **given):
        with pytest.raises(ConfigurationError, match=message):
            sa.unordered_wait(df, function, **given)

    refused("may return several rows for a row.*call it alone", df, [items, double])
    several = "`carry_over` keeps rows of one function"
    refused(several, stream, [double, halve], carry_over=sa.CarryOver())
    refused(several, carried, [double, halve], chain=True)
    unknown = double.with_options(channel=F.col("nope"))
    refused("`channel` cannot be computed", df, [unknown, halve])
    refused("already a column of the input", df.withColumn("answer", F.lit(1)), [double, halve])
    refused("`hedge` calls `halve` twice", df, [double, halve], hedge=sa.Hedge())
