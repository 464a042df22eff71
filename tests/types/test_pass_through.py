# SPDX-License-Identifier: Apache-2.0
"""Columns of the input come out as they went in, whatever is called beside them."""

import json

import pyspark
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

import sparkawait as sa
from tests.types.cases import CASES, cases_of
from tests.types.paths import Path, Refused, Rule
from tests.types.workers import SESSION_ZONES

pytestmark = pytest.mark.spark

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
UNSENT = "interval year to month"
BAD = "cast(X'FF41' as string)"
NOT_UTF8 = {
    "string": (BAD, "v"),
    "array<string>": (f"array('a', {BAD})", "v[1]"),
    "map<string,string>": (f"map('k', 'v', {BAD}, 'w')", "map_keys(v)[1]"),
    "struct<t: string, n: int>": (f"named_struct('t', {BAD}, 'n', 1)", "v.t"),
}
"""Values with a text that is not UTF-8, and where in them it is."""
PATHS = (
    Path(
        title="Columns that pass through",
        oracle="the input itself",
        cells=(
            *((case.type, case.name) for case in CASES),
            *((kind, "not UTF-8") for kind in NOT_UTF8),
        ),
        rules=(
            Rule(
                UNSENT,
                ".*",
                "refused",
                "PySpark does not send it as Arrow data; cast it to a string, and back after",
            ),
        ),
        text=(
            "Names, nullability and metadata are kept, those of nested fields included. So are"
            " collations, and the bytes of a string that is not UTF-8."
        ),
    ),
)
WAITS = {
    "ordered": sa.ordered_wait,
    "unordered": sa.unordered_wait,
    "key_ordered": lambda df, function: sa.key_ordered_wait(df, function, key="c0"),
}


@sa.async_function("ok boolean")
async def accept(row):
    return {"ok": True}


@sa.async_function("ok boolean")
async def read_all(row):
    return {"ok": len(dict(row)) > 0}


def every_case(spark):
    """One row with a column for each case; a case without values of its type is a batch of such."""
    cases = [case for case in cases_of(VERSION) if case.type != UNSENT]
    columns = ", ".join(f"{case.sql} as c{index}" for index, case in enumerate(cases))
    # Without the constants, which the plan would show, all 10 MB.
    return cases, spark.sql(f"select {columns}").coalesce(1).localCheckpoint()


@pytest.mark.parametrize("zone", SESSION_ZONES)
@pytest.mark.parametrize("wait", WAITS)
def test_values_and_types_of_columns_that_pass(spark, in_zone, zone, wait):
    in_zone(zone)
    cases, df = every_case(spark)

    out = WAITS[wait](df, read_all if zone == "UTC" else accept)

    assert out.drop("ok").schema == df.schema
    (ours,), (oracle,) = out.collect(), df.collect()
    outcomes = [
        ((case.type, case.name), (ours[index], oracle[index])) for index, case in enumerate(cases)
    ]
    months = spark.sql("select interval '1-2' year to month as m")
    with pytest.raises(sa.ConfigurationError, match=UNSENT):
        sa.ordered_wait(months, accept)
    outcomes += [
        ((case.type, case.name), (Refused(), case.sql)) for case in CASES if case.type == UNSENT
    ]
    PATHS[0].check([*outcomes, *texts_that_are_not_utf8(spark, wait)], VERSION)


def texts_that_are_not_utf8(spark, wait):
    """What is left of each, beside a row without any in the same batch."""
    columns = [f"if(id = 1, {sql}, null) as v{at}" for at, (sql, _) in texts()]
    text = f"if(id = 0, 'ä', {BAD}) as t"
    df = spark.range(0, 2, 1, 1).selectExpr("id as c0", text, *columns)
    bytes_of = [f"cast({place} as binary)" for _, (_, place) in texts()]

    def seen(frame):
        rows = frame.selectExpr("c0", "cast(t as binary)", *bytes_of).collect()
        return dict(zip((0, 1), sorted(rows), strict=True))

    ours, oracle = seen(WAITS[wait](df, accept)), seen(df)
    assert (ours[0], ours[1].t) == (oracle[0], b"\xffA")
    for at, (kind, _) in enumerate(NOT_UTF8.items()):
        yield (kind, "not UTF-8"), (ours[1][2 + at], oracle[1][2 + at])


def texts():
    return enumerate(
        (sql, place.replace("(v)", f"(v{at})") if "(v)" in place else f"v{at}{place[1:]}")
        for at, (sql, place) in enumerate(NOT_UTF8.values())
    )


def test_texts_that_are_not_utf8_can_be_repaired(spark):
    text = "cast(X'FF41' as string)"
    before = f"decode(cast({text} as binary), 'UTF-8')"
    texts = spark.range(1).select(
        F.expr(before if VERSION < (4, 0) else f"make_valid_utf8({text})").alias("v")
    )

    assert sa.ordered_wait(texts, accept).first().v == "\ufffdA"


def test_metadata_and_nullability_of_nested_fields_are_kept(spark):
    wanted = {"comment": "deep", "unit": "m"}

    def field(name, kind, *, nullable=False):
        return {"name": name, "type": kind, "nullable": nullable, "metadata": wanted}

    struct = {"type": "struct", "fields": [field("x", "integer"), field("y", "string")]}
    array = {"type": "array", "elementType": struct, "containsNull": False}
    entries = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": False}
    fields = [field("s", struct), field("a", array), field("m", entries)]
    schema = StructType.fromJson({"type": "struct", "fields": fields})
    df = spark.createDataFrame([((1, "a"), [(2, "b")], {"k": [(3, "c")]})], schema)

    for wait in (sa.ordered_wait, sa.unordered_wait):
        out = wait(df, accept)
        assert json.loads(out.schema.json())["fields"][:3] == fields
        assert out.drop("ok").collect() == df.collect()


def test_char_and_varchar_columns_of_a_table_keep_what_they_are(spark, tmp_path):
    spark.sql(
        f"create table sized (c char(5) comment 'code', v varchar(5)) using parquet"
        f" location '{tmp_path}'"
    )
    try:
        spark.sql("insert into sized values ('ab', 'ab')")
        df = spark.table("sized")
        out = sa.ordered_wait(df, accept)
        assert out.drop("ok").schema.json() == df.schema.json()
        assert out.drop("ok").collect() == df.collect()
    finally:
        spark.sql("drop table sized")


def test_rows_without_columns_are_rows(spark):
    nothing = spark.range(120, numPartitions=2).select()

    @sa.async_function("cells int")
    async def count(row):
        return {"cells": len(row)}

    out = sa.ordered_wait(nothing, count)

    assert out.columns == ["cells"]
    assert [row.cells for row in out.collect()] == [0] * 120
    assert sa.ordered_wait(nothing, count, channel=F.lit(1)).count() == 120


@pytest.mark.newest_spark
def test_collations_are_kept_and_returned(spark):
    df = spark.sql("select 'aB' collate utf8_lcase as v, array('x' collate unicode_ci) as a")
    declared = (
        "w string collate utf8_lcase not null comment 'c', l array<string collate unicode_ci>,"
        " m map<string collate utf8_lcase, string>, s struct<t: string collate utf8_lcase>"
    )

    @sa.async_function(declared)
    async def answer(row):
        return {"w": "Xy", "l": ["a"], "m": {"K": "v"}, "s": {"t": "T"}}

    out = sa.ordered_wait(df, answer)

    expected = StructType([*df.schema.fields, *StructType.fromDDL(declared).fields])
    assert out.schema.json() == expected.json()
    assert out.where("v = 'AB' and w = 'xY' and l[0] = 'A' and s.t = 't'").count() == 1
    by_struct_type = sa.ordered_wait(df, answer, schema=StructType.fromDDL(declared))
    assert by_struct_type.schema.json() == expected.json()
    column = df.select(sa.async_udf(answer)("v").alias("r")).where("r.w = 'xY'")
    assert column.count() == 1


def test_collations_that_spark_does_not_have_are_refused(spark):
    if VERSION >= (4, 0):
        return
    with pytest.raises(sa.ConfigurationError, match="needs Spark 4"):
        sa.ordered_wait(spark.range(1), accept, schema="ok string collate utf8_lcase")
