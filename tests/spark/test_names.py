# SPDX-License-Identifier: Apache-2.0
"""Names of columns are compared as Spark compares them, and captured errors can be told apart."""

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.exceptions import ErrorKind
from sparkawait.testing import simulated
from tests.support.sql_conf import sql_conf

pytestmark = pytest.mark.spark


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row["id"]}


@sa.async_function("halved bigint")
async def halve(row):
    if row["id"] % 2:
        raise LookupError
    return {"halved": row["id"] // 2}


@pytest.fixture
def case_sensitive(spark):
    with sql_conf(spark, {"spark.sql.caseSensitive": "true"}):
        yield


CLASHES = [
    ({"schema": "ID bigint"}, "`ID` is already a column of the input as `id`"),
    ({"schema": "a int, A int"}, "`A` is returned twice as `a`"),
    ({"on_error": sa.OnError(column="Id")}, "OnError('capture', column='..')"),
    ({"on_error": sa.OnError(column="DOUBLED")}, "column='..')"),
]


@pytest.mark.parametrize(("given", "message"), CLASHES, ids=repr)
def test_names_that_differ_in_case_only_clash(spark, given, message):
    with pytest.raises(sa.ConfigurationError) as info:
        sa.ordered_wait(spark.range(1), double, **given)
    assert info.value.kind is ErrorKind.COLUMN_CLASH
    assert message in str(info.value)


@pytest.mark.parametrize("given", [given for given, _ in CLASHES], ids=repr)
def test_they_are_two_columns_where_spark_tells_them_apart(spark, case_sensitive, given):
    @sa.async_function("doubled bigint")
    async def answer(row):
        return {"ID": row["id"], "a": 1, "A": 2, "doubled": 3}

    out = sa.ordered_wait(spark.range(3), answer, **given)

    assert [row[0] for row in out.select(F.col(out.columns[-1])).collect()] != []
    assert len({*out.columns}) == len(out.columns)


def test_input_columns_that_differ_in_case_only_pass(spark):
    odd = spark.range(2).withColumnRenamed("id", "x").selectExpr("x", "x as X", "x as id")

    assert sa.ordered_wait(odd, double).collect()[1].asDict()["doubled"] == 2


def test_captured_errors_of_calls_after_one_another_have_a_column_each(spark):
    numbers = spark.range(2, numPartitions=1)

    first = sa.ordered_wait(numbers, halve, on_error="capture")
    with pytest.raises(sa.ConfigurationError, match=r"give that another with .*\.OnError"):
        sa.ordered_wait(first, double, on_error="capture")
    both = sa.ordered_wait(first, double, on_error=sa.OnError(column="doubled_error"))

    assert both.columns == ["id", "halved", "error", "doubled", "doubled_error"]
    rows = both.collect()
    assert [row.error is None for row in rows] == [True, False]
    assert [row.doubled_error for row in rows] == [None, None]


def test_a_column_function_names_the_field_of_its_error(spark):
    named = sa.async_udf(halve, on_error=sa.OnError(column="why"))

    rows = spark.range(2).select(named("id").alias("r")).select("r.*").collect()

    assert [row.why is None for row in rows] == [True, False]
    assert rows[0].halved == 0


@pytest.mark.parametrize("mode", ["ordered_wait", "unordered_wait"])
def test_explain_names_the_function(spark, capsys, mode):
    getattr(sa, mode)(spark.range(1), simulated()).explain()
    getattr(sa, mode)(spark.range(1), halve).explain()

    shown = capsys.readouterr().out
    assert "MapInArrow Simulated(" in shown
    assert "MapInArrow halve(" in shown
