# SPDX-License-Identifier: Apache-2.0
"""Columns of every type pass untouched, and functions can return every type."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StringType, StructField, StructType

import sparkawait as sa

pytestmark = pytest.mark.spark

# name: type, two values in SQL
TYPES = {
    "flag": ("boolean", "true", "false"),
    "tiny": ("tinyint", "-128Y", "127Y"),
    "small": ("smallint", "-32768S", "1S"),
    "number": ("int", "-1", "2147483647"),
    "big": ("bigint", "9007199254740993L", "-1L"),
    "real": ("float", "1.5F", "float('nan')"),
    "wide": ("double", "0.1D", "double('-infinity')"),
    "money": ("decimal(38,18)", "cast(1.25 as decimal(38,18))", "cast(0 as decimal(38,18))"),
    "text": ("string", "'naïve 日本'", "''"),
    "bytes": ("binary", "X'00FF'", "X''"),
    "day": ("date", "date'1582-10-15'", "date'9999-12-31'"),
    "moment": ("timestamp", "timestamp'2024-07-01 12:00:00.000001'", "timestamp'1950-01-01'"),
    "wall": ("timestamp_ntz", "timestamp_ntz'2024-03-31 02:30:00'", "timestamp_ntz'1900-01-01'"),
    "span": (
        "interval day to second",
        "interval '1 02:03:04.000005' day to second",
        "interval '0' day",
    ),
    "list": ("array<int>", "array(1, null, 3)", "array()"),
    "table": ("map<string,array<int>>", "map('a', array(1), 'b', null)", "map()"),
    "record": (
        "struct<x: bigint, inner: struct<y: array<struct<z: timestamp>>>>",
        (
            "named_struct('x', 1L, 'inner', named_struct('y', array("
            "named_struct('z', timestamp'2024-01-01'))))"
        ),
        "named_struct('x', null, 'inner', null)",
    ),
}


@pytest.fixture(scope="module")
def every_type(spark):
    """Three rows: two with values, and one of nulls."""

    def row(index, *values):
        columns = ", ".join(
            f"cast({value} as {TYPES[name][0]}) as {name}" for name, value in values
        )
        return spark.sql(f"select {index} as id, {columns}")

    first = row(1, *((name, kind[1]) for name, kind in TYPES.items()))
    second = row(2, *((name, kind[2]) for name, kind in TYPES.items()))
    nulls = row(3, *((name, "null") for name in TYPES))
    return first.union(second).union(nulls).coalesce(1)


@sa.async_function("ok boolean")
async def accept(row):
    return {"ok": True}


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_input_columns_of_every_type_pass_untouched(every_type, wait):
    out = wait(every_type, accept)

    assert out.drop("ok").schema == every_type.schema
    assert repr(out.drop("ok").orderBy("id").collect()) == repr(every_type.collect())


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_functions_return_every_type(every_type, wait):
    schema = StructType([field for field in every_type.schema if field.name != "id"])

    @sa.async_function(schema)
    async def echo(row):
        return {name: row[f"given_{name}"] for name in schema.names}

    given = every_type.toDF(*(f"given_{name}" for name in every_type.columns))
    out = given.transform(wait, echo).select(schema.names)

    assert out.schema.simpleString() == schema.simpleString()
    assert sorted(map(repr, out.collect())) == sorted(map(repr, every_type.drop("id").collect()))


def test_cells_arrive_as_python_values(every_type):
    @sa.async_function("seen string")
    async def look(row):
        return {
            "seen": repr({name: row[name] for name in ("big", "money", "bytes", "day", "wall")})
        }

    seen = sa.ordered_wait(every_type, look).first().seen

    assert eval(seen, {"Decimal": Decimal, "datetime": dt}) == {  # noqa: S307 - a repr of our own
        "big": 9007199254740993,
        "money": Decimal("1.25"),
        "bytes": b"\x00\xff",
        "day": dt.date(1582, 10, 15),
        "wall": dt.datetime.fromisoformat("2024-03-31 02:30"),
    }


def test_timestamps_mean_the_same_moment_whatever_the_time_zone(spark):
    moment = spark.sql("select timestamp'2024-07-01 12:00:00 UTC' as at")

    @sa.async_function("utc string, back timestamp")
    async def show(row):
        return {
            "utc": row["at"].astimezone(dt.timezone.utc).isoformat(),
            "back": row["at"],
        }

    row = sa.ordered_wait(moment, show).select("utc", F.col("back") == F.col("at")).first()

    assert tuple(row) == ("2024-07-01T12:00:00+00:00", True)


@pytest.mark.parametrize(
    ("declared", "expected", "value"),
    [
        (pa.timestamp("ns", "UTC"), "timestamp", dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)),
        (pa.timestamp("ms"), "timestamp_ntz", dt.datetime.fromisoformat("2024-01-01")),
        (pa.large_string(), "string", "text"),
        (pa.large_binary(), "binary", b"bytes"),
        (pa.duration("s"), "interval day to second", dt.timedelta(seconds=90)),
    ],
    ids=str,
)
def test_results_of_arrow_types_that_spark_does_not_read_are_converted(
    spark, declared, expected, value
):
    @sa.async_function(pa.schema([("result", declared)]))
    async def answer(row):
        return {"result": value}

    out = sa.ordered_wait(spark.range(1), answer)

    assert out.schema["result"].dataType.simpleString() == expected
    assert out.first() is not None


@pytest.mark.since_spark(4, 0)
def test_large_variable_types_pass(spark, every_type):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        out = every_type.transform(sa.ordered_wait, accept)
        assert repr(out.drop("ok").collect()) == repr(every_type.collect())
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


@pytest.mark.since_spark(4, 0)
def test_variants_pass(spark):
    variants = spark.sql("select parse_json('{\"a\": [1, 2]}') as value")

    row = sa.ordered_wait(variants, accept).select(F.to_json("value")).first()

    assert row[0] == '{"a":[1,2]}'


def test_metadata_of_input_columns_is_kept(spark):
    schema = StructType([StructField("name", StringType(), False, {"comment": "who", "x": 1})])
    people = spark.createDataFrame([("Ada",)], schema)

    out = sa.ordered_wait(people, accept)

    assert out.schema["name"] == schema["name"]


def test_comments_of_returned_columns_are_kept(spark):
    @sa.async_function("age int comment 'in years'")
    async def age(row):
        return {"age": 36}

    assert sa.ordered_wait(spark.range(1), age).schema["age"].metadata == {"comment": "in years"}


def test_columns_with_dots_and_names_that_differ_in_case_pass(spark):
    odd = spark.createDataFrame([(1, 2, 3)], "`a.b` int, `C``` int, c int")

    @sa.async_function("names string")
    async def names(row):
        return {"names": " ".join(row)}

    out = sa.ordered_wait(odd.toDF("a.b", "C", "c"), names)

    assert out.columns == ["a.b", "C", "c", "names"]
    assert tuple(out.first()) == (1, 2, 3, "a.b C c")


def test_a_column_that_cannot_be_sent_is_named(spark):
    months = spark.sql("select interval '1' month as period")

    with pytest.raises(
        sa.ConfigurationError, match="column `period` has type interval month"
    ) as info:
        sa.ordered_wait(months, accept)
    assert info.value.kind is sa.exceptions.ErrorKind.INPUT_INVALID


def test_a_returned_type_that_spark_does_not_know_is_named(spark):
    @sa.async_function(pa.schema([("count", pa.uint64())]))
    async def count(row):
        return {"count": 1}

    with pytest.raises(sa.ConfigurationError, match="returned column `count` has type uint64"):
        sa.ordered_wait(spark.range(1), count)
    wide = pa.schema([("sum", pa.decimal256(50, 2))])
    with pytest.raises(sa.ConfigurationError, match="returned column `sum` has type decimal256"):
        sa.ordered_wait(spark.range(1), count, schema=wide)
