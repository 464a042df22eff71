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
        ("array['10.0.0.1', '10.0.0.0/8', null]::inet[]", None, ["10.0.0.1", "10.0.0.0/8", None]),
        ("array['::1']::inet[]", "string", "{::1}"),
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


ABSENT = "select n as v, '-' as w from (values (1, 10), (2, null), (4, 40), (4, null)) t(k, n)"


def absent(server: PostgresServer, **options: Any) -> Any:
    """Finds a value for 1, a null for 2, nothing for 3, and for 4 a value and a null."""
    schema = "w string not null, v int not null"
    return postgres.lookup(
        server.dsn, f"{ABSENT} where k = $1 order by v", ["k"], schema=schema, **options
    )


@pytest.mark.parametrize("batch", [1, "auto"])
@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_null_that_is_found_in_a_column_declared_as_not_null_fails_its_row(
    server: PostgresServer, how: Any, batch: Any
) -> None:
    function = absent(server, how=how, batch=batch)
    keys = pa.array([1, 2, 3, 4, None], pa.int32())

    captured = rows_of(function, keys, on_error="capture")
    nulls = rows_of(function, keys, on_error="null")
    dropped = rows_of(function, keys, on_error="drop")

    is_kept = how == "left"
    missed = [3, None] if is_kept else []
    assert [k for k in captured["k"] if k not in {1, 2, 4}] == missed
    failed = {
        k: it["message"] for k, it in zip(captured["k"], captured["error"], strict=True) if it
    }
    assert sorted(failed) == [2, 4]
    assert all("`v` is declared as not null" in it for it in failed.values()), failed
    assert captured["v"] == ([10, None, None, None, None] if is_kept else [10, None, None])
    assert nulls["v"] == captured["v"]
    assert nulls["w"] == ["-"] + [None] * (len(nulls["k"]) - 1)
    assert dropped["k"] == [1, *missed]
    assert dropped["v"] == [10, *(None for _ in missed)]
    with pytest.raises(sa.AsyncFunctionError, match="`v` is declared as not null"):
        rows_of(function, keys)


def test_a_null_argument_may_find_no_null_either(server: PostgresServer) -> None:
    function = postgres.lookup(
        server.dsn, "select $1 + 1 as v", ["k"], schema="v int not null", null_args="call"
    )

    found = rows_of(function, pa.array([1, None], pa.int32()), on_error="capture")

    assert found["v"] == [2, None]
    assert [error is None for error in found["error"]] == [True, False]


def test_a_null_that_may_not_be_is_found_in_whatever_order_rows_come(
    server: PostgresServer,
) -> None:
    # Joined and sorted by the server: the last call's rows come first.
    server.run("create table numbers as select k from generate_series(1, 5000) k; analyze numbers;")
    sql = "select case when k % 3 > 0 then k end as v from numbers where k = $1"
    function = postgres.lookup(server.dsn, sql, ["k"], schema="v int not null")
    keys = list(range(6000, 0, -1))

    found = rows_of(function, pa.array(keys, pa.int32()), on_error="capture")

    assert found["k"] == keys
    assert found["v"] == [k if k <= 5000 and k % 3 else None for k in keys]
    assert [error is None for error in found["error"]] == [k > 5000 or k % 3 > 0 for k in keys]


NOT_NULL = pa.struct([pa.field("x", pa.int32(), nullable=False)])


@pytest.mark.parametrize(
    ("bad", "good", "schema", "value"),
    [
        ("row(null, '{}')::pair", "row(1, '{}')::pair", "struct<x:int not null>", {"x": 1}),
        ("'{}'::jsonb", "'{\"x\": 1}'::jsonb", "struct<x:int not null>", {"x": 1}),
        ("'{\"x\": null}'::text", "'{\"x\": 1}'::text", "struct<x:int not null>", {"x": 1}),
        ("'null'::jsonb", "'{}'::jsonb", "struct<x:int> not null", {"x": None}),
        ("array[row(null, '{}')::pair]", "array[row(1, '{}')::pair]",
         "array<struct<x:int not null>>", [{"x": 1}]),
        ("array['{}'::jsonb]", "array['{\"x\": 1}'::jsonb]",
         "array<struct<x:int not null>>", [{"x": 1}]),
        ("array[null, 1]", "array[1]", pa.field("element", pa.int64(), nullable=False), [1]),
        ("array[null, 1.0]", "array[1.0]", pa.field("element", pa.int32(), nullable=False), [1]),
        ("array['null'::jsonb]", "array['{\"x\": 1}'::jsonb]",
         pa.field("element", NOT_NULL, nullable=False), [{"x": 1}]),
        ("array[null, '{\"x\": 1}'::jsonb]", "array['{\"x\": 1}'::jsonb]",
         pa.field("element", NOT_NULL, nullable=False), [{"x": 1}]),
        ("array[row(1, null)::pair, null]", "array[row(1, null)::pair]",
         pa.field("element", NOT_NULL, nullable=False), [{"x": 1}]),
        ("array['sad'::mood, null]", "array['sad'::mood]",
         pa.field("element", pa.string(), nullable=False), ["sad"]),
    ],
)  # fmt: skip
def test_a_null_within_a_value_where_none_may_be_fails_its_row(
    server: PostgresServer, bad: str, good: str, schema: Any, value: Any
) -> None:
    is_element = isinstance(schema, pa.Field)
    declared = pa.schema([("v", pa.list_(schema))]) if is_element else f"v {schema}"
    statement = f"select case when $1::int = 2 then {bad} else {good} end as v where $1 < 4"

    for batch in ("auto", 1):
        function = postgres.lookup(server.dsn, statement, ["k"], schema=declared, batch=batch)
        found = rows_of(function, pa.array([1, 2, 3, 4], pa.int32()), on_error="capture")

        assert found["v"] == [value, None, value, None]
        messages = [error and error["message"] for error in found["error"]]
        assert messages[:1] + messages[2:] == [None, None, None]
        assert "declared as not null" in messages[1]


def test_an_element_that_does_not_fit_fails_its_row(server: PostgresServer) -> None:
    statement = "select array[0, 0, $1 * 100] as v"
    function = postgres.lookup(server.dsn, statement, ["k"], schema="v array<tinyint>")

    found = rows_of(function, pa.array([1, 2, None, -1], pa.int32()), on_error="capture")

    assert found["v"] == [[0, 0, 100], None, None, [0, 0, -100]]
    (error,) = [it["message"] for it in found["error"] if it]
    assert error.startswith("an element of `v`: `element` should be `tinyint`")


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

    assert caught.value.kind is sa.exceptions.ErrorKind.TYPE_REFUSED
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

    assert caught.value.kind is sa.exceptions.ErrorKind.TYPE_REFUSED
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
    assert caught.value.kind is sa.exceptions.ErrorKind.TYPE_REFUSED


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("row(1, '\\x0102')::kept", "struct<a:int,b:binary>"),
        ("array[row(1, '\\x0102')::kept]", "array<struct<b:binary>>"),
        ("array[array['\\x0102'::bytea]]", "array<array<binary>>"),
        ("row('\\x0102'::bytea)", "struct<f1:binary>"),
        ("row('\\x0102'::bytea)", "map<string,binary>"),
    ],
)
def test_bytes_that_the_server_would_write_as_json_are_refused(
    server: PostgresServer, value: str, schema: str
) -> None:
    server.run("drop type if exists kept; create type kept as (a int, b bytea)")
    with pytest.raises(sa.ConfigurationError, match=r"to `encode\(.., 'base64'\)`") as caught:
        value_of(server, value, schema)
    assert caught.value.kind is sa.exceptions.ErrorKind.TYPE_REFUSED
    # What is beside them is read, and so are bytes that the statement encodes.
    if "kept" in value and "array" not in value:
        assert value_of(server, value, "struct<a:int>") == {"a": 1}
        encoded = "row(1, encode('\\x0102'::bytea, 'base64'))"
        server.run("drop type if exists coded; create type coded as (a int, b text)")
        found = value_of(server, f"{encoded}::coded", "struct<a:int,b:binary>")
        assert found == {"a": 1, "b": b"\x01\x02"}


def test_a_void_column_is_refused_at_the_call(server: PostgresServer) -> None:
    statement = "select null as v where $1 = 1"
    with pytest.raises(sa.ConfigurationError, match="`v` as void") as caught:
        postgres.lookup(server.dsn, statement, ["k"], schema="v void")
    assert caught.value.kind is sa.exceptions.ErrorKind.TYPE_REFUSED


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
