# SPDX-License-Identifier: Apache-2.0
"""A column function takes columns, their names, and values that stand for themselves."""

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa

pytestmark = pytest.mark.spark

NOON = dt.datetime(2026, 3, 7, 12, 0, 7, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    "value",
    [2, 2.5, True, Decimal("7.31"), dt.date(2026, 3, 7), NOON, dt.timedelta(seconds=7), b"\x07"],
    ids=lambda it: type(it).__name__,
)
def test_a_value_stands_for_itself_as_a_literal_of_spark_does(spark, value):
    @sa.async_udf("string")
    async def show(number, value):
        return f"{number} {value!r}"

    rows = spark.range(3)
    found = rows.select(show("id", value).alias("found")).collect()
    expected = rows.select(show("id", F.lit(value)).alias("found")).collect()

    assert found == expected
    assert len({it.found for it in found}) == 3


def test_a_name_is_still_a_column(spark):
    @sa.async_udf("string")
    async def show(number, text):
        return f"{number} {text}"

    rows = spark.range(2).select("id", F.lit("seven").alias("word"))

    assert [it[0] for it in rows.select(show("id", "word")).collect()] == ["0 seven", "1 seven"]


@pytest.mark.parametrize("is_column", [False, True], ids=["names", "a column"])
def test_a_row_has_no_column_twice(spark, is_column):
    @sa.async_function("found string")
    async def show(row):
        return {"found": str(row)}

    with pytest.raises(sa.ConfigurationError, match="got column `id` twice; give it once"):
        sa.async_udf(show)("id", F.col("id") if is_column else "id")


def test_a_column_may_be_there_twice_where_columns_names_both(spark):
    @sa.async_function("found bigint")
    async def add(row):
        return {"found": 10 * row["a"] + row["b"]}

    rows = spark.range(3).select(sa.async_udf(add, columns=["a", "b"])("id", "id").alias("found"))

    assert [it.found for it in rows.collect()] == [0, 11, 22]


@pytest.mark.skipif(hasattr(F, "arrow_udf"), reason="since Spark 4.1 a struct arrives as it is")
@pytest.mark.parametrize("arguments", ["s", "id, s", "s, id"])
def test_a_struct_among_values_is_refused_in_sql_where_pandas_has_no_null_for_it(spark, arguments):
    async def shown(*values):
        return repr(values)

    spark.udf.register("shown", sa.async_udf("string")(shown))
    spark.range(3).createOrReplaceTempView("three")
    some = "(select id, if(id = 1, named_struct('a', 'x'), null) s from three)"
    with pytest.raises(Exception, match="is a struct, and a null one arrives as one whose members"):
        spark.sql(f"select shown({arguments}) from {some}").collect()  # noqa: S608
