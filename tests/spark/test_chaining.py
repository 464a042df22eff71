# SPDX-License-Identifier: Apache-2.0
"""Calls after one another in one Python worker."""

import asyncio
import datetime as dt
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.testing import simulated
from tests.support.sql_conf import ZONE, sql_conf

pytestmark = pytest.mark.spark

ROWS = 600
MODES = ("ordered", "unordered", "key_ordered")
WAITS = {
    "ordered": sa.ordered_wait,
    "unordered": sa.unordered_wait,
    "key_ordered": sa.key_ordered_wait,
}


@sa.async_function("doubled bigint")
async def double(row):
    if row["id"] % 7 == 0:
        await asyncio.sleep(0.002)
    return {"doubled": 2 * row["id"]}


@sa.async_function("after bigint")
async def add_one(row):
    if row["id"] % 5 == 0:
        await asyncio.sleep(0.002)
    return {"after": row["id"] + 1}


def numbered(spark):
    made = spark.range(ROWS, numPartitions=3).withColumn("key", F.col("id") % 10)
    return made.withColumn("partition", F.spark_partition_id())


def wait(mode, df, function, **given):
    if mode == "key_ordered":
        given["key"] = "key"
    return WAITS[mode](df, function, **given)


def plan_of(df):
    return df._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("second", MODES)
def test_every_row_comes_out_once_in_the_order_of_the_modes(spark, first, second):
    df = wait(second, wait(first, numbered(spark), double), add_one, chain=True)

    assert plan_of(df).count("MapInArrow") == 1
    rows = df.collect()
    assert Counter(row.id for row in rows) == Counter(range(ROWS))
    assert all((row.doubled, row.after) == (2 * row.id, row.id + 1) for row in rows)
    by_key = defaultdict(list)
    for row in rows:
        by_key[row.partition, row.key].append(row.id)
    if "unordered" not in (first, second):
        assert all(ids == sorted(ids) for ids in by_key.values())
    if first == second == "ordered":
        assert [row.id for row in rows] == list(range(ROWS))


def test_three_calls_are_one_operator_for_spark(spark):
    df = sa.ordered_wait(numbered(spark), double)
    df = sa.unordered_wait(df, simulated(), chain=True)
    df = sa.ordered_wait(df, add_one, chain=True)

    assert plan_of(df).count("MapInArrow") == 1
    assert df.columns == ["id", "key", "partition", "doubled", "ordinal", "after"]
    assert sorted(row.after for row in df.collect()) == list(range(1, ROWS + 1))


def test_calls_that_are_not_chained_stay_apart(spark):
    df = sa.ordered_wait(sa.ordered_wait(numbered(spark), double), add_one)

    assert plan_of(df).count("MapInArrow") == 2


def test_first_data_frame_is_what_it_was(spark):
    first = sa.ordered_wait(numbered(spark), double)
    one = sa.ordered_wait(first, add_one, chain=True)
    other = sa.unordered_wait(first, simulated(), chain=True)

    assert first.columns == ["id", "key", "partition", "doubled"]
    assert first.count() == one.count() == other.count() == ROWS
    assert (len(one.columns), len(other.columns)) == (5, 5)


TYPES = """
    b boolean, i tinyint, j smallint, k int, l bigint, f float, d double, t string, x binary,
    m decimal(12, 3), n date, s timestamp, u timestamp_ntz, a array<timestamp>,
    p map<string, array<int>>, r struct<q: timestamp, v: struct<w: string>>
"""
AT = dt.datetime(2024, 10, 27, 1, 30, tzinfo=dt.timezone.utc)


@sa.async_function(TYPES)
async def all_types(row):
    number = row["id"]
    at = AT + dt.timedelta(minutes=number, microseconds=number)
    return {
        "b": number % 2 == 0,
        **dict.fromkeys("ijkl", number),
        "f": number / 4,
        "d": number / 3,
        "t": f"text {number}" if number % 3 else None,
        "x": bytes([number]),
        "m": number,
        "n": at.date(),
        "s": at,
        "u": at.replace(tzinfo=None),
        "a": [at, None],
        "p": {"one": [number, None]},
        "r": {"q": at, "v": {"w": "deep"}} if number % 4 else None,
    }


@sa.async_function("seen string")
async def look_at_all(row):
    return {"seen": repr({name: row[name] for name in row if name != "seen"})}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("mode", MODES)
def test_values_between_calls_are_those_of_two_workers(spark, mode, zone):
    with sql_conf(spark, {ZONE: zone}):
        source = spark.range(20, numPartitions=1).withColumn("key", F.col("id") % 3)
        first = wait(mode, source, all_types)
        chained = wait("ordered", first, look_at_all, chain=True)
        apart = wait("ordered", first, look_at_all)

        assert chained.schema == apart.schema
        assert sorted(chained.collect(), key=lambda row: row.id) == sorted(
            apart.collect(), key=lambda row: row.id
        )


def test_types_of_a_native_function_become_those_of_spark_in_between(spark, lookups):
    schema = pa.schema([("at", pa.timestamp("ms", "UTC")), ("name", pa.large_string())])
    source = spark.range(3, numPartitions=1)
    first = sa.ordered_wait(source, sa.http.get(lookups + "/t/{id}", schema=schema))
    chained = sa.ordered_wait(first, look_at_all, chain=True)
    apart = sa.ordered_wait(first, look_at_all)

    assert chained.schema == apart.schema
    assert chained.collect() == apart.collect()


@pytest.fixture
def lookups():
    rows = {
        str(number): {"at": f"2024-01-0{number + 1}T00:00:00.123Z", "name": "n"}
        for number in range(3)
    }
    with sa.testing.LookupServer({"t": rows}) as server:
        yield server.url


def test_columns_of_awkward_names_reach_every_call(spark):
    @sa.async_function("`b.c` bigint")
    async def first(row):
        return {"b.c": row["a.b"]}

    @sa.async_function("z bigint")
    async def second(row):
        return {"z": row["a.b"] + row["b.c"]}

    source = spark.range(5, numPartitions=1).toDF("a.b")
    df = sa.ordered_wait(sa.ordered_wait(source, first), second, chain=True)

    assert [row.z for row in df.collect()] == [0, 2, 4, 6, 8]
    assert df.columns == ["a.b", "b.c", "z"]


def test_captured_failure_is_a_column_of_the_next_call(spark):
    @sa.async_function("y bigint")
    async def odd_fails(row):
        if row["id"] % 2:
            raise LookupError
        return {"y": row["id"]}

    @sa.async_function("kind string")
    async def kind(row):
        return {"kind": None if row["error"] is None else row["error"]["kind"]}

    source = spark.range(4, numPartitions=1)
    df = sa.ordered_wait(source, odd_fails, on_error="capture")
    df = sa.ordered_wait(df, kind, on_error=sa.OnError(column="second"), chain=True)

    assert [row.kind for row in df.collect()] == [None, "user-function-failed"] * 2
    assert df.columns == ["id", "y", "error", "kind", "second"]


def test_failure_names_the_function(spark):
    @sa.async_function("z bigint")
    async def breaks(row):
        raise ValueError("no")

    df = sa.ordered_wait(sa.ordered_wait(numbered(spark), double), breaks, chain=True)

    with pytest.raises(Exception, match="breaks` failed for row 0 of partition"):
        df.collect()


def test_limit_ends_both(spark, presence, watch):
    @sa.async_function("z bigint")
    async def slow(row):
        entered = presence.enter()
        try:
            await asyncio.sleep(0 if row["id"] < 5 else 60)
        finally:
            presence.leave(entered)
        return {"z": row["id"]}

    df = sa.unordered_wait(sa.unordered_wait(numbered(spark), double), slow, chain=True)

    assert len(df.take(3)) == 3
    assert watch.wait_for_nobody() >= 3


def test_partition_without_rows_reports_nothing(spark):
    metrics = sa.Metrics()
    empty = spark.range(3, numPartitions=5).withColumn("key", F.col("id"))
    first = sa.ordered_wait(empty, double, metrics=metrics)

    assert sa.ordered_wait(first, add_one, chain=True, metrics=metrics).count() == 3
    assert metrics.snapshot()["attempts"] == 6


def test_metrics_of_each_call_are_told_apart(spark):
    metrics, of_second = sa.Metrics(), sa.Metrics()
    first = sa.ordered_wait(numbered(spark), double, metrics=metrics)
    sa.ordered_wait(first, add_one, chain=True, metrics=of_second).count()

    assert metrics.snapshot()["attempts"] == of_second.snapshot()["attempts"] == ROWS
    assert list(metrics.snapshot()["operators"]) == ["double"]

    both = sa.Metrics()
    first = sa.ordered_wait(numbered(spark), double, metrics=both)
    sa.ordered_wait(first, add_one, chain=True, metrics=both).count()

    snapshot = both.snapshot()
    assert snapshot["attempts"] == 2 * ROWS
    assert {name: it["attempts"] for name, it in snapshot["operators"].items()} == {
        "double": ROWS,
        "add_one": ROWS,
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda df: df.select("*"),
        lambda df: df.filter("id > 3"),
        lambda df: df.withColumn("w", F.lit(1)),
        lambda df: df.alias("other"),
        lambda df: df.repartition(2),
    ],
    ids=["select", "filter", "with column", "alias", "repartition"],
)
def test_data_frame_that_is_touched_is_refused(spark, change):
    df = change(sa.ordered_wait(numbered(spark), double))

    with pytest.raises(sa.ConfigurationError, match="`chain` needs the DataFrame that") as info:
        sa.ordered_wait(df, add_one, chain=True)
    assert info.value.kind is sa.exceptions.ErrorKind.INPUT_INVALID


def test_source_is_refused(spark):
    with pytest.raises(sa.ConfigurationError, match="`chain` needs the DataFrame that"):
        sa.ordered_wait(numbered(spark), double, chain=True)


def test_column_names_and_expressions_of_the_first_call_are_channels(spark):
    first = sa.unordered_wait(numbered(spark), double, channel=F.col("id") % 2)
    df = sa.unordered_wait(first, add_one, channel="key", chain=True)

    assert Counter(row.after for row in df.collect()) == Counter(range(1, ROWS + 1))
    assert df.columns == ["id", "key", "partition", "doubled", "after"]


def test_another_time_zone_between_calls_is_refused(spark):
    first = sa.ordered_wait(numbered(spark), double)
    with (
        sql_conf(spark, {ZONE: "Asia/Tokyo"}),
        pytest.raises(sa.ConfigurationError, match="one session time zone for all calls"),
    ):
        sa.ordered_wait(first, add_one, chain=True)


def test_what_is_persisted_is_not_called_again_by_a_chain(spark, calls):
    @sa.async_function("before bigint")
    async def before(row):
        calls.add(row["id"])
        return {"before": row["id"]}

    kept = sa.unordered_wait(spark.range(31, numPartitions=2), before).persist()
    try:
        assert kept.count() == 31
        with pytest.raises(sa.ConfigurationError, match=r"persisted; leave `chain` out to read"):
            sa.unordered_wait(kept, add_one, chain=True)
        assert sa.unordered_wait(kept, add_one).count() == 31
    finally:
        kept.unpersist()
    assert calls.counts() == {str(i): 1 for i in range(31)}
    assert sa.unordered_wait(kept, add_one, chain=True).count() == 31
