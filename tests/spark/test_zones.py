# SPDX-License-Identifier: Apache-2.0
"""The time zone of the session goes with every timestamp."""

import datetime as dt
import functools

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._schema.types import with_zone
from sparkawait.spark import session
from sparkawait.spark.schemas import conformed
from sparkawait.spark.session import Times, rules_of_jvm, rules_of_server
from sparkawait.testing import LookupServer

pytestmark = pytest.mark.spark

NAMES = ["UTC", "Z", "America/New_York", "Asia/Kolkata", "+02:00", "GMT+8", "UTC+01:00"]
NOON = dt.datetime(2024, 7, 1, 12, tzinfo=dt.timezone.utc)
NESTED = (
    "at timestamp, many array<timestamp>, by_name map<string, timestamp>,"
    " inside struct<at: timestamp, wall: timestamp_ntz>"
)


def test_nested_timestamps_get_the_zone_and_local_ones_do_not():
    at, wall = pa.timestamp("us", "Asia/Kolkata"), pa.timestamp("us")
    schema = pa.schema(
        [
            ("wall", wall),
            pa.field("at", pa.timestamp("ms", "UTC"), nullable=False, metadata={"comment": "when"}),
            ("deep", pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.timestamp("ns", "UTC")))]))),
        ]
    )

    found = conformed(schema, Times("Asia/Kolkata"))

    assert found.field("wall").type == wall
    assert found.field("at").equals(schema.field("at").with_type(at), check_metadata=True)
    assert found.field("deep").type.value_type.field("m").type.item_type == at
    assert with_zone(schema, "Asia/Kolkata").field("at").type == pa.timestamp("ms", "Asia/Kolkata")


@pytest.mark.parametrize("zone", NAMES)
def test_timestamps_are_the_same_instant_in_every_zone(spark, in_zone, zone):
    in_zone(zone)

    @sa.async_function(NESTED)
    async def answer(row):
        wall = NOON.replace(tzinfo=None)
        inside = {"at": NOON, "wall": wall}
        return {"at": NOON, "many": [NOON, None], "by_name": {"a": NOON}, "inside": inside}

    expected = spark.sql(
        "select at, array(at, null) as many, map('a', at) as by_name,"
        " named_struct('at', at, 'wall', timestamp_ntz'2024-07-01 12:00:00') as inside"
        " from (select timestamp'2024-07-01 12:00:00 UTC' as at)"
    )
    empty = spark.sql("select timestamp'2024-01-01 00:00:00 UTC' as input")

    out = sa.ordered_wait(empty, answer)

    assert out.drop("input").collect() == expected.collect()
    assert out.select("input").collect() == empty.collect()


def test_a_native_column_function_reads_texts_in_the_zone_of_the_session_that_calls_it(
    spark, in_zone
):
    with LookupServer({"t": {"0": {"at": "2024-01-01 00:00:00"}}}) as server:
        # As at the top of a module, before the session has its zone.
        in_zone("UTC")
        at = sa.async_udf(
            sa.http.get(server.url + "/t/{id}", "at timestamp", client=sa.http.Client(proxy=False))
        )
        for zone in ("Asia/Kolkata", "America/New_York"):
            in_zone(zone)
            expected = spark.sql(
                """select from_json('{"at": "2024-01-01 00:00:00"}', 'at timestamp').at as at"""
            )
            found = spark.range(1).select(at("id").alias("at"))
            assert found.collect() == expected.collect()
            assert found.selectExpr("unix_timestamp(at)").collect() == (
                expected.selectExpr("unix_timestamp(at)").collect()
            )


@pytest.mark.parametrize("zone", ["America/St_Johns", "Asia/Kolkata"])
def test_the_first_and_the_last_time_that_python_has_reach_a_function(spark, in_zone, zone):
    in_zone(zone)
    df = spark.sql(
        "select timestamp'0001-01-01 00:00:00' as first,"
        " timestamp'9999-12-31 23:59:59.999999' as last"
    ).coalesce(1)
    expected = tuple(df.selectExpr("cast(first as string)", "cast(last as string)").first())

    @sa.async_function("one string, other string, again array<timestamp>")
    async def shown(row):
        one, other = (str(it.replace(tzinfo=None)) for it in (row.first, row.last))
        return {"one": one, "other": other, "again": [row.first, row.last]}

    @sa.async_udf("string")
    async def text(time):
        return str(time.replace(tzinfo=None))

    out = sa.ordered_wait(df, shown)
    assert tuple(out.select("one", "other").first()) == expected
    assert out.where("again = array(first, last)").count() == 1
    assert tuple(df.select(text("first"), text("last")).first()) == expected


# Which Java has otherwise than the database of the wheel, or of the system, depends on their years.
@pytest.mark.parametrize("zone", ["America/Vancouver", "Africa/Casablanca"])
def test_texts_of_times_and_times_of_texts_have_the_rules_that_spark_has(spark, in_zone, zone):
    in_zone(zone)
    df = spark.sql("select timestamp_seconds(1780000013 + id * 7654321) as t from range(43)")
    texts = [it[0] for it in df.selectExpr("cast(t as string)").collect()]
    read = df.selectExpr("unix_seconds(cast(cast(t as string) as timestamp))").collect()

    @sa.async_function("seen string")
    async def shown(row):
        return row.t.strftime("%Y-%m-%d %H:%M:%S")

    with LookupServer({"t": {text: {"at": text} for text in texts}}) as server:
        client = sa.http.Client(proxy=False)
        looked_up = sa.http.get(server.url + "/t/{t}", "at timestamp", client=client)
        out = sa.ordered_wait(df, [looked_up, shown])
        found = out.selectExpr("unix_seconds(at)", "seen").collect()

    assert [it.seen for it in found] == texts
    assert [it[0] for it in found] == [it[0] for it in read]


@pytest.mark.parametrize(
    "zone",
    [
        "America/Havana",  # the clocks change at midnight
        pytest.param("Africa/Cairo", marks=pytest.mark.nightly),  # at the end of a Thursday
        pytest.param("Asia/Gaza", marks=pytest.mark.nightly),  # by the moon until 2086
        pytest.param("America/Nuuk", marks=pytest.mark.nightly),
        pytest.param("Africa/Monrovia", marks=pytest.mark.nightly),  # by 44 minutes and a half
        pytest.param("Etc/UTC", marks=pytest.mark.nightly),
        pytest.param("PST", marks=pytest.mark.nightly),
    ],
)
def test_rules_are_the_same_from_the_jvm_and_by_a_query_as_over_connect(spark, zone):
    told = rules_of_jvm(spark.sparkContext._jvm, zone)

    assert rules_of_server(spark, zone) == told
    assert len(told) < 4_200


def test_rules_are_asked_for_once_and_only_where_a_name_does_not_say_them(spark, monkeypatch):
    asked = []
    monkeypatch.setattr(session, "rules_of_jvm", lambda _jvm, zone: asked.append(zone) or b"rules")
    monkeypatch.setattr(session, "_rules_here", functools.cache(session._rules_here.__wrapped__))

    found = [session.rules_of(spark, it) for it in ["UTC", "+02:00", "Asia/Tokyo"] * 7]

    assert asked == ["Asia/Tokyo"]
    assert found == [None, None, b"rules"] * 7
