# SPDX-License-Identifier: Apache-2.0
"""Expressions in the options of a column function, and functions that have options."""

import asyncio
from collections import Counter

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait import ConfigurationError, async_udf
from sparkawait.testing import simulated

pytestmark = pytest.mark.spark

ROWS = 120
called: Counter = Counter()


async def count_calls(number):
    """Says how often it was called for a row of the same rest."""
    called[number % 7] += 1
    await asyncio.sleep(0)
    return called[number % 7]


@sa.async_function("seen string")
async def see(row):
    return {"seen": ",".join(f"{name}={row[name]}" for name in row)}


def numbered(spark):
    return spark.range(ROWS, numPartitions=1).withColumn("name", F.lit("a"))


def rest():
    return F.col("id") % 7


@pytest.mark.parametrize("by_keyword", [False, True])
def test_a_function_of_values_has_an_expression_as_the_key_of_its_cache(spark, by_keyword):
    function = async_udf(count_calls, "long", cache=sa.Cache(key=rest()))
    column = function(number="id") if by_keyword else function("id")

    rows = numbered(spark).select("id", column.alias("calls")).collect()

    of_rest = {row.id % 7: row.calls for row in rows}
    assert all(row.calls == of_rest[row.id % 7] for row in rows)
    assert len(rows) == ROWS
    assert [of_rest[it] for it in range(7)] == [min(of_rest.values())] * 7


async def as_text(number) -> str:
    return str(number)


@pytest.mark.parametrize(
    ("function", "first"), [(as_text, "0"), (see, "id=0")], ids=["values", "row"]
)
def test_rows_are_grouped_by_a_function_that_has_an_expression(spark, function, first):
    by = async_udf(function, channel=rest())

    rows = numbered(spark).groupBy(by("id").alias("by")).count().collect()

    assert {row["count"] for row in rows} == {1}
    assert len(rows) == ROWS
    assert first in {row.by for row in rows}


def test_a_function_of_rows_does_not_see_the_column_of_an_expression(spark):
    channels = {"channel": ["id", rest()], "cache": sa.Cache(key=[F.upper("name"), "id"])}
    plain, hidden = async_udf(see), async_udf(see, **channels)
    named = async_udf(see, columns=["id", "given"], **channels)
    row = F.struct("id", "name")

    df = numbered(spark).select(
        plain("id", "name").alias("expected"),
        hidden("id", "name").alias("columns"),
        hidden(row).alias("row"),
        named("id", "name").alias("named"),
    )

    rows = df.collect()
    assert [row.expected for row in rows] == [f"id={it},name=a" for it in range(ROWS)]
    for found in ("columns", "row"):
        assert [row[found] for row in rows] == [row.expected for row in rows]
    assert [row.named for row in rows] == [f"id={it},given=a" for it in range(ROWS)]


def test_a_native_function_has_an_expression_as_its_channel(spark):
    ordinal = async_udf(simulated(), channel=rest())

    rows = numbered(spark).select(ordinal("id").alias("ordinal")).collect()

    assert [row.ordinal for row in rows] == list(range(ROWS))


def test_a_call_in_sql_has_no_place_for_an_expression(spark):
    function = async_udf(count_calls, "long", cache=sa.Cache(key=rest()))

    with pytest.raises(ConfigurationError, match="`cache` of `count_calls` is an expression, for"):
        spark.udf.register("count_calls", function)


def test_a_column_function_has_the_options_of_its_function_and_is_only_one(spark):
    with_options = see.with_options(on_error="null", cache=sa.Cache(key=rest()))

    rows = numbered(spark).select(async_udf(with_options)("id").alias("seen")).collect()

    assert len({row.seen for row in rows}) == 7
    with pytest.raises(ConfigurationError, match="a column function calls one function, got a li"):
        async_udf([see, see])
    with pytest.raises(ConfigurationError, match="`on_error` must not be 'drop'"):
        async_udf(see.with_options(on_error="drop"))
