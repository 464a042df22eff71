# SPDX-License-Identifier: Apache-2.0
"""Arguments of a column function arrive as they are, and results too: exactly, or refused."""

import os
import re
import time

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

import sparkawait as sa
from tests.support.sql_conf import sql_conf
from tests.types.cases import CASES, cases_of
from tests.types.paths import Path, Refused, Rule
from tests.types.workers import SESSION_ZONES

pytestmark = pytest.mark.spark

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
ZONES = ["UTC", "America/New_York", "Asia/Kolkata"]
UNSENT = "interval year to month"


def by_pandas(version):
    """Whether columns reach Python through pandas."""
    return version < (4, 1)


NOT_SENT = Rule(UNSENT, ".*", "refused", "PySpark does not send it as Arrow data")
UNDECLARED = Rule(
    "variant",
    ".*",
    "refused",
    "before Spark 4.1: an argument cannot be one; cast it to a string",
    versions=lambda version: (4, 0) <= version < (4, 1),
)
CELLS = tuple((case.type, case.name) for case in CASES)
NESTED = r"(array|map|struct).*"
PATHS = (
    Path(
        title="`async_udf` on columns",
        oracle="`udf`, and the argument itself",
        cells=CELLS,
        rules=(NOT_SENT, UNDECLARED),
        text=(
            "An argument that comes back as the result. A string that is not UTF-8 fails the row"
            " that reads it. Before Spark 4.1, arguments travel as JSON, since pandas would change"
            " them: keys of maps are numbers, booleans or strings, and a string that is not UTF-8"
            " has U+FFFD instead of each wrong byte, as in `udf`. A calendar `interval`, which"
            " `make_interval` makes, is a `MonthDayNano` of PyArrow from Spark 4.1 on, as in `udf`;"
            " the wait functions refuse it."
        ),
    ),
    Path(
        title="`async_udf` in SQL",
        oracle="`udf`, and the argument itself",
        cells=CELLS,
        rules=(
            NOT_SENT,
            UNDECLARED,
            Rule(
                "timestamp|timestamp_ntz",
                ".*",
                "refused",
                "before Spark 4.1: pandas does not tell them apart; cast it to a string",
                versions=by_pandas,
            ),
            Rule(
                NESTED,
                ".*",
                "refused",
                "before Spark 4.1: pandas changes values within; call the function on columns",
                versions=by_pandas,
            ),
            Rule(
                "tinyint|smallint|int|bigint|float|double",
                "null|NaN",
                "refused",
                "before Spark 4.1: pandas does not tell null from NaN, and rounds integers beside"
                " null; call the function on columns",
                versions=by_pandas,
            ),
        ),
        text="Registered by `spark.udf.register`.",
    ),
)


def echo_of(schema, zone):
    """A function whose result is its row, in a worker whose clock is in `zone`."""

    @sa.async_function(schema)
    async def echo(row):
        os.environ["TZ"] = zone
        time.tzset()
        return {name: row[name] for name in row}

    return sa.async_udf(echo)


def one_row(spark, cases):
    columns = ", ".join(f"{case.sql} as c{index}" for index, case in enumerate(cases))
    # Without the constants, which the plan would show, all 10 MB.
    return spark.sql(f"select {columns}").coalesce(1).localCheckpoint()


def declared(df):
    """The type of the result: what is in the row, all nullable."""
    fields = [field.jsonValue() | {"nullable": True} for field in df.schema.fields]
    return StructType.fromJson({"type": "struct", "fields": fields})


def outcomes_of(cases, ours, oracle):
    return [
        ((case.type, case.name), (ours[index], oracle[index])) for index, case in enumerate(cases)
    ]


def refused(call, message):
    """What becomes of a case that is refused by the call or by the query."""
    try:
        return call()
    except (sa.ConfigurationError, PySparkException) as error:
        found = str(error)
    assert re.search(message, found), found[-2000:]
    return Refused(found)


UNUSABLE = (UNSENT, "variant")


def refusals(spark, path, call, message):
    """The outcomes of one case of each type that the path refuses."""
    outcomes, seen = [], set()
    for case in cases_of(VERSION):
        rule = path.rule((case.type, case.name), VERSION)
        if rule is not None and rule.verdict == "refused" and (case.type, rule) not in seen:
            seen.add((case.type, rule))
            ours = refused(lambda case=case: call(spark, case), message)
            outcomes.append(((case.type, case.name), (ours, "a value")))
    return outcomes


def call_on_columns(spark, case):
    df = spark.sql(f"select {case.sql} as c").coalesce(1)
    return df.select(echo_of(df.schema, "UTC")("c")).collect()


def call_in_sql(spark, case):
    df = spark.sql(f"select {case.sql} as c").coalesce(1)
    spark.udf.register("echo_one", echo_of(declared(df), "UTC"))
    df.createOrReplaceTempView("one_case")
    return spark.sql("select echo_one(named_struct('c', c)) from one_case").collect()


@pytest.mark.parametrize("zone", SESSION_ZONES)
def test_values_of_columns(spark, in_zone, zone):
    in_zone(zone)
    cases = [it for it in cases_of(VERSION) if PATHS[0].rule((it.type, it.name), VERSION) is None]
    df = one_row(spark, cases)
    echo = echo_of(declared(df), ZONES[ZONES.index(zone) - 1])

    ours = df.select(echo(*df.columns).alias("r")).select("r.*").first()
    (as_row,) = df.select(echo(F.struct(*df.columns)).alias("r")).first()

    outcomes = outcomes_of(cases, ours, df.first())
    outcomes += outcomes_of(cases, as_row, df.first())
    if zone == "UTC":
        outcomes += refusals(
            spark, PATHS[0], call_on_columns, "Arrow|does not know|not a column list|not supported"
        )
        PATHS[0].check(outcomes, VERSION)
    else:
        assert [it for it in outcomes if repr(it[1][0]) != repr(it[1][1])] == []


@pytest.mark.parametrize("zone", SESSION_ZONES)
def test_values_in_sql(spark, in_zone, zone):
    in_zone(zone)
    cases = [it for it in cases_of(VERSION) if PATHS[1].rule((it.type, it.name), VERSION) is None]
    df = one_row(spark, cases)
    df.createOrReplaceTempView("cases")
    spark.udf.register("echo_all", echo_of(declared(df), ZONES[ZONES.index(zone) - 1]))
    members = ", ".join(f"'{name}', {name}" for name in df.columns)

    (ours,) = spark.table("cases").select(F.expr(f"echo_all(named_struct({members}))")).first()

    outcomes = outcomes_of(cases, ours, df.first())
    if zone == "UTC":
        outcomes += refusals(
            spark, PATHS[1], call_in_sql, "Arrow|does not know|not a column list|before Spark 4.1"
        )
        PATHS[1].check(outcomes, VERSION)
    else:
        assert [it for it in outcomes if repr(it[1][0]) != repr(it[1][1])] == []


def test_cells_are_those_of_the_wait_functions(spark):
    cases = [it for it in cases_of(VERSION) if it.type not in UNUSABLE and it.name != "10 MB"]
    df = one_row(spark, cases)

    @sa.async_function("shown string")
    async def show(row):
        return {"shown": repr(dict(row))}

    expected = sa.ordered_wait(df, show).first().shown
    on_columns = df.select(sa.async_udf(show)(*df.columns)).first()[0]

    assert on_columns == expected


def test_nulls_beside_values_change_nothing(spark):
    """Of each pair of rows one has nulls; a batch has both."""
    df = spark.sql(
        "select if(id % 2 = 0, 9223372036854775807L - id, null) as big,"
        " if(id % 3 = 0, null, if(id % 3 = 1, double('NaN'), -0.0D)) as wide,"
        " if(id % 2 = 0, array(9007199254740993L, null), null) as many,"
        " if(id % 2 = 0, named_struct('n', 9007199254740993L, 'at',"
        "   timestamp'2024-11-03 05:30:00 UTC'), null) as record from range(0, 40, 1, 2)"
    )

    out = df.select(echo_of(df.schema, "America/New_York")(*df.columns).alias("r"))

    assert repr(out.select("r.*").collect()) == repr(df.collect())


def test_texts_that_are_not_utf8_are_refused_where_they_are_read(spark):
    df = spark.sql("select cast(X'FF41' as string) as v, 7L as n")

    @sa.async_function("seen string")
    async def look(row):
        return {"seen": str(row["n"])}

    @sa.async_udf("string")
    async def read(v):
        return v

    assert df.select(sa.async_udf(look)("v", "n")).first()[0] == "7"
    column = df.select(read("v"))
    if by_pandas(VERSION):  # as JSON, in which it is what `udf` sees
        assert column.first()[0] == df.select(F.udf(lambda v: v, "string")("v")).first()[0]
    else:
        with pytest.raises(PySparkException, match="a text in this row that is not UTF-8"):
            column.collect()


def test_names_of_arguments_are_used_for_a_struct_too(spark):
    @sa.async_function("seen string")
    async def look(row):
        return {"seen": f"{list(row)} {row['s']['x']}"}

    df = spark.sql("select named_struct('x', 7) as s")

    assert df.select(sa.async_udf(look, columns=["s"])("s")).first()[0] == "['s'] 7"


def test_null_structs_with_members_that_are_not_null(spark):
    df = spark.sql(
        "select if(id = 0, null, named_struct('x', id, 'y', named_struct('z', 'a'))) as s"
        " from range(2)"
    ).coalesce(1)

    @sa.async_function("x bigint, z string")
    async def look(row):
        record = row.get("s", row)
        inner = None if record is None else record["y"]
        return {"x": record and record["x"], "z": inner and inner["z"]}

    for column in (sa.async_udf(look)("s"), sa.async_udf(look, columns=["s"])("s")):
        rows = df.select(column.alias("r")).select("r.*").collect()
        assert [tuple(row) for row in rows] == [(None, None), (1, "a")]


@pytest.mark.newest_spark
def test_null_variants_are_arguments(spark):
    if VERSION < (4, 1):
        return
    df = spark.sql("select cast(null as variant) as v, 1L as id")

    @sa.async_function("seen string")
    async def look(row):
        return {"seen": repr(row["v"])}

    assert df.select(sa.async_udf(look)("v", "id")).first()[0] == "None"


def test_no_result_is_not_a_struct_of_nulls(spark):
    @sa.async_function("a bigint, b double")
    async def only_even(row):
        return [] if row["id"] % 2 else {"a": None, "b": float("nan")}

    rows = spark.range(4).select(sa.async_udf(only_even)("id").alias("r")).collect()

    assert repr([row.r for row in rows]) == repr([rows[0].r, None, rows[2].r, None])
    assert repr(rows[0].r) == "Row(a=None, b=nan)"


def test_no_struct_as_result_in_sql(spark):
    @sa.async_function("a bigint, b double")
    async def nothing(row):
        return []

    spark.udf.register("nothing", sa.async_udf(nothing, columns=["id"]))
    query = spark.sql("select nothing(id) as r from range(1)")

    if by_pandas(VERSION):
        with pytest.raises(PySparkException, match="cannot return null for a struct"):
            query.collect()
    else:
        assert query.first().r is None


def test_times_need_the_parser_of_today(spark):
    if not by_pandas(VERSION):
        return
    df = spark.sql("select timestamp'2024-01-01' as at")
    echo = echo_of("at timestamp", "UTC")
    with (
        sql_conf(spark, {"spark.sql.legacy.timeParserPolicy": "LEGACY"}),
        pytest.raises(PySparkException, match="timeParserPolicy"),
    ):
        df.select(echo("at")).collect()


@pytest.mark.parametrize("nested", [False, True])
def test_months_are_refused_in_words_and_not_by_their_number_in_arrow(spark, nested):
    if by_pandas(VERSION):
        return
    months = "interval '1-2' year to month"
    df = spark.sql(f"select {f'array({months})' if nested else months} as m, 1L as id")

    @sa.async_function("seen string")
    async def of_row(row):
        return {"seen": "never"}

    @sa.async_udf("string")
    async def of_value(value):
        return "never"

    for column in (of_value("m"), sa.async_udf(of_row)("m", "id")):
        with pytest.raises(PySparkException, match="interval year to month, which PySpark does"):
            df.select(column).collect()


def test_a_calendar_interval_is_what_udf_has_and_the_wait_functions_refuse_it(spark):
    if by_pandas(VERSION):
        return
    df = spark.sql("select make_interval(1, 2, 0, 3, 4, 5, 6.5) as i")

    async def text(value) -> str:
        return repr(value)

    ours, theirs = sa.async_udf("string")(text), F.udf(repr, "string")
    row = df.select(ours("i").alias("ours"), theirs("i").alias("udf")).first()
    assert row.ours == row.udf == "MonthDayNano(months=14, days=3, nanoseconds=14706500000000)"
    with pytest.raises(sa.ConfigurationError, match="`i` has type interval, which PySpark cannot"):
        sa.ordered_wait(df, sa.async_function("y string")(text))
