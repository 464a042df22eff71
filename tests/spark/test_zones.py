# SPDX-License-Identifier: Apache-2.0
"""The time zone of the session goes with every timestamp."""

import datetime as dt

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait.spark.schemas import conformed, with_zone
from sparkawait.spark.session import Times
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
