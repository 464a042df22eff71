# SPDX-License-Identifier: Apache-2.0
"""A bare ``async def`` as a column function is what Spark's `udf` is to a plain function."""

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import ArrayType, IntegerType, LongType, StructField, StructType

import sparkawait as sa
from sparkawait.testing import LookupServer

pytestmark = pytest.mark.spark


def asynchronous(function):
    """Returns the same function, to be awaited, under the same name."""
    import functools

    @functools.wraps(function)
    async def call(*values, **named):
        return function(*values, **named)

    return call


@pytest.fixture(scope="module")
def rows(spark):
    data = [(1, "a", None, [1]), (2, None, 2.5, []), (3, "c", 0.0, None)]
    return spark.createDataFrame(data, "n long, s string, x double, l array<int>").coalesce(1)


def add(a, b):
    return None if a is None or b is None else a + b


def shout(s, times=1):
    return None if s is None else s.upper() * times


def both(n, s):
    return {"n": n, "s": s}


def kind(*values):
    return ",".join(type(value).__name__ for value in values)


CALLS = {
    "two columns": (add, "double", lambda f: f("n", F.col("x"))),
    "one column": (shout, "string", lambda f: f(F.col("s"))),
    "an expression": (add, "long", lambda f: f(F.col("n") * 2, F.lit(1))),
    "the same column twice": (add, "long", lambda f: f("n", "n")),
    "kinds of values": (kind, "string", lambda f: f("n", "s", "x", "l")),
    "a struct as a value": (lambda v: v["n"], "long", lambda f: f(F.struct("n", "s"))),
    "a type object": (add, LongType(), lambda f: f("n", "n")),
    "an array": (lambda n: [n, None], ArrayType(LongType()), lambda f: f("n")),
    "an empty array": (lambda n: [], "array<long>", lambda f: f("n")),
    "a map": (lambda n: {"k": n}, "map<string, long>", lambda f: f("n")),
    "a date": (lambda n: dt.date(2024, 1, n), "date", lambda f: f("n")),
    "a decimal": (lambda n: Decimal(n) / 4, "decimal(10,2)", lambda f: f("n")),
    "nothing": (lambda n: None, "long", lambda f: f("n")),
    "columns": (both, "n long, s string", lambda f: f("n", "s")),
    "one column in a struct": (lambda n: {"n": n}, "n long", lambda f: f("n")),
    "a struct type": (
        both,
        StructType().add("n", "long").add("s", "string"),
        lambda f: f("n", "s"),
    ),
    "a struct in text": (both, "struct<n: long, s: string>", lambda f: f("n", "s")),
    "a null struct": (lambda n: None, "n long, s string", lambda f: f("n")),
    "within an expression": (add, "long", lambda f: f("n", "n") + 1),
}


@pytest.mark.parametrize(("function", "returns", "call"), CALLS.values(), ids=CALLS)
def test_a_call_gives_what_sparks_own_does(rows, function, returns, call):
    expected = rows.select("n", call(F.udf(function, returns)).alias("r"))
    found = rows.select("n", call(sa.async_udf(asynchronous(function), returns)).alias("r"))

    assert found.schema["r"].dataType == expected.schema["r"].dataType
    assert found.orderBy("n").collect() == expected.orderBy("n").collect()


@pytest.mark.nightly  # a plain function is read and written by the same code
@pytest.mark.parametrize(("function", "returns", "call"), CALLS.values(), ids=CALLS)
def test_a_call_of_a_plain_function_gives_what_sparks_own_does(rows, function, returns, call):
    expected = rows.select("n", call(F.udf(function, returns)).alias("r"))
    found = rows.select("n", call(sa.async_udf(function, returns)).alias("r"))

    assert found.schema["r"].dataType == expected.schema["r"].dataType
    assert found.orderBy("n").collect() == expected.orderBy("n").collect()


@pytest.mark.since_spark(4, 0)
@pytest.mark.parametrize(
    "call",
    [
        lambda f: f("s", times=F.lit(2)),
        lambda f: f(s="s", times=F.lit(2)),
        lambda f: f(s=F.col("s")),
    ],
    ids=["last", "all", "one"],
)
def test_arguments_have_names_as_in_sparks_own(rows, call):
    expected = rows.select(call(F.udf(shout)).alias("r")).collect()

    assert (
        rows.select(call(sa.async_udf(asynchronous(shout), "string")).alias("r")).collect()
        == expected
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f("n", F.col("x")),
        lambda f: f(F.col("n") + 1, "x"),
        lambda f: f(F.expr("n+1"), F.upper("s")),
        lambda f: f(F.lit("it's 7"), F.col("n").cast("string")),
        lambda f: f(F.when(F.col("n") > 7, F.lit(None)), F.lit(b"\x0d")),
        lambda f: f(F.udf(shout)("s"), F.col("x").alias("a b")),
    ],
    ids=["columns", "operator", "text", "literal", "condition", "function"],
)
def test_a_column_is_called_as_one_of_sparks_own(rows, call):
    expected = rows.select(call(F.udf(add, "double"))).columns

    assert rows.select(call(sa.async_udf(asynchronous(add), "double"))).columns == expected


def test_a_registered_function_is_called_by_sql(spark, rows):
    rows.createOrReplaceTempView("shape_rows")
    own = F.udf(add, "double")
    ours = sa.async_udf(asynchronous(add), "double")

    registered = spark.udf.register("shape_own", own), spark.udf.register("shape_ours", ours)

    query = "SELECT n, {}(n, cast(n * 1.5 as double)) AS r FROM shape_rows ORDER BY n"
    expected = spark.sql(query.format("shape_own")).collect()
    assert spark.sql(query.format("shape_ours")).collect() == expected
    # What is returned is called on columns, under the name that it was registered by.
    own, ours = (rows.select(it("n", F.col("n") * 1.5)) for it in registered)
    assert ours.collect() == own.collect()
    assert [ours.columns[0].replace("ours", "own")] == own.columns


async def doubled(n: int) -> int:
    """Twice as many."""
    return 2 * n


@pytest.mark.parametrize(
    "made",
    [
        lambda: sa.async_udf(doubled),
        lambda: sa.async_udf()(doubled),
        lambda: sa.async_udf("long")(doubled),
        lambda: sa.async_udf(LongType())(doubled),
        lambda: sa.async_udf(doubled, "long"),
        lambda: sa.async_udf(doubled, LongType(), timeout="5s"),
        lambda: sa.async_udf(timeout="5s")(doubled),
        lambda: sa.async_udf("long", options=sa.WaitOptions(timeout="5s"))(doubled),
        lambda: sa.async_udf(schema="long")(doubled),
    ],
    ids=map(str, range(9)),
)
def test_it_is_a_decorator_with_and_without_arguments(rows, made):
    udf = made()

    assert [row.r for row in rows.select(udf("n").alias("r")).collect()] == [2, 4, 6]
    assert (udf.__name__, udf.__doc__) == ("doubled", "Twice as many.")
    assert udf.returnType == LongType()


def test_a_function_of_rows_may_return_a_plain_type_too(rows):
    @sa.async_function
    async def known(row) -> int:
        return row.n

    @sa.async_function("ignored string")
    async def also(row):
        return row.n

    for udf in (sa.async_udf(known), sa.async_udf(also, "long")):
        assert [row.r for row in rows.select(udf("n").alias("r")).collect()] == [1, 2, 3]


def test_a_fallback_gets_the_same_values(rows):
    import asyncio

    async def never(n, s):
        await asyncio.Event().wait()

    late = sa.async_udf(never, "string", timeout="10ms", on_timeout=lambda n, s: f"late {n}")
    least = sa.async_udf(never, "long", timeout="10ms", on_timeout=-1)

    found = rows.select(late("n", "s").alias("a"), least("n", "s").alias("b")).collect()
    assert [tuple(row) for row in found] == [("late 1", -1), ("late 2", -1), ("late 3", -1)]


def test_places_are_the_names_of_values_for_the_cache(spark, calls):
    async def tell(n, s):
        calls.add(s)
        return s

    rows = spark.createDataFrame([(1, "a"), (2, "b"), (3, "a")], "n long, s string").coalesce(1)
    told = sa.async_udf(tell, "string", cache=sa.Cache(key="1"), channel="0")

    assert [row.r for row in rows.select(told("n", "s").alias("r")).collect()] == ["a", "b", "a"]
    assert calls.counts() == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sa.async_udf(asynchronous(add)), "`add` has no type; use @async_udf"),
        (lambda: sa.async_udf(F.udf(add), "long"), "`add` is a function of columns; give the"),
        (lambda: sa.async_udf("longest")(doubled), "longest"),
        (lambda: sa.async_udf(5), "`int` must be a function of a row"),
        (
            lambda: sa.async_udf(doubled, columns=["n"]),
            "`columns` names the arguments of a function",
        ),
        (lambda: sa.async_udf(doubled, "long")(*[]), "cannot be called with these 0 columns"),
        (lambda: sa.async_udf(doubled)("n", "x"), "too many positional arguments"),
        (lambda: sa.async_udf(doubled)("n", m="x"), "unexpected keyword argument"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_a_wrong_use_is_refused_where_it_is_made(spark, make, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        make()


# -- native functions


@pytest.fixture(scope="module")
def customers():
    table = {str(n): {"name": f"name {n}", "age": n} for n in range(0, 100, 2)}
    with LookupServer({"customers": table}) as server:
        yield server.url + "/customers/{id}"


def test_a_native_function_is_a_column(spark, customers):
    look_up = sa.async_udf(
        sa.http.get(customers, "name string, age int", client=sa.http.Client(proxy=False))
    )

    found = spark.range(100, numPartitions=2).withColumnRenamed("id", "n")
    found = found.select("n", look_up("n").alias("r")).orderBy("n").collect()

    assert len(found) == 100
    # The server has the even ones.
    assert [row.n for row in found if row.r is None] == list(range(1, 100, 2))
    answers = [(row.r.name, row.r.age) for row in found if row.r is not None]
    assert answers == [(f"name {n}", n) for n in range(0, 100, 2)]


def test_a_native_function_with_one_column_is_that_column_in_sql_too(spark, customers):
    look_up = sa.async_udf(
        sa.http.get(customers, "name string", client=sa.http.Client(proxy=False))
    )
    spark.udf.register("look_up_name", look_up)

    rows = spark.sql("SELECT id, look_up_name(id) AS name FROM range(4) ORDER BY id").collect()

    assert [row.name for row in rows] == ["name 0", None, "name 2", None]
    assert look_up.returnType.simpleString() == "string"


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_row_that_an_inner_lookup_drops_is_null(spark, customers, step):
    look_up = sa.async_udf(
        sa.http.get(customers, "age int", how="inner", client=sa.http.Client(proxy=False))
    )

    found = spark.range(1, 98, step, numPartitions=2)
    found = found.select("id", look_up("id").alias("age")).orderBy("id").collect()

    assert [row.age for row in found] == [it.id if it.id % 2 == 0 else None for it in found]


def test_several_results_of_a_row_are_refused(spark):
    table = {"a": [{"x": 1}, {"x": 2}]}
    with LookupServer({"t": table}) as server:
        many = sa.async_udf(
            sa.http.get(server.url + "/t/{k}", "x int", client=sa.http.Client(proxy=False))
        )
        rows = spark.createDataFrame([("a",)], "k string")
        with pytest.raises(Exception, match="must return one result per row, got several"):
            rows.select(many("k")).collect()


def test_failures_of_a_native_function_can_be_captured(spark):
    look_up = sa.async_udf(
        sa.http.get("http://localhost:1/{id}", "age int", client=sa.http.Client(proxy=False)),
        on_error="capture",
    )

    row = spark.range(1).select(look_up("id").alias("r")).first()

    assert row.r.age is None
    assert row.r.error.attempts == 4


def test_the_type_of_a_field_is_kept(rows):
    wanted = StructType([StructField("a", IntegerType()), StructField("b", ArrayType(LongType()))])

    async def make(n):
        return {"a": n, "b": [n]}

    found = rows.select(sa.async_udf(make, wanted)("n").alias("r"))
    assert found.schema["r"].dataType == F.udf(make, wanted).returnType
    assert [row.r.b for row in found.collect()] == [[1], [2], [3]]


def test_of_the_tuning_a_column_has_what_spark_leaves_open(spark):
    async def double(n):
        return 2 * n

    output = sa.Tuning(max_bytes=211, target_latency="7ms")
    twice = sa.async_udf(double, "long", tuning=output)
    rows = spark.range(13).select(twice("id").alias("n")).collect()
    assert [row.n for row in rows] == [2 * n for n in range(13)]

    for cut in ({"buffer_timeout": None}, {"max_rows": 7}, {"warm_up": False}):
        with pytest.raises(sa.ConfigurationError, match="batches cut by Spark"):
            sa.async_udf(double, "long", tuning=sa.Tuning(**cut))


INNER = StructType([StructField("c", IntegerType(), nullable=False)])
OUTER = StructType(
    [
        StructField("a", IntegerType(), nullable=False),
        StructField("b", ArrayType(INNER, containsNull=False), nullable=True),
    ]
)


async def even_ones(value):
    return None if value % 2 else {"a": value, "b": [{"c": value}]}


async def failing_ones(value):
    if value % 2:
        raise ValueError
    return {"a": value, "b": [{"c": value}]}


@pytest.mark.parametrize(
    ("function", "options"), [(even_ones, {}), (failing_ones, {"on_error": "null"})]
)
def test_not_null_within_a_struct_is_kept_as_by_udf(spark, function, options):
    """What is missing is null as a whole."""
    found = spark.range(3).select(sa.async_udf(OUTER, **options)(function)("id").alias("x"))
    theirs = spark.range(3).select(F.udf(lambda _: None, OUTER)("id").alias("x"))
    assert found.schema == theirs.schema
    assert [row.x and row.x.asDict(recursive=True) for row in found.collect()] == [
        {"a": 0, "b": [{"c": 0}]},
        None,
        {"a": 2, "b": [{"c": 2}]},
    ]


def test_columns_are_nullable_beside_a_captured_error(spark):
    captured = sa.async_udf(OUTER, on_error="capture")(failing_ones)
    found = spark.range(3).select(captured("id").alias("x"))
    assert [it.nullable for it in found.schema["x"].dataType] == [True, True, True]
    assert [row.x.a for row in found.collect()] == [0, None, 2]
