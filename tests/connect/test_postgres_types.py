# SPDX-License-Identifier: Apache-2.0
"""Types of PostgreSQL and of columns that go together, and those that do not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import postgres
from tests.support.postgres_server import PostgresServer

ONE = pa.array([1], pa.int32())
UTC = dt.timezone.utc
PAIR = "struct<x:int,y:array<string>>"
MOMENT = dt.datetime(2024, 11, 3, 6, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        running.run("create type pair as (x int, y text[]); create type mood as enum ('sad');")
        yield running


def rows_of(function: object, keys: Any, **options: Any) -> dict[str, list[Any]]:
    batches = pa.table({"k": keys}).to_batches()
    found = pa.Table.from_batches(list(sa.arrow.ordered_wait(batches, function, **options)))
    return found.to_pydict()


def value_of(server: PostgresServer, sql: str, schema: str | None = None, **options: Any) -> Any:
    statement = f"select {sql} as v where $1::int is not null"
    function = postgres.lookup(server.dsn, statement, ["k"], schema=schema and f"v {schema}")
    return rows_of(function, ONE, **options)["v"][0]


@pytest.mark.parametrize(
    ("sql", "schema", "value"),
    [
        ("'{\"\\\\x00ff\",null}'::bytea[]", None, [b"\x00\xff", None]),
        ("array['{\"x\": 1}'::jsonb, null]", None, ['{"x": 1}', None]),
        ("array['{\"x\": 1}'::jsonb, null]", "array<struct<x:int>>", [{"x": 1}, None]),
        ("array['2024-11-03 06:30:00+00'::timestamptz]", None, [MOMENT]),
        ("array['sad'::mood, null]", None, ["sad", None]),
        ("array[1.5, null]::numeric(4,1)[]", None, [Decimal("1.5"), None]),
        ("array[interval '1 day 1 second']", "array<interval day to second>", [dt.timedelta(1, 1)]),
        ("array[[1, 2], [3, 4]]", "array<array<int>>", [[1, 2], [3, 4]]),
        ("array[row(1, '{a}')::pair]", f"array<{PAIR}>", [{"x": 1, "y": ["a"]}]),
        ("row(1, '{null}')::pair", PAIR, {"x": 1, "y": [None]}),
        ("'{}'::int[]", None, []),
        ("interval '-1 days -1 second'", "interval day to second", dt.timedelta(-1, -1)),
        ("1::oid", None, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("batch", [1, "auto"])
def test_a_value_is_found_as_it_is(
    server: PostgresServer, sql: str, schema: str | None, value: Any, batch: Any
) -> None:
    statement = f"select {sql} as v where $1::int is not null"
    declared = schema and f"v {schema}"
    function = postgres.lookup(server.dsn, statement, ["k"], schema=declared, batch=batch)

    assert rows_of(function, pa.array([1, 2], pa.int32()))["v"] == [value, value]


def test_an_element_that_may_not_be_null_fails_its_row(server: PostgresServer) -> None:
    element = pa.field("element", pa.int32(), nullable=False)
    schema = pa.schema([("v", pa.list_(element))])
    statement = "select case when $1 = 2 then array[1, null] else array[$1] end as v"
    function = postgres.lookup(server.dsn, statement, ["k"], schema=schema)

    found = rows_of(function, pa.array([1, 2, 3], pa.int32()), on_error="capture")

    assert found["v"] == [[1], None, [3]]
    assert [error is None for error in found["error"]] == [True, False, True]


def test_an_element_that_does_not_fit_fails_its_row(server: PostgresServer) -> None:
    statement = "select array[0, 0, $1 * 100] as v"
    function = postgres.lookup(server.dsn, statement, ["k"], schema="v array<tinyint>")

    found = rows_of(function, pa.array([1, 2, None, -1], pa.int32()), on_error="capture")

    assert found["v"] == [[0, 0, 100], None, None, [0, 0, -100]]
    (error,) = [it["message"] for it in found["error"] if it]
    assert error.startswith("an element of `v`: `element` should be `Int8`")


@pytest.mark.parametrize(
    ("keys", "parameter", "hint"),
    [
        (pa.array([MOMENT]), "timestamp", "to timestamp_ntz, or write $1::timestamptz"),
        (pa.array([dt.datetime(2024, 1, 1)]), "timestamptz", "cast the column to timestamp"),  # noqa: DTZ001
        (pa.array([dt.date(2024, 1, 1)]), "int", "cast the column, or the placeholder"),
        (pa.array([dt.date(2024, 1, 1)]), "timestamptz", "cast the column, or the placeholder"),
        (pa.array([1.0]), "int8", "cast the column, or the placeholder"),
        (pa.array([True]), "int", "cast the column, or the placeholder"),
        (pa.array([1]), "uuid", "cast the column, or the placeholder"),
        (pa.array(["x"]), "bytea", "cast the column, or the placeholder"),
        (pa.array([{"x": 1}]), "jsonb", "cast the column, or the placeholder"),
        (pa.array([[[1]]]), "int[]", "cast the column, or the placeholder"),
        (pa.array([[1.5]]), "int[]", "cast the column, or the placeholder"),
    ],
)  # fmt: skip
def test_a_column_that_cannot_be_sent_ends_the_task(
    server: PostgresServer, keys: pa.Array, parameter: str, hint: str
) -> None:
    statement = f"select $1::{parameter} is null as v"
    function = postgres.lookup(server.dsn, statement, ["k"], schema="v boolean")

    with pytest.raises(sa.ConfigurationError) as caught:
        rows_of(function, keys, on_error="null", retry=sa.retry.fixed_delay(3, "1ms"), timeout="9s")

    assert caught.value.kind is sa.ErrorKind.TYPE_REFUSED
    assert str(caught.value).startswith("argument column `k` is `")
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "schema", "hint"),
    [
        ("1.99::float8", "int", "declare another type, or cast it in the statement"),
        ("1704067200::int8", "timestamp", "declare another type"),
        ("now()", "timestamp_ntz", "declare it `timestamp`"),
        ("now()::timestamp", "timestamp", "declare it `timestamp_ntz`"),
        ("1", "array<int>", "declare another type"),
    ],
)
def test_a_result_that_would_lose_something_ends_the_task(
    server: PostgresServer, sql: str, schema: str, hint: str
) -> None:
    with pytest.raises(sa.ConfigurationError) as caught:
        value_of(server, sql, schema, on_error="drop")

    assert caught.value.kind is sa.ErrorKind.TYPE_REFUSED
    assert str(caught.value).startswith("`schema` has column `v` as `")
    assert hint in str(caught.value)


def test_a_column_that_cannot_be_sent_is_refused_before_the_task_where_the_server_was_asked(
    server: PostgresServer,
) -> None:
    statement = "select $1::timestamp as v, $2::mood as m"
    function = postgres.lookup(server.dsn, statement, ["k", "k"])

    assert len(function.parameters) == 2
    assert function.result_schema.metadata is None
    with pytest.raises(sa.ConfigurationError, match="cannot be sent as `timestamp`") as caught:
        function.check(pa.schema({"k": pa.timestamp("us", "UTC")}))
    assert caught.value.kind is sa.ErrorKind.TYPE_REFUSED


def test_a_void_column_is_refused_at_the_call(server: PostgresServer) -> None:
    statement = "select null as v where $1 = 1"
    with pytest.raises(sa.ConfigurationError, match="`v` as void") as caught:
        postgres.lookup(server.dsn, statement, ["k"], schema="v void")
    assert caught.value.kind is sa.ErrorKind.TYPE_REFUSED


def test_columns_of_other_encodings_are_sent_too(server: PostgresServer) -> None:
    texts = pa.array(["a", None, "b"])
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2]), texts)
    function = postgres.lookup(server.dsn, "select coalesce($1::text, '-') as v", ["k"])
    called = postgres.lookup(
        server.dsn, "select coalesce($1::text, '-') as v", ["k"], null_args="call"
    )

    assert rows_of(function, dictionary)["v"] == ["a", None, None, "b"]
    assert rows_of(called, dictionary)["v"] == ["a", "-", "-", "b"]
    assert rows_of(called, texts.cast(pa.large_string()))["v"] == ["a", "-", "b"]
    lists = pa.array([["x", None], None], pa.large_list(pa.string()))
    arrays = postgres.lookup(server.dsn, "select $1::text[] as v", ["k"])
    assert rows_of(arrays, lists)["v"] == [["x", None], None]


@pytest.mark.parametrize("batch", [1, "auto"])
def test_the_same_statement_takes_columns_of_several_types(
    server: PostgresServer, batch: Any
) -> None:
    statement = "select $1 + 1 as v"
    function = postgres.lookup(server.dsn, statement, ["k"], schema="v int", batch=batch)

    assert rows_of(function, pa.array([1, 2]))["v"] == [2, 3]
    assert rows_of(function, pa.array(["1", "2"]))["v"] == [2, 3]
    found = rows_of(function, pa.array(["1", "x", "1.5"]), on_error="capture")
    assert found["v"] == [2, None, None]
    assert "22P02" in found["error"][1]["message"]
