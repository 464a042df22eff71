# SPDX-License-Identifier: Apache-2.0
"""Lookups in a real PostgreSQL server: what they return."""

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

MOMENT = dt.datetime(2026, 11, 21, 1, 2, 3, 4)  # noqa: DTZ001 - of a type without time zone
EARLY = dt.datetime(1999, 1, 1)  # noqa: DTZ001

TABLES = """
create type mood as enum ('sad', 'happy');
create table people (id int primary key, name text, price numeric(10, 2));
insert into people select i, 'p' || i, i / 4.0 from generate_series(1, 3000) as i where i % 3 <> 0;
create table orders (person int, line int, item text);
insert into orders select p, l, p || '-' || l
  from generate_series(1, 50) as p, generate_series(1, 4) as l;
create table kinds (
  id int primary key, b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8,
  n numeric, n2 numeric(12, 3), t text, v varchar(9), c char(4), y bytea, d date,
  ts timestamp, tz timestamptz, u uuid, j json, jb jsonb, m mood, inet inet, iv interval,
  ti time, a int[], ta text[], doc jsonb);
insert into kinds values (1, true, -2, 4, 9007199254740993, 1.5, 2.25, 1.000000000000000001,
  123456789.125, 'text', 'var', 'ch', '\\x00ff', '2026-11-21', '2026-11-21 01:02:03.000004',
  '2026-11-21 01:02:03+02', '00112233-4455-6677-8899-aabbccddeeff', '{"x": 1}', '{"x": 2}',
  'happy', '10.0.0.1', '1 day 02:00', '12:13', '{1,null,3}', '{a,"b c"}',
  '{"x": 5, "tags": ["p", "q"]}');
insert into kinds (id) values (2);
insert into kinds (id, n, d, ts) values (3, 'NaN', '2026-01-01', '2026-01-01');
insert into kinds (id, n, d, ts) values (4, 1, 'infinity', 'infinity');
create table log (id int);
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        running.run(TABLES.replace("\\\\", "\\"))
        yield running


def rows_of(function: object, columns: dict[str, Any], **options: Any) -> dict[str, list[Any]]:
    table = pa.table(columns)
    batches = sa.arrow.ordered_wait(table.to_batches(max_chunksize=700), function, **options)
    return pa.Table.from_batches(list(batches)).to_pydict()


def test_rows_are_found_by_key_in_one_query_for_many(server: PostgresServer) -> None:
    function = postgres.lookup(server.dsn, "select name, price from people where id = $1", ["k"])

    found = rows_of(function, {"k": list(range(1, 3001))})

    assert found["name"] == [f"p{i}" if i % 3 else None for i in range(1, 3001)]
    assert found["price"][:3] == [Decimal("0.25"), Decimal("0.50"), None]


def test_each_row_has_a_query_of_its_own_by_choice(server: PostgresServer) -> None:
    sql = "select name, price from people where id = $1"
    function = postgres.lookup(server.dsn, sql, ["k"], batch=1)

    found = rows_of(function, {"k": list(range(1, 1001))})

    assert found["name"] == [f"p{i}" if i % 3 else None for i in range(1, 1001)]


@pytest.mark.parametrize("batch", [1, "auto"])
def test_a_key_has_as_many_results_as_rows_in_the_order_of_the_statement(
    server: PostgresServer, batch: Any
) -> None:
    sql = "select item from orders where person = $1 order by line desc limit 3"
    function = postgres.lookup(server.dsn, sql, ["k"], how="inner", batch=batch)

    found = rows_of(function, {"k": [7, 99, 2]})

    assert found == {"k": [7] * 3 + [2] * 3, "item": ["7-4", "7-3", "7-2", "2-4", "2-3", "2-2"]}


def test_a_null_argument_is_a_miss_without_a_call(server: PostgresServer) -> None:
    sql = "select coalesce($1, 5) as v"
    function = postgres.lookup(server.dsn, sql, ["k"])
    keys = pa.array([1, None], pa.int32())

    assert rows_of(function, {"k": keys})["v"] == [1, None]


@pytest.mark.parametrize("batch", [1, "auto"])
def test_a_null_argument_is_given_to_the_statement_by_choice(
    server: PostgresServer, batch: Any
) -> None:
    sql = "select coalesce($1, 5) + coalesce($2::int, 1) as v, $3::uuid is null as no_u, $4 as a"
    columns = {
        "k": pa.array([1, None, 3, None], pa.int32()),
        "n": pa.nulls(4),
        "u": pa.array([None, None, "00112233-4455-6677-8899-aabbccddeeff", None]),
        "l": pa.array([[1, None], None, [], None], pa.list_(pa.int32())),
    }
    function = postgres.lookup(
        server.dsn, sql.replace("$4", "$4::int[]"), list(columns), null_args="call", batch=batch
    )

    found = rows_of(function, columns)

    assert found["v"] == [2, 6, 4, 6]
    assert found["no_u"] == [True, True, False, True]
    assert found["a"] == [[1, None], None, [], None]


def test_a_column_of_nothing_but_nulls_is_a_miss(server: PostgresServer) -> None:
    function = postgres.lookup(server.dsn, "select $1::int as v", ["k"])

    assert rows_of(function, {"k": pa.nulls(2)})["v"] == [None, None]


@pytest.mark.parametrize("how", ["left", "inner"])
def test_rows_that_come_in_another_order_get_to_their_keys(
    server: PostgresServer, how: Any
) -> None:
    # A hash join over all people, who are sent in the order of the table.
    sql = "select name, n from people, generate_series(1, 2) as n where id = $1 and id % 5 <> 0"
    dsn = server.dsn + "?options=-c%20enable_nestloop%3Doff%20-c%20enable_mergejoin%3Doff"
    function = postgres.lookup(dsn, sql, ["k"], how=how, connections=1)
    keys = [*range(600, 0, -1), 7, 7]

    found = rows_of(function, {"k": keys}, max_concurrency=1000)

    rows = []
    for key in keys:
        if key % 3 and key % 5:
            rows += [(key, f"p{key}", 1), (key, f"p{key}", 2)]
        elif how == "left":
            rows.append((key, None, None))
    assert list(zip(found["k"], found["name"], found["n"], strict=True)) == rows


def test_values_that_do_not_fit_fail_their_rows_in_any_order(server: PostgresServer) -> None:
    sql = "select case when id = 7 then 'NaN' else id::numeric end as n from people where id = $1"
    dsn = server.dsn + "?options=-c%20enable_nestloop%3Doff%20-c%20enable_mergejoin%3Doff"
    function = postgres.lookup(dsn, sql, ["k"], connections=1)
    keys = [*range(600, 0, -1)]

    errors = errors_of(function, keys, max_concurrency=1000)

    assert [key for key, error in zip(keys, errors, strict=True) if error] == [7]


@pytest.mark.parametrize("batch", [1, "auto"])
@pytest.mark.parametrize("prepare", [True, False])
def test_a_key_that_fails_after_some_rows_has_none_of_them(
    server: PostgresServer, batch: Any, prepare: Any
) -> None:
    sql = "select 10 / ($1 - n) as v from generate_series(1, 2000) as n limit 1500"
    function = postgres.lookup(
        server.dsn, sql, ["k"], schema="v int", batch=batch, prepare=prepare, connections=1
    )
    keys = pa.array([3000, 1200, 4000], pa.int32())

    found = rows_of(function, {"k": keys}, on_error="capture")

    assert found["k"] == [3000] * 1500 + [1200] + [4000] * 1500
    assert "22012" in found["error"][1500]["message"]
    assert found["v"] == [
        *[10 // (3000 - n) for n in range(1, 1501)],
        None,
        *[10 // (4000 - n) for n in range(1, 1501)],
    ]


ALL = "b, i2, i4, i8, f4, f8, n, n2, t, v, c, y, d, ts, tz, u, j, jb, m, inet, iv, ti, a, ta"


@pytest.mark.parametrize("batch", [1, "auto"])
def test_all_types_are_returned(server: PostgresServer, batch: Any) -> None:
    sql = f"select {ALL} from kinds where id = $1"  # noqa: S608 - a constant
    function = postgres.lookup(server.dsn, sql, ["k"], batch=batch)

    found = rows_of(function, {"k": [1, 2]})

    assert all(values[1] is None for name, values in found.items() if name != "k")
    first = {name: values[0] for name, values in found.items() if name != "k"}
    assert first == {
        "b": True,
        "i2": -2,
        "i4": 4,
        "i8": 9007199254740993,
        "f4": 1.5,
        "f8": 2.25,
        "n": Decimal("1.000000000000000001"),
        "n2": Decimal("123456789.125"),
        "t": "text",
        "v": "var",
        "c": "ch  ",
        "y": b"\x00\xff",
        "d": dt.date(2026, 11, 21),
        "ts": MOMENT,
        "tz": dt.datetime(2026, 11, 20, 23, 2, 3, tzinfo=dt.timezone.utc),
        "u": "00112233-4455-6677-8899-aabbccddeeff",
        "j": '{"x": 1}',
        "jb": '{"x": 2}',
        "m": "happy",
        "inet": "10.0.0.1",
        "iv": "1 day 02:00:00",
        "ti": "12:13:00",
        "a": [1, None, 3],
        "ta": ["a", "b c"],
    }


def test_a_declared_schema_decides_the_types(server: PostgresServer) -> None:
    schema = "doc struct<x:int,tags:array<string>>, n double, i4 bigint, i8 string"
    sql = "select i4, i8, n, doc from kinds where id = $1"
    function = postgres.lookup(server.dsn, sql, ["k"], schema=schema)

    found = rows_of(function, {"k": [1]})

    assert found["doc"] == [{"x": 5, "tags": ["p", "q"]}]
    assert (found["n"], found["i4"], found["i8"]) == ([1.0], [4], ["9007199254740993"])


@pytest.mark.parametrize("batch", [1, "auto"])
@pytest.mark.parametrize(
    ("values", "column"),
    [
        (pa.array([True, False]), "b"),
        (pa.array([4, 5], pa.int64()), "i2 + 6"),
        (pa.array([4, 5], pa.int16()), "i8 - 9007199254740989"),
        (pa.array([1.5, 3.0]), "f4"),
        (pa.array([Decimal("123456789.125"), Decimal(1)]), "n2"),
        (pa.array(["text", "none"]), "t"),
        (pa.array([b"\x00\xff", b""]), "y"),
        (pa.array([dt.date(2026, 11, 21), dt.date(1999, 1, 1)]), "d"),
        (pa.array([MOMENT, EARLY]), "ts"),
        (
            pa.array(
                [dt.datetime(2026, 11, 20, 23, 2, 3, tzinfo=dt.timezone.utc), None],
                pa.timestamp("us", "UTC"),
            ),
            "tz",
        ),
        (pa.array(["00112233-4455-6677-8899-aabbccddeeff", "0" * 32]), "u"),
        (pa.array(["happy", "sad"]), "m"),
        (pa.array(["10.0.0.1", "10.0.0.2"]), "inet"),
        (pa.array([[1, None, 3], []], pa.list_(pa.int64())), "a"),
        (pa.array([["a", "b c"], ['"\\']]), "ta"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_of_all_types_are_sent(
    server: PostgresServer, values: pa.Array, column: str, batch: Any
) -> None:
    sql = f"select id from kinds where id = 1 and {column} is not distinct from $1"  # noqa: S608
    function = postgres.lookup(server.dsn, sql, ["k"], batch=batch)

    assert rows_of(function, {"k": values})["id"] == [1, None]


def errors_of(function: object, keys: object, **options: Any) -> list[str | None]:
    found = rows_of(function, {"k": keys}, on_error="capture", **options)
    return [error and error["message"] for error in found["error"]]


def test_a_value_that_arrow_does_not_have_fails_its_row_alone(server: PostgresServer) -> None:
    sql = "select n, d, ts from kinds where id = $1"
    function = postgres.lookup(server.dsn, sql, ["k"])

    first, nan, infinite, last = errors_of(function, [1, 3, 4, 2])

    assert (first, last) == (None, None)
    assert "`n` should be `decimal" in str(nan)
    assert "`d` should be `date`" in str(infinite)


def test_a_value_that_the_parameter_does_not_take_fails_its_row_alone(
    server: PostgresServer,
) -> None:
    function = postgres.lookup(server.dsn, "select name from people where id = $1", ["k"])

    errors = errors_of(function, [1, 2**40, 2])

    first, large, last = errors
    assert (first, last) == (None, None)
    assert large is not None
    assert large.startswith("the value of argument column `k` is not a `int4`: it is out of range")


def test_a_statement_that_returns_a_column_twice_is_told_what_to_write(
    server: PostgresServer,
) -> None:
    sql = "select id, person as id from people join orders on person = id where id = $1"
    with pytest.raises(sa.ConfigurationError) as caught:
        postgres.lookup(server.dsn, sql, ["k"])
    assert str(caught.value) == (
        "the statement returns column `id` twice; name one with `as`: `.. as other`"
    )


def test_an_error_of_one_row_in_a_batch_leaves_the_others(server: PostgresServer) -> None:
    function = postgres.lookup(server.dsn, "select 10 / $1 as x", ["k"], schema="x int")

    first, zero, last = errors_of(function, pa.array([1, 0, 5], pa.int32()))

    assert (first, last) == (None, None)
    assert "SQLSTATE 22012: division by zero" in str(zero)


def test_a_statement_that_writes_is_refused_until_it_may(server: PostgresServer) -> None:
    sql = "insert into log values ($1) returning id, id::numeric as n;"
    (refused,) = errors_of(postgres.lookup(server.dsn, sql, ["k"]), [1])
    assert "SQLSTATE 25006" in str(refused)
    assert str(refused).endswith("a statement that writes needs `writes=True`")

    found = rows_of(postgres.lookup(server.dsn, sql, ["k"], writes=True), {"k": list(range(50))})

    assert found["id"] == list(range(50))
    assert server.run("select count(*) from log") == "50"


NOTING = """
create or replace function note(n int) returns text language plpgsql as
$$ begin insert into log values (n); return repeat('x', 1000); end $$;
create sequence if not exists numbers; truncate log;
"""


@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize(
    "statement",
    [
        "select (select nextval('numbers')) as v where $1 > 0",
        "with n as (select nextval('numbers') as v) select v from n where $1 > 0",
        "select n.v from (select nextval('numbers') as v) n where $1 > 0",
        "select l.v from (values (1)) as t(x), (select length(note(0)) as v) l where $1 > t.x - 1",
    ],
)
def test_what_a_statement_that_writes_does_beside_its_placeholders_is_done_for_each_row(
    server: PostgresServer, statement: str, prepare: bool
) -> None:
    server.run(NOTING)
    options: Any = {"writes": True, "connections": 1, "prepare": prepare}
    function = postgres.lookup(server.dsn, statement, ["k"], "v bigint", **options)

    found = rows_of(function, {"k": pa.array(range(1, 41), pa.int32())})["v"]

    if "note" in statement:
        assert server.run("select count(*) from log") == "40"
    else:
        assert len(set(found)) == 40


@pytest.mark.parametrize("prepare", [True, False])
def test_a_query_that_writes_and_finds_too_much_is_not_run_again(
    server: PostgresServer, prepare: bool
) -> None:
    server.run(NOTING)
    function = postgres.lookup(
        server.dsn,
        "select note($1) as t",
        ["k"],
        "t string",
        writes=True,
        batch=100,
        max_reply_bytes="4 KB",
        prepare=prepare,
        connections=1,
    )

    rows = rows_of(function, {"k": pa.array(range(100), pa.int32())}, on_error="capture", retry=2)

    written = server.run("select count(*) || ' ' || count(distinct id) from log").split()
    assert written[0] == written[1]
    failed = [error for error in rows["error"] if error is not None]
    assert failed
    assert {error["attempts"] for error in failed} == {1}
    assert all("`max_reply_bytes`" in error["message"] for error in failed)
    # Those that were answered were found in queries that were small enough.
    assert {value for value in rows["t"] if value is not None} <= {"x" * 1000}


def test_a_commit_that_nobody_knows_of_is_not_made_again(server: PostgresServer) -> None:
    server.run(
        "create sequence tries; create function lost(i int, state text) returns int "
        "language plpgsql as $$ begin perform nextval('tries'); "
        "raise exception 'who knows' using errcode = state; end $$;"
    )
    tried = {}
    for state in ("40003", "40001", "40P01"):
        server.run("alter sequence tries restart")
        statement = f"select lost($1, '{state}') as v"
        function = postgres.lookup(server.dsn, statement, ["k"], "v int", writes=True)
        (error,) = errors_of(
            function, pa.array([1], pa.int32()), retry=sa.retry.fixed_delay(2, "1ms")
        )
        assert state in str(error)
        tried[state] = int(server.run("select last_value from tries"))
    assert tried == {"40003": 1, "40001": 3, "40P01": 3}


def test_strings_and_comments_of_a_statement_are_left_alone(server: PostgresServer) -> None:
    sql = "select '$1' as a, $$ $2 $$ as b, $1 + 0 as c -- $3"
    function = postgres.lookup(server.dsn, sql, ["k"])

    found = rows_of(function, {"k": pa.array([1, 2], pa.int32())})

    assert found == {"k": [1, 2], "a": ["$1"] * 2, "b": [" $2 "] * 2, "c": [1, 2]}


def test_a_miss_is_tried_again_by_choice(server: PostgresServer) -> None:
    sql = "select name from people where id = $1"
    retry = sa.retry.fixed_delay(1, "1ms").if_miss()

    found = rows_of(
        postgres.lookup(server.dsn, sql, ["k"]), {"k": [3, 4]}, retry=retry, timeout="10s"
    )

    assert found["name"] == [None, "p4"]


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (r"select E'it''s \' $2' as t, $1::int as v", "it's ' $2"),
        ("select E'a' \n 'b\\' $2' as t, $1::int as v", "ab' $2"),
        ("select 'x' as t, -- $9\r$1::int as v", "x"),
        ("select $a$ $1 $$ $a$ as t, /* $2 /* */ $3 */ $1::int as v", " $1 $$ "),
        ("select '$1' as t, a$2 as v from (select $1::int as a$2) as \"$3\"", "$1"),
    ],
)
def test_placeholders_are_those_of_the_server(
    server: PostgresServer, statement: str, text: str, batch: int
) -> None:
    function = postgres.lookup(server.dsn, statement, ["k"], batch=batch)
    found = rows_of(function, {"k": pa.array([7, 8], pa.int32())})
    assert (found["t"], found["v"]) == ([text, text], [7, 8])
