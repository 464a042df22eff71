# SPDX-License-Identifier: Apache-2.0
"""Native functions as functions of columns, and functions with 0..n results in SQL."""

from __future__ import annotations

import json
from collections import Counter
from urllib.parse import unquote

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.support.postgres_server import PostgresServer
from tests.support.redis_server import RedisServer
from tests.support.scripted_server import ScriptedServer

pytestmark = pytest.mark.spark

ROWS = 331
CLIENT = sa.http.Client(proxy=False)


def document(target: str) -> tuple[int, dict[str, str], bytes]:
    """A customer for each number but every third one."""
    number = int(unquote(target).rsplit("/", 1)[-1].partition(" ")[0])
    if number % 3 == 0:
        return 404, {}, b""
    return 200, {}, json.dumps({"name": f"c{number}", "tier": number % 7}).encode()


@pytest.fixture
def service():
    with ScriptedServer(lambda target, _: document(target)) as running:
        yield running


def customer(service, schema="name string, tier int", path="{id}", **options):
    return sa.http.get(f"{service.url}/{path}", schema, client=CLIENT, **options)


def numbers(spark):
    return spark.range(ROWS, numPartitions=3)


def wanted(number):
    return (f"c{number}", number % 7) if number % 3 else None


def test_a_native_function_is_called_with_columns(spark, service):
    frame = numbers(spark).withColumn("c", customer(service)("id"))

    rows = {row.id: row.c and tuple(row.c) for row in frame.collect()}
    assert rows == {number: wanted(number) for number in range(ROWS)}
    assert Counter(service.targets) == {f"/{number}": 1 for number in range(ROWS)}


def test_one_returned_column_is_a_plain_one_whose_misses_are_null(spark, service):
    named = customer(service, "name string").with_options(timeout="13s", max_concurrency=7)
    frame = numbers(spark).select("id", named(F.col("id") + 0).alias("name"))

    assert frame.schema["name"].dataType.simpleString() == "string"
    missing = frame.where("name is null").collect()
    assert [row.id for row in missing] == list(range(0, ROWS, 3))


def test_columns_are_found_by_the_names_that_the_function_has_for_them(spark, service):
    function = customer(service, "name string", path="{tenant}/{number} of it")
    frame = numbers(spark).select(function(number="id", tenant=F.lit("t")).alias("name"))

    assert {row.name for row in frame.collect()} == {None} | {
        f"c{number}" for number in range(ROWS) if number % 3
    }
    assert all(target.startswith("/t/") for target in service.targets)


def test_sql_knows_a_function_by_the_name_that_it_is_registered_with(spark, service):
    function = customer(service, "name string")
    spark.udf.register("customer_of", function)
    spark.udf.register("impatient", function.with_options(timeout="7s", on_error="null"))

    both = ["id", "customer_of(id) a", "impatient(id + 1) b"]
    rows = numbers(spark).selectExpr(*both).collect()
    names = [f"c{number}" if number % 3 else None for number in range(ROWS + 1)]
    assert [tuple(row) for row in rows] == [
        (number, names[number], names[number + 1]) for number in range(ROWS)
    ]


@pytest.mark.since_spark(4, 1)
def test_a_miss_in_sql_is_null_and_no_struct_of_nulls(spark, service):
    spark.udf.register("customer_of", customer(service))
    rows = numbers(spark).selectExpr("customer_of(id) c").collect()
    assert [row.c and tuple(row.c) for row in rows] == [wanted(it) for it in range(ROWS)]


def test_stores_are_functions_of_columns_too(spark):
    with RedisServer() as redis, PostgresServer() as postgres:
        redis.load([["SET", f"n:{i}", str(i * 10)] for i in range(0, ROWS, 2)])
        postgres.run("create table n (id bigint primary key, name text);")
        postgres.run("insert into n select i, 'p' || i from generate_series(0, 330, 3) i;")
        ten = sa.redis.get(redis.url, "n:{key}", "n bigint")
        statement = "select name from n where id = $1"
        name = sa.postgres.lookup(postgres.dsn, statement, ["key"], "name string")
        rows = numbers(spark).select("id", ten("id").alias("t"), name(key="id").alias("n"))
        found = sorted(tuple(row) for row in rows.collect())
    assert found == [
        (i, None if i % 2 else i * 10, None if i % 3 else f"p{i}") for i in range(ROWS)
    ]


def test_what_are_not_the_columns_of_the_function_is_refused_by_the_call(spark, service):
    function = customer(service, path="{tenant}/{id}")
    with pytest.raises(sa.ConfigurationError, match="called with 2 columns, got 1"):
        function("id")
    with pytest.raises(sa.ConfigurationError, match="or all by name: tenant, id; got id by name"):
        function(id="id")
    with pytest.raises(AttributeError, match="has no attribute `registered`"):
        function.registered  # noqa: B018 - is to fail
    with pytest.raises(sa.ConfigurationError, match="must not be 'drop' for a column function"):
        function.with_options(on_error="drop")("id", "id")
    assert service.targets == []


@pytest.mark.parametrize("is_sql", [False, True])
def test_many_results_are_an_array_that_inline_spreads_and_pays_for_once(spark, calls, is_sql):
    @sa.async_udf("array<struct<line: int, of: string>>")
    async def lines(number):
        calls.add(number)
        return [(line, f"o{number}") for line in range(number % 3)]

    frame = numbers(spark)
    if is_sql:
        spark.udf.register("lines_of", lines)
        frame.createOrReplaceTempView("orders")
        found = spark.sql("select id, l.* from orders lateral view inline(lines_of(id)) l")
    else:
        found = frame.select("id", F.inline(lines("id")))

    assert sorted(tuple(row) for row in found.where("line >= 0").collect()) == [
        (number, line, f"o{number}") for number in range(ROWS) for line in range(number % 3)
    ]
    assert calls.counts() == {str(number): 1 for number in range(ROWS)}
