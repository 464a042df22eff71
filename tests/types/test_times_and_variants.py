# SPDX-License-Identifier: Apache-2.0
"""Results of type time and variant, compared with Spark's own functions."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.types.workers import VERSION, classic_udf

pytestmark = pytest.mark.spark

JSON = ['{"a": [1, 2.5, "x", null], "b": {}}', "7", '"text"', "null", "[]", None]
TIMES = [dt.time(12, 34, 56, 7), dt.time(0), dt.time(23, 59, 59, 999_999), None]


def variant(text: str | None) -> Any:
    from pyspark.sql.types import VariantVal

    return None if text is None else VariantVal.parseJson(text)


def time(at: int) -> dt.time | None:
    return TIMES[at]


def ways(frame: Any, column: str, kind: str, make: Any) -> list[list[Any]]:
    """Returns the values of a function by `udf`, and by ours in rows, columns and SQL."""
    ours = sa.async_udf(make, kind)
    frame.sparkSession.udf.register("ours", ours)
    oracle = frame.select(classic_udf(make, kind)(column))
    in_rows = sa.async_function(f"v {kind}")(lambda row: {"v": make(row[column])})
    found = [
        oracle,
        sa.ordered_wait(frame, in_rows).select("v"),
        frame.select(ours(column)),
        frame.selectExpr(f"ours({column})"),
    ]
    return [found_in(it, kind) for it in found]


def found_in(frame: Any, kind: str) -> list[Any]:
    assert frame.schema.fields[0].dataType.simpleString() == kind.replace("time", "time(6)")
    rows = frame.toDF("v").selectExpr("to_json(struct(v)) t" if "variant" in kind else "v")
    return [row[0] for row in rows.collect()]


def cases(spark: Any, values: list[Any], kind: str) -> Any:
    return spark.createDataFrame([(it,) for it in values], f"x {kind}").coalesce(1)


@pytest.mark.since_spark(4, 1)
def test_a_variant_is_the_one_that_the_function_returned(spark):
    oracle, *found = ways(cases(spark, JSON, "string"), "x", "variant", variant)
    assert len(oracle) == len(JSON)
    assert found == [oracle] * 3


@pytest.mark.since_spark(4, 1)
def test_variants_may_be_elements(spark):
    def both(text: str | None) -> Any:
        return [variant(text), None]

    oracle, *found = ways(cases(spark, JSON, "string"), "x", "array<variant>", both)
    assert found == [oracle] * 3


@pytest.mark.since_spark(4, 1)
def test_a_time_is_the_one_that_the_function_returned(spark):
    numbers = cases(spark, list(range(len(TIMES))), "int")
    _oracle, *found = ways(numbers, "x", "time", time) if VERSION >= (4, 2) else [TIMES] * 4
    assert found == [TIMES] * 3

    @sa.async_function
    async def annotated(row) -> Annotated[dt.time, "time"]:
        return dt.time(row["x"])

    out = sa.ordered_wait(numbers, annotated).select("annotated")
    assert found_in(out, "time") == [dt.time(at) for at in range(len(TIMES))]


@pytest.mark.since_spark(4, 1)
def test_a_service_has_times_as_spark_reads_them(spark):
    from tests.support.redis_server import RedisServer

    texts = ["12:34:56", "00:00:00", "23:59:59.999999", "1:2:3", "12:34", "24:00:00", "x", "12"]
    frame = cases(spark, texts, "string").select("x", F.col("x").alias("key"))
    with RedisServer() as server:
        server.load([["SET", f"t:{text}", text] for text in texts])
        ours = sa.redis.get(server.url, "t:{key}", "v time")
        found = sa.ordered_wait(frame, ours, on_error="null").select("v").collect()
    oracle = frame.selectExpr("try_cast(x as time)").collect()
    assert [row[0] for row in found] == [row[0] for row in oracle]


@pytest.mark.parametrize(
    ("kind", "since", "words"),
    [
        (
            "variant",
            (4, 0),
            "`v` has a variant, which needs Spark 4.0; return its JSON as a string",
        ),
        ("array<time>", (4, 1), "`v` has a time, which needs Spark 4.1; return it as a string"),
    ],
)
def test_a_type_that_this_spark_does_not_have_is_refused_with_the_one_that_has(
    spark, kind, since, words
):
    function = sa.async_function(f"v {kind}")(lambda row: None)
    if since > VERSION:
        with pytest.raises(sa.ConfigurationError, match=words):
            sa.ordered_wait(spark.range(3), function)
    else:
        assert "v" in sa.ordered_wait(spark.range(3), function).columns


@pytest.mark.since_spark(4, 0)
def test_what_is_not_a_variant_fails_its_row_and_says_what_to_return(spark):
    function = sa.async_function("v variant")(lambda row: {"v": {"a": 1}})
    out = sa.ordered_wait(spark.range(7), function, on_error="capture")
    messages = {row.error.message for row in out.select("error").collect()}
    assert len(messages) == 1
    assert "return a pyspark.sql.types.VariantVal" in messages.pop()
