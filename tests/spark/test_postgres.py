# SPDX-License-Identifier: Apache-2.0
"""Lookups in PostgreSQL, in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
from pyspark.sql import functions
from pyspark.sql.types import IntegerType

import sparkawait as sa
from tests.support.postgres_server import PASSWORD, PostgresServer

pytestmark = pytest.mark.spark

ROWS = 1000
NAME = "select name from people where id = $1"

TABLES = """
create table people (id int primary key, name text, price numeric(10, 2), seen timestamptz);
insert into people select i, 'p' || i, i / 4.0, '2026-11-21 12:00:00+01'
  from generate_series(0, 999) as i where i % 3 <> 0;
create table orders (person int, line int, doc jsonb, tags text[]);
insert into orders
  select p, l, jsonb_build_object('line', l, 'of', 'p' || p), array['a' || l, null]
  from generate_series(1, 5) as p, generate_series(1, 2) as l;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        running.run(TABLES)
        yield running


def test_each_row_of_each_partition_gets_its_row(spark, server):
    frame = spark.range(ROWS).repartition(2)
    # Without a schema the server is asked on the driver.
    function = sa.postgres.lookup(
        server.dsn, "select name, price from people where id = $1", ["id"]
    )

    rows = sa.unordered_wait(frame, function, capacity=100).collect()

    expected = [
        (i, f"p{i}" if i % 3 else None, Decimal(i) / 4 if i % 3 else None) for i in range(ROWS)
    ]
    assert sorted(tuple(row) for row in rows) == expected


def test_a_miss_and_a_null_key_drop_the_row_with_inner(spark, server):
    key = functions.when(functions.col("id") != 7, functions.col("id").cast(IntegerType()))
    frame = spark.range(0, 10, numPartitions=1).withColumn("key", key)
    for how, expected in [("left", list(range(10))), ("inner", [1, 2, 4, 5, 8])]:
        function = sa.postgres.lookup(server.dsn, NAME, ["key"], schema="name string", how=how)
        rows = sa.ordered_wait(frame, function).collect()
        assert [row.id for row in rows] == expected
        assert [row.name for row in rows if row.name] == ["p1", "p2", "p4", "p5", "p8"]


def test_a_row_has_as_many_results_as_are_found_with_nested_types(spark, server):
    function = sa.postgres.lookup(
        server.dsn,
        "select line, doc, tags from orders where person = $1 order by line",
        ["id"],
        schema="line int, doc struct<line:int,of:string>, tags array<string>",
        how="inner",
    )
    rows = sa.ordered_wait(spark.range(4, 8, numPartitions=1), function).collect()

    assert [(row.id, row.line) for row in rows] == [(4, 1), (4, 2), (5, 1), (5, 2)]
    assert [(row.doc.line, row.doc.of) for row in rows] == [
        (1, "p4"),
        (2, "p4"),
        (1, "p5"),
        (2, "p5"),
    ]
    assert rows[1].tags == ["a2", None]


@pytest.mark.parametrize("schema", [None, "seen timestamp"])
def test_a_moment_is_the_same_in_the_time_zone_of_the_session(spark, server, schema):
    statement = "select seen from people where id = $1"
    function = sa.postgres.lookup(server.dsn, statement, ["id"], schema=schema)

    (row,) = (
        sa.ordered_wait(spark.range(1, 2), function)
        .selectExpr(
            "unix_timestamp(cast(seen as timestamp)) as seconds", "cast(seen as string) text"
        )
        .collect()
    )

    assert (row.seconds, row.text) == (1795258800, "2026-11-21 06:00:00")


def test_a_secret_is_resolved_in_the_executor_and_shown_nowhere(spark, server, tmp_path, capfd):
    (tmp_path / "dsn").write_text(server.dsn)
    secret = sa.secret(file=str(tmp_path / "dsn"))
    function = sa.postgres.lookup(secret, NAME, ["id"], schema="name string")
    frame = sa.unordered_wait(spark.range(1, 3), function)

    assert sorted(row.name for row in frame.collect()) == ["p1", "p2"]
    frame.explain("extended")
    shown = capfd.readouterr().out
    assert "Parsed Logical Plan" in shown
    assert PASSWORD not in shown + repr(function)


FAILING = "select 10 / ($1 - 3) as n"


def test_a_failing_row_is_an_error_column_by_choice(spark, server):
    function = sa.postgres.lookup(server.dsn, FAILING, ["id"], schema="n int")
    frame = spark.range(1, 6, numPartitions=1).selectExpr("cast(id as int) as id")

    rows = sa.ordered_wait(frame, function, on_error="capture").collect()

    assert [(row.id, row.n) for row in rows] == [(1, -5), (2, -10), (3, None), (4, 10), (5, 5)]
    assert [row.id for row in rows if row.error] == [3]
    assert "division by zero" in rows[2].error.message
    assert rows[2].error.attempts == 1


def test_a_failing_row_fails_the_task_without_its_values(spark, server):
    function = sa.postgres.lookup(server.dsn, "select $1::text::int as n", ["key"], schema="n int")
    frame = spark.range(1).selectExpr("'pass-phrase' as key")

    with pytest.raises(Exception, match=r"postgres\.lookup") as caught:
        sa.ordered_wait(frame, function).collect()

    assert "22P02" in str(caught.value)
    assert "pass-phrase" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
