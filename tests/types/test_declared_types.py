# SPDX-License-Identifier: Apache-2.0
"""A declared type is the type that Spark's own functions return for it, in each session."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import sparkawait as sa
from sparkawait._checks import warn_once
from tests.support.redis_server import RedisServer
from tests.support.sql_conf import sql_conf
from tests.types.workers import ZONES, classic_udf, zones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

WITHOUT_ZONE = {"spark.sql.timestampType": "TIMESTAMP_NTZ"}
NAIVE = dt.datetime.fromisoformat("2024-07-01T12:00:00.000001")
AWARE = dt.datetime.fromisoformat("2024-11-03T12:00:00+05:30")
DAYS = DayTimeIntervalType(0, 0)
Cases = list[tuple[Any, Any]]
"""Types, as a text or as Spark's own, each with a value."""


def all_ways(df: DataFrame, cases: Cases) -> list[DataFrame]:
    """Returns values by `udf`, and by all of ours, as columns of the types that were declared."""
    values = {f"v{at}": value for at, (_, value) in enumerate(cases)}
    declared = {f"v{at}": kind for at, (kind, _) in enumerate(cases)}
    texts = {name: kind for name, kind in declared.items() if isinstance(kind, str)}
    fields = [StructField(name, kind) for name, kind in declared.items() if name not in texts]

    def in_rows(names: Sequence[str]) -> Any:
        @sa.async_function
        async def in_row(_row):
            return {name: values[name] for name in names}

        return in_row

    def alone(value: Any, kind: Any) -> Any:
        @sa.async_udf(kind)
        async def one(_):
            return value

        return one("id")

    def udf(value: Any, kind: Any) -> Any:
        return classic_udf(lambda _: value, kind)("id")

    ddl = ", ".join(f"{name} {kind}" for name, kind in texts.items())
    schemas: list[Any] = [(list(texts), ddl), ([it.name for it in fields], StructType(fields))]
    waited, members = df, []
    for names, schema in schemas:
        if names:
            waited = sa.ordered_wait(waited, in_rows(names), schema=schema)
            row = sa.async_udf(in_rows(names), schema)("id")
            parts = [row] if len(names) == 1 else [row[name] for name in names]
            members += [it.alias(name) for it, name in zip(parts, names, strict=True)]
    return [
        df.select([udf(values[name], kind).alias(name) for name, kind in declared.items()]),
        waited.select(list(declared)),
        df.select([alone(values[name], kind).alias(name) for name, kind in declared.items()]),
        df.select(members).select(list(declared)),
    ]


def check_all_ways(df: DataFrame, cases: Cases) -> None:
    oracle, *ours = all_ways(df, cases)
    texts = [f"cast({name} as string)" for name in oracle.columns]
    shown = oracle.selectExpr(*texts).first()
    for way in ours:
        assert way.schema.simpleString() == oracle.schema.simpleString()
        assert way.selectExpr(*texts).first() == shown


DECLARED: Cases = [
    ("timestamp", NAIVE),
    ("timestamp", AWARE),
    ("timestamp_ltz", NAIVE),
    ("timestamp_ltz", AWARE),
    ("timestamp_ntz", AWARE),
    (TimestampType(), NAIVE),
    (TimestampNTZType(), NAIVE),
    ("array<timestamp>", [NAIVE, None, AWARE]),
    ("map<timestamp, array<timestamp_ltz>>", {AWARE: [AWARE]}),
    (ArrayType(TimestampType()), [NAIVE]),
    ("array<struct<t: timestamp, l: timestamp_ltz>>", [{"t": AWARE, "l": AWARE}, None]),
]


@pytest.mark.parametrize(("session", "worker"), ZONES, ids=lambda zone: zone)
def test_the_word_timestamp_is_what_the_session_takes_it_for(spark, session, worker):
    df = spark.range(1).coalesce(1)
    with zones(spark, session, worker):
        for settings in ({}, WITHOUT_ZONE) if session == "America/St_Johns" else (WITHOUT_ZONE,):
            with sql_conf(spark, settings):
                check_all_ways(df, DECLARED)


@sa.async_udf
async def annotated(_) -> dt.datetime:
    return NAIVE


@sa.async_udf
async def annotated_by_name(_) -> Annotated[dt.datetime, "timestamp"]:
    return NAIVE


def test_an_annotated_datetime_is_what_a_data_frame_is_made_of(spark):
    """The functions are older than the session's settings."""
    for settings in ({}, WITHOUT_ZONE):
        with sql_conf(spark, settings):
            (inferred,) = spark.createDataFrame([(NAIVE,)], ["v"]).schema
            out = spark.range(1).select(annotated("id"), annotated_by_name("id"))
            assert [field.dataType for field in out.schema] == [inferred.dataType] * 2


TIMES = ["2024-07-01T12:00:00Z", "2024-11-03 01:30:00.5", "2024-07-01 12:00:00+05:30", "2024-07-01"]


@pytest.mark.parametrize("settings", [{}, WITHOUT_ZONE], ids=["with-zone", "without-zone"])
def test_texts_and_documents_are_read_as_the_session_takes_timestamps(spark, settings):
    df = spark.createDataFrame(list(enumerate(TIMES)), "at long, text string").coalesce(1)
    with sql_conf(spark, settings):
        for zone in ("America/New_York", "Asia/Kolkata"):
            with sql_conf(spark, {"spark.sql.session.timeZone": zone}):
                assert_read_as_spark_does(df)


def assert_read_as_spark_does(df: DataFrame) -> None:
    documents = [f'{{"t": "{text}"}}' for text in TIMES]
    with RedisServer() as server:
        server.load([["SET", f"t{at}", it] for at, it in enumerate(TIMES)])
        server.load([["SET", f"d{at}", it] for at, it in enumerate(documents)])
        text = sa.redis.get(server.url, "t{at}", schema="v timestamp")
        json = sa.redis.get(server.url, "d{at}", schema="v struct<t: timestamp>")
        oracle = df.selectExpr("try_cast(text as timestamp)")
        of_json = df.selectExpr("""from_json(concat('{"t": "', text, '"}'), 't timestamp').t""")
        for ours, theirs, value in ((text, oracle, "v"), (json, of_json, "v.t")):
            waited = sa.ordered_wait(df, ours, on_error="null").selectExpr(value)
            column = df.select(sa.async_udf(ours, on_error="null")("at").alias("v")).selectExpr(
                value
            )
            for found in (waited, column):
                assert found.schema[0].dataType == theirs.schema[0].dataType
                assert found.collect() == theirs.collect()


COLLATED = "string collate utf8_lcase"


@sa.async_udf
async def annotated_text(_) -> Annotated[str, COLLATED]:
    return "Ab"


@pytest.mark.newest_spark
@pytest.mark.since_spark(4, 0)
def test_a_column_keeps_the_collation_that_was_declared(spark):
    text: Any = StringType
    cases = [
        (text("UTF8_LCASE"), "Ab"),
        (COLLATED, "Ab"),
        (f"array<{COLLATED}>", ["Ab"]),
        (ArrayType(text("UTF8_LCASE")), ["Ab"]),
        (MapType(StringType(), text("UTF8_LCASE")), {"k": "Ab"}),
        (f"map<string, array<struct<c: {COLLATED}>>>", {"k": [("Ab",)]}),
    ]
    found = "v0 = 'AB' and v1 = 'aB' and array_contains(v2, 'AB') and array_contains(v3, 'AB')"
    found += " and v4['k'] = 'AB' and v5['k'][0].c = 'AB'"
    oracle, *ours = all_ways(spark.range(3).coalesce(1), cases)
    for way in ours:
        assert way.schema.simpleString() == oracle.schema.simpleString()
        assert way.where(found).count() == oracle.where(found).count() == 3

    out = spark.range(1).select(annotated_text("id").alias("v"))
    assert out.where("v = 'AB'").count() == 1
    with pytest.raises(sa.ConfigurationError, match="collation"):
        spark.udf.register("annotated_text", annotated_text)


def test_an_interval_has_the_units_that_were_declared(spark):
    cases = [
        (DAYS, dt.timedelta(7)),
        (DayTimeIntervalType(1, 2), dt.timedelta(hours=49, minutes=-7)),
        ("interval second", dt.timedelta(seconds=-3, microseconds=7)),
        ("interval day to second", dt.timedelta(7, 7, 7)),
        ("array<interval hour>", [dt.timedelta(hours=49), None]),
        (MapType(DAYS, IntegerType()), {dt.timedelta(7): 1}),
        (
            "struct<d: interval day, m: map<string, interval minute>>",
            {"d": dt.timedelta(7), "m": {"a": dt.timedelta(minutes=61)}},
        ),
    ]
    check_all_ways(spark.range(1).coalesce(1), cases)


def test_services_have_intervals_from_days_to_seconds_only(spark):
    for declared in ("interval day", "array<struct<i: interval hour to minute>>"):
        function = sa.redis.get("redis://localhost", "{id}", schema=f"v {declared}")
        with pytest.raises(sa.ConfigurationError, match="interval day to second"):
            sa.ordered_wait(spark.range(1), function)


def test_a_value_of_a_user_defined_type_is_the_struct_inside(spark, caplog):
    """It passes as it is; `udf` sees the object."""
    warn_once.cache_clear()
    vectors = [Vectors.dense([1.5, -2.0]), None, Vectors.sparse(3, {1: 7.0})]
    schema = StructType([StructField("v", VectorUDT())])
    df = spark.createDataFrame([(it,) for it in vectors], schema).coalesce(1)

    @sa.async_function(StructType([StructField("w", VectorUDT())]))
    async def again(row):
        return {"w": row.v and Vectors.dense(row.v["values"])}

    @sa.async_udf(VectorUDT())
    async def made(values):
        return values and Vectors.dense(values)

    out = sa.ordered_wait(df, again)
    told = [it.message for it in caplog.records if "user-defined type VectorUDT" in it.message]
    assert len(told) == 1
    assert told[0].endswith("make it one by pyspark.ml.functions.array_to_vector")
    inside = VectorUDT().sqlType().simpleString()
    assert [field.dataType.simpleString() for field in out.schema] == ["vector", inside]
    rows = out.collect()
    assert [row.v for row in rows] == vectors
    assert [row.w and row.w["values"] for row in rows] == [[1.5, -2.0], None, [7.0]]
    arrays = spark.createDataFrame([([1.5, -2.0],), (None,), ([0.5],)], "a array<double>")
    found = [row.w for row in arrays.coalesce(1).select(made("a").alias("w")).collect()]
    assert [it and it["values"] for it in found] == [[1.5, -2.0], None, [0.5]]
    assert [it and tuple(it)[:3] for it in found] == [(1, None, None), None, (1, None, None)]
