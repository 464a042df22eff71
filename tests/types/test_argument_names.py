# SPDX-License-Identifier: Apache-2.0
"""Arguments of a column function, and members of structs in them, may have any name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import sparkawait as sa
from sparkawait.spark.before_4_1 import parse_type_text
from tests.types.workers import VERSION, classic_udf

NAMES = ["a.b", "a b", "a:b", "👩‍🚀", "a,b", "a<b", "a>b", "`", "b:int", "int", "1", "ä", "struct<"]
LEAVES = {"int": pa.int32(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}


def _named(names: list[str], of: type) -> StructType:
    return StructType([StructField(name, of()) for name in names])


@pytest.mark.spark
def test_names_of_columns_and_members_are_those_of_udf(spark):
    inner = _named(NAMES[::-1], IntegerType)
    schema = StructType([*_named(NAMES, StringType).fields, StructField("s t", inner)])
    values = (*map(str, range(len(NAMES))), tuple(range(len(NAMES))))
    nulls = (*[None] * len(NAMES), None)
    df = spark.createDataFrame([values, nulls], schema).coalesce(1)
    columns = ["`" + name.replace("`", "``") + "`" for name in df.columns]

    @sa.async_function("seen string")
    async def by_name(row):
        inner = row["s t"]
        return {"seen": repr([dict(row) | {"s t": inner and dict(inner)}])}

    @sa.async_udf("string")
    async def by_place(first, _unseen):
        return first

    oracle = classic_udf(lambda row: repr([row.asDict(recursive=True)]), "string")
    row = F.struct(*columns)
    out = df.select(
        oracle(row),
        sa.async_udf(by_name)(*columns),
        sa.async_udf(by_name)(row),
        by_place(columns[0], columns[-1]),
    ).collect()
    for wanted, as_columns, as_row, _ in out:
        assert as_columns == as_row == wanted
    assert [it[3] for it in out] == ["0", None]


@pytest.mark.spark
def test_a_name_that_reads_like_two_columns_is_refused_where_it_cannot_be_told(spark):
    df = spark.range(1).select(F.lit("v").alias("a:int,b"), F.lit(7).alias("c"))

    @sa.async_function("seen string")
    async def look(row):
        return {"seen": repr(dict(row))}

    out = df.select(sa.async_udf(look)("a:int,b", "c"))
    if VERSION >= (4, 1):
        assert out.first()[0] == "{'a:int,b': 'v', 'c': 7}"
    else:
        with pytest.raises(PySparkException, match="rename it"):
            out.collect()


@st.composite
def typed(draw, depth=2):
    """Draws a type as Spark writes it, and what it is."""
    kind = draw(st.sampled_from([*LEAVES, *["array", "map", "struct"] * (depth > 0)]))
    if kind == "array":
        text, inner = draw(typed(depth - 1))
        return f"array<{text}>", pa.list_(pa.field("element", inner))
    if kind == "map":
        text, inner = draw(typed(depth - 1))
        return f"map<int,{text}>", pa.map_(pa.int32(), inner)
    if kind == "struct":
        names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
        members = [(name, draw(typed(depth - 1))) for name in names]
        text = ",".join(f"{name}:{text}" for name, (text, _) in members)
        return f"struct<{text}>", pa.struct([(name, inner) for name, (_, inner) in members])
    return kind, LEAVES[kind]


@given(typed())
def test_a_type_is_read_whatever_names_are_in_it(drawn):
    text, wanted = drawn
    assert parse_type_text(text).equals(wanted)


def test_types_of_many_columns_are_read():
    members = [(f"c {at}", pa.int32()) for at in range(2000)]
    text = ",".join(f"{name}:int" for name, _ in members)
    assert parse_type_text(f"struct<{text}>") == pa.struct(members)


def test_a_type_that_arrow_does_not_carry_is_named():
    with pytest.raises(sa.ConfigurationError, match="variant"):
        parse_type_text("struct<a b:variant,c:int>")
