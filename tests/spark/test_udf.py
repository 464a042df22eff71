# SPDX-License-Identifier: Apache-2.0
"""The column function: one value per row, in ``select`` and in SQL."""

import asyncio

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait import retry
from sparkawait.exceptions import ErrorKind
from sparkawait.testing import LookupServer

pytestmark = pytest.mark.spark


@sa.async_function("sum bigint, names string")
async def add(row):
    await asyncio.sleep(0.001 * (sum(row.values()) % 3))
    return {"sum": sum(row.values()), "names": " ".join(row)}


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row["id"]}


@pytest.fixture
def numbers(spark):
    return spark.range(500, numPartitions=3).withColumn("half", F.floor(F.col("id") / 2))


def test_columns_make_up_the_row(numbers):
    added = sa.async_udf(add)

    rows = numbers.select("id", "half", added(numbers.id, "half").alias("r")).collect()

    assert [row.id for row in rows] == list(range(500))
    assert all(row.r.sum == row.id + row.half for row in rows)
    assert rows[0].r.names == "id half"


def test_a_struct_is_the_row_itself(numbers):
    added = sa.async_udf(add)

    row = numbers.select(added(F.struct("half", F.col("id").alias("x")))).first()

    assert row[0].names == "half x"


def test_a_struct_beside_others_is_a_cell(numbers):
    @sa.async_function("shown string")
    async def show(row):
        return {"shown": f"{row['s']['id']} {row['half']}"}

    structs = numbers.select(F.struct("id").alias("s"), "half")

    assert structs.select(sa.async_udf(show)("s", "half")).first()[0] == "0 0"


def test_columns_can_be_given_names(numbers):
    added = sa.async_udf(add, columns=["a", "b"])

    assert numbers.select(added(numbers.id + 1, "half")).first()[0].names == "a b"


def test_one_returned_column_is_a_plain_column(numbers):
    out = numbers.select(sa.async_udf(double)("id").alias("doubled"))

    assert out.schema["doubled"].dataType.simpleString() == "bigint"
    assert [row.doubled for row in out.collect()] == list(range(0, 1000, 2))


def test_several_returned_columns_are_a_struct(numbers):
    out = numbers.select(sa.async_udf(add)("id").alias("r"))

    assert out.schema["r"].dataType.simpleString() == "struct<sum:bigint,names:string>"


def test_sql_passes_a_named_struct(spark):
    spark.udf.register("add_numbers", sa.async_udf(add))

    rows = spark.sql(
        "SELECT id, add_numbers(named_struct('x', id, 'y', 1L)) AS r FROM range(0, 100, 1, 3)"
    ).collect()

    assert [row.r.sum for row in rows] == list(range(1, 101))
    assert rows[0].r.names == "x y"


def test_sql_passes_several_arguments_that_have_names(spark):
    spark.udf.register("add_two", sa.async_udf(add, columns=["x", "y"]))

    rows = spark.sql("SELECT add_two(id, 10L) AS r FROM range(3)").collect()

    assert [tuple(row.r) for row in rows] == [(10, "x y"), (11, "x y"), (12, "x y")]


def test_sql_arguments_without_names_are_refused(spark):
    spark.udf.register("nameless", sa.async_udf(add))

    with pytest.raises(Exception, match="2 arguments without names; pass one named_struct"):
        spark.sql("SELECT nameless(id, id) FROM range(3)").collect()


def test_a_value_that_is_used_twice_is_called_for_once(numbers, calls):
    @sa.async_function("doubled bigint")
    async def note(row):
        calls.add(row["id"])
        return {"doubled": 2 * row["id"]}

    noted = numbers.select("id", sa.async_udf(note)("id").alias("doubled"))

    noted.where("doubled >= 0").select(
        (F.col("doubled") + F.col("doubled")).alias("a"), F.sqrt("doubled"), "doubled"
    ).where("a % 4 = 0").collect()

    assert calls.counts() == {str(number): 1 for number in range(500)}


def test_fields_of_a_struct_are_called_for_once(numbers, calls):
    @sa.async_function("a bigint, b bigint")
    async def note(row):
        calls.add(row["id"])
        return {"a": row["id"], "b": -row["id"]}

    numbers.select(sa.async_udf(note)("id").alias("r")).select("r.a", "r.b").collect()

    assert set(calls.counts().values()) == {1}


def test_column_functions_can_be_nested(spark):
    @sa.async_function("id bigint")
    async def next_id(row):
        return {"id": row["id"] + 1}

    spark.udf.register("next_id", sa.async_udf(next_id, columns=["id"]))
    spark.udf.register("double_it", sa.async_udf(double, columns=["id"]))

    rows = spark.sql("SELECT double_it(next_id(next_id(id))) FROM range(0, 100, 1, 2)").collect()

    assert [row[0] for row in rows] == [2 * (number + 2) for number in range(100)]


def test_a_function_may_be_called_with_many_rows_at_once(numbers):
    @sa.async_function("doubled bigint", batch=sa.Batch(max_rows=10))
    async def double_all(rows):
        return [[] if row["id"] == 3 else {"doubled": 2 * row["id"]} for row in rows]

    rows = numbers.select(sa.async_udf(double_all)("id")).collect()

    assert [row[0] for row in rows[:5]] == [0, 2, 4, None, 8]
    assert len(rows) == 500


def test_calls_of_different_batches_are_in_flight_together(spark):
    """Batches have 50 rows; the first row of each waits for the last one of the next."""

    class Meeting(sa.AsyncFunction):
        schema = "met bigint"

        def open(self, context):
            self.events = {}

        async def async_invoke(self, row):
            number, place = divmod(row["id"], 50)
            event = self.events.setdefault(number, asyncio.Event())
            if place == 49:
                self.events.setdefault(number - 1, asyncio.Event()).set()
            elif place == 0 and number < 3:
                await event.wait()
            return {"met": row["id"]}

    out = spark.range(200, numPartitions=1).select(sa.async_udf(Meeting())("id"))

    assert [row[0] for row in out.collect()] == list(range(200))


@pytest.mark.since_spark(4, 1)
def test_no_result_is_null(numbers):
    @sa.async_function("a bigint, b bigint")
    async def only_even(row):
        return [] if row["id"] % 2 else [{"a": row["id"], "b": None}]

    rows = numbers.select(sa.async_udf(only_even)("id").alias("r")).collect()

    assert [row.r is None for row in rows] == [number % 2 == 1 for number in range(500)]


@pytest.mark.since_spark(4, 1)
def test_a_result_of_nulls_is_not_null(spark):
    @sa.async_function("a bigint, b bigint")
    async def nulls(row):
        return {"a": None, "b": None}

    assert spark.range(1).select(sa.async_udf(nulls)("id").alias("r")).first().r is not None


def test_no_result_in_a_plain_column_is_null(numbers):
    @sa.async_function("doubled bigint not null")
    async def only_even(row):
        return [] if row["id"] % 2 else {"doubled": 2 * row["id"]}

    rows = numbers.select(sa.async_udf(only_even)("id").alias("doubled")).collect()

    assert [row.doubled for row in rows[:4]] == [0, None, 4, None]


def test_more_than_one_result_is_a_failure(numbers):
    @sa.async_function("doubled bigint")
    async def twice(row):
        return [{"doubled": 1}, {"doubled": 2}]

    with pytest.raises(Exception, match="must return one result per row, got 2"):
        numbers.select(sa.async_udf(twice)("id")).collect()


def test_rows_that_fail_can_be_null(numbers):
    @sa.async_function("doubled bigint")
    async def fail_on_three(row):
        if row["id"] == 3:
            raise LookupError
        return {"doubled": 2 * row["id"]}

    rows = numbers.select(sa.async_udf(fail_on_three, on_error="null")("id")).collect()

    assert [row[0] for row in rows[:5]] == [0, 2, 4, None, 8]


@pytest.mark.since_spark(4, 1)
def test_a_struct_of_a_row_that_fails_is_null(numbers):
    @sa.async_function("a bigint, b bigint not null")
    async def fail_on_three(row):
        if row["id"] == 3:
            raise LookupError
        return {"a": None, "b": 1}

    rows = numbers.select(sa.async_udf(fail_on_three, on_error="null")("id").alias("r")).collect()

    assert [row.r is None for row in rows[:5]] == [False, False, False, True, False]


def test_rows_that_fail_can_be_captured(numbers):
    @sa.async_function("doubled bigint")
    async def fail_on_three(row):
        if row["id"] == 3:
            message = "three is not served"
            raise LookupError(message)
        return {"doubled": 2 * row["id"]}

    captured = sa.async_udf(fail_on_three, on_error="capture", retry=retry.fixed_delay(1, 0))
    rows = numbers.select(captured("id").alias("r")).collect()

    assert rows[2].r.error is None
    assert rows[2].r.doubled == 4
    assert rows[3].r.doubled is None
    assert rows[3].r.error.attempts == 2
    assert "three is not served" in rows[3].r.error.message


def test_rows_that_time_out_can_have_a_fallback(numbers):
    @sa.async_function("doubled bigint")
    async def hang_on_three(row):
        if row["id"] == 3:
            await asyncio.Event().wait()
        return {"doubled": 2 * row["id"]}

    rows = numbers.select(
        sa.async_udf(hang_on_three, timeout="50ms", on_timeout={"doubled": -1})("id")
    ).collect()

    # Where a worker begins late, others run out of time, too.
    assert rows[3][0] == -1
    assert all(row[0] in {2 * i, -1} for i, row in enumerate(rows))


def test_a_failure_fails_the_job(numbers):
    @sa.async_function("doubled bigint")
    async def fail(row):
        message = "the service said no"
        raise OSError(message)

    with pytest.raises(Exception, match="the service said no"):
        numbers.select(sa.async_udf(fail)("id")).collect()


def test_empty_partitions_give_empty_columns(numbers):
    out = numbers.where("id < 10 and id > 100").repartition(3)

    assert out.select(sa.async_udf(double)("id")).collect() == []


def test_limit_ends_a_column_function(numbers):
    assert len(numbers.select(sa.async_udf(double)("id")).limit(5).collect()) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "drop"}, "must not be 'drop'"),
        ({"columns": []}, "`columns` must be a list of distinct names"),
        ({"columns": ["a", "a"]}, "`columns` must be a list of distinct names"),
        ({"columns": "a"}, "`columns` must be a list of distinct names"),
        ({"capacity": 0}, "`capacity` must be an int of at least 1"),
        ({"metrics": {}}, "`metrics` must be a sparkawait.Metrics"),
    ],
    ids=repr,
)
def test_a_wrong_option_is_refused_by_the_call(options, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        sa.async_udf(double, **options)


@pytest.mark.parametrize("columns", [(), ("id",), ("id", "half", "id")])
def test_a_wrong_number_of_columns_is_refused_by_the_call(numbers, columns):
    added = sa.async_udf(add, columns=["x", "y"])

    with pytest.raises(sa.ConfigurationError, match=r"must be called with 2 columns") as info:
        added(*columns)
    assert info.value.kind is ErrorKind.INPUT_INVALID


@pytest.mark.since_spark(4, 2)  # before, Spark's own worker fails at it
def test_a_call_in_sql_without_arguments_says_what_is_missing(spark):
    spark.udf.register("without", sa.async_udf(double))

    with pytest.raises(Exception, match="needs at least one argument, got none"):
        spark.sql("select without() from range(2)").collect()


# -- options of the wait functions


def test_a_column_function_keeps_results_and_spreads_calls(spark, calls):
    @sa.async_function("name string")
    async def name(row):
        calls.add("call")
        return {"name": row["tenant"] or "nobody"}

    cache = sa.Cache(key="tenant")
    udf = sa.async_udf(name, cache=cache, channel=sa.Channel("tenant", count=2))
    rows = spark.createDataFrame([("a",), ("b",), ("a",), (None,)], "tenant string").coalesce(1)

    assert [row.name for row in rows.select(udf("tenant").alias("name")).collect()] == [
        "a",
        "b",
        "a",
        "nobody",
    ]
    assert calls.counts() == {"call": 3}


def test_a_set_of_options_is_for_column_functions_too():
    usual = sa.WaitOptions(timeout="5s", on_error="null")
    assert sa.async_udf(double, options=usual)._call.options.timeout == 5.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"watermark": sa.WatermarkStrategy.for_bounded_out_of_orderness("ts", 1)}, "`watermark`"),
        (
            {"carry_over": True},
            "`carry_over` is not an option of a column function; use ordered_wait",
        ),
        ({"options": sa.WaitOptions(carry_over=True)}, "`carry_over` is not an option of a column"),
        ({"tiemout": 1}, "did you mean `timeout`"),
        ({"zoom": 7}, "unknown option `zoom`; known are schema"),
    ],
    ids=str,
)
def test_an_option_that_column_functions_do_not_have_is_refused(options, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        sa.async_udf(double, **options)


def some_are_null(spark):
    """97 rows in batches of 50 and 47: each third has a number, up to 60, and each fifth a text."""
    third = F.when((F.col("id") % 3 == 0) & (F.col("id") < 60), F.col("id"))
    fifth = F.when(F.col("id") % 5 == 0, F.concat(F.lit("n"), "id"))
    return spark.range(97, numPartitions=1).select("id", third.alias("third"), fifth.alias("fifth"))


WITH_ALL = [0, 15, 30, 45]


def test_a_row_with_a_null_makes_no_call_where_that_is_said(spark, calls):
    @sa.async_udf("text string", skip_null=True, on_error="capture", retry=0, channel="1")
    async def told(a, b):
        calls.add(a)
        if a == 30:
            raise ConnectionError
        return {"text": f"{a} {b}"}

    rows = some_are_null(spark).select("id", told("third", "fifth").alias("r")).collect()

    assert [row.id for row in rows] == list(range(97))
    assert calls.counts() == {str(id_): 1 for id_ in WITH_ALL}
    found = {row.id: row.r for row in rows if row.r is not None}
    assert list(found) == WITH_ALL
    assert {id_: r.text for id_, r in found.items()} == {
        id_: None if id_ == 30 else f"{id_} n{id_}" for id_ in WITH_ALL
    }
    assert found[30].error.message.startswith("ConnectionError")


def test_without_a_value_anywhere_nothing_is_called_in_sql_too(spark, calls):
    @sa.async_function("same string")
    async def same(row):
        calls.add(row["fifth"])
        return row["fifth"]

    function = sa.async_udf(same, columns=["fifth"], skip_null=True)
    spark.udf.register("same_fifth", function)
    some_are_null(spark).createOrReplaceTempView("some_are_null")
    nowhere = "SELECT same_fifth(fifth) FROM some_are_null WHERE id % 5 = 2"
    assert [tuple(row) for row in spark.sql(nowhere).collect()] == [(None,)] * 19
    assert calls.counts() == {}

    some = spark.sql("SELECT id, same_fifth(fifth) AS fifth FROM some_are_null").collect()
    assert [row.fifth for row in some] == [None if i % 5 else f"n{i}" for i in range(97)]
    assert calls.counts() == {f"n{i}": 1 for i in range(0, 97, 5)}


def test_a_native_function_gets_the_rows_without_a_null_too(spark):
    # It would call for each row: its address names one of the columns. A miss is null, too.
    names = {str(id_): {"name": f"n{id_}"} for id_ in range(97) if id_ != 30}
    with LookupServer({"names": names}) as server:
        get = sa.http.get(server.url + "/names/{id}", "name string")
        skipping = sa.async_udf(get, columns=["id", "third"], skip_null=True)
        rows = some_are_null(spark).select("id", skipping("id", "third").alias("name")).collect()
        called = server.stats()["requests"]

    assert [row.id for row in rows] == list(range(97))
    is_called = [i for i in range(60) if i % 3 == 0]
    assert {row.id: row.name for row in rows if row.name} == {
        i: f"n{i}" for i in is_called if i != 30
    }
    assert called == len(is_called)


def test_skip_null_is_true_or_false():
    with pytest.raises(sa.ConfigurationError, match="`skip_null` must be a bool, got 'yes'"):
        sa.async_udf("long", skip_null="yes")
