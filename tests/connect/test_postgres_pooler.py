# SPDX-License-Identifier: Apache-2.0
"""Lookups without prepared statements, through PgBouncer in transaction mode and without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import postgres
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres_server import PostgresServer

TABLES = """
create type mood as enum ('sad', 'happy');
create type place as (x int, feeling mood);
create table people (
  id int primary key, name text, feeling mood, u uuid, home place, doc jsonb);
insert into people
  select i, 'p' || i, 'happy', '00112233-4455-6677-8899-aabbccddeeff', row(i, 'sad'::mood)::place,
  '{"x": 1}'
  from generate_series(1, 2000) as i where i % 3 <> 0;
create table orders (person int, item text);
insert into orders select p, p || '-' || l
  from generate_series(1, 50) as p, generate_series(1, 3) as l;
create table log (id int);
create table notes (id int);
create function bump(x int) returns int language plpgsql as
  $$ begin insert into notes values (x); return x; end $$;
"""

STATEMENT = "select name from people where id = $1"
NAMES = [f"p{i}" if i % 3 else None for i in range(1, 2001)]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        running.run(TABLES)
        yield running


@pytest.fixture(scope="module")
def pooler(server: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer(server) as running:
        yield running


def rows_of(function: object, columns: dict[str, Any], **options: Any) -> dict[str, list[Any]]:
    table = pa.table(columns)
    batches = sa.arrow.ordered_wait(table.to_batches(max_chunksize=200), function, **options)
    return pa.Table.from_batches(list(batches)).to_pydict()


@pytest.mark.parametrize("batch", [1, "auto"])
def test_rows_are_found_through_a_pooler(pooler: PgBouncer, batch: Any) -> None:
    function = postgres.lookup(pooler.dsn, STATEMENT, ["k"], batch=batch, prepare=False)

    assert rows_of(function, {"k": list(range(1, 2001))})["name"] == NAMES


def test_prepared_statements_do_not_get_through_this_pooler(pooler: PgBouncer) -> None:
    function = postgres.lookup(pooler.dsn, STATEMENT, ["k"], schema="name string")

    options = {"retry": sa.retry.fixed_delay(3, "1ms"), "timeout": "25s"}
    error = rows_of(function, {"k": [1]}, on_error="capture", **options)["error"][0]

    # It refuses the settings of the connection, with which the statements go together.
    assert "unsupported startup parameter" in error["message"]
    assert error["message"].endswith("behind a pooler such as PgBouncer give `prepare=False`")
    assert error["attempts"] == 1


@pytest.mark.parametrize("batch", [1, "auto"])
def test_a_pooler_that_takes_no_transactions_is_told_at_once(
    server: PostgresServer, batch: Any
) -> None:
    with PgBouncer(server, pool_mode="statement") as pooler:
        function = postgres.lookup(
            pooler.dsn, STATEMENT, ["k"], schema="name string", batch=batch, prepare=False
        )
        options = {"retry": sa.retry.fixed_delay(3, "1ms"), "timeout": "25s"}
        found = rows_of(function, {"k": list(range(20))}, on_error="capture", **options)

    assert [error["attempts"] for error in found["error"]] == [1] * 20
    assert all("pool_mode=transaction" in error["message"] for error in found["error"])


def test_statements_prepared_on_another_connection_name_the_remedy(server: PostgresServer) -> None:
    with PgBouncer(server, ignore_startup_parameters="options") as pooler:
        function = postgres.lookup(pooler.dsn, STATEMENT, ["k"], schema="name string")
        errors = rows_of(function, {"k": list(range(203))}, on_error="capture")["error"]

    messages = [error["message"] for error in errors if error]
    assert messages
    assert all(it.endswith("give `prepare=False`") for it in messages)


IGNORES = {"ignore_startup_parameters": "options"}
"""What administrators set so that programs get through that give settings when they connect."""


def remembered(pooler: PgBouncer) -> set[str]:
    """What another program finds set on the connections of the pooler, which takes them in turn."""
    shown = ", ".join(
        f"current_setting('{name}')"
        for name in ("statement_timeout", "default_transaction_read_only", "search_path")
    )
    return {pooler.run(f"select {shown}") for _ in range(7)}


# Words that libpq looks at before the session is used: without them for each change.
ATTRS = pytest.mark.parametrize(
    "attrs", ["", pytest.param("?target_session_attrs=read-write", marks=pytest.mark.nightly)]
)


@pytest.mark.parametrize("prepare", [True, pytest.param(False, marks=pytest.mark.nightly)])
@ATTRS
@pytest.mark.parametrize("settings", [IGNORES, {}], ids=["ignores-options", "defaults"])
def test_nothing_that_is_set_is_left_behind_for_other_programs(
    server: PostgresServer, prepare: bool, attrs: str, settings: dict[str, str]
) -> None:
    with PgBouncer(server, **settings) as pooler:
        before = remembered(pooler)
        functions = [
            postgres.lookup(
                pooler.dsn + attrs,
                "select $1::int as v",
                ["k"],
                "v int",
                prepare=prepare,
                statement_timeout=timeout,
            )
            for timeout in ("60s", "7s", "60s")
        ]
        columns = {"k": pa.array(range(50), pa.int32())}
        found = [rows_of(it, columns, on_error="capture", retry=0) for it in functions]

        assert remembered(pooler) == before
        pooler.run("insert into log values (-1)")
    for rows in found:
        if prepare:
            assert rows["v"] == [None] * 50
            messages = {error["message"] for error in rows["error"]}
            assert all(it.endswith("such as PgBouncer give `prepare=False`") for it in messages)
        else:
            assert rows["v"] == list(range(50))
    server.run("delete from log")


@pytest.mark.parametrize("prepare", [True, False])
@ATTRS
def test_a_function_of_the_server_that_writes_does_not_without_leave(
    server: PostgresServer, prepare: bool, attrs: str
) -> None:
    server.run("delete from notes")
    columns = {"k": pa.array(range(50), pa.int32())}
    with PgBouncer(server, **IGNORES) as pooler:
        for dsn in (pooler.dsn, server.dsn):
            function = postgres.lookup(
                dsn + attrs, "select bump($1) as v", ["k"], "v int", prepare=prepare
            )
            found = rows_of(function, columns, on_error="capture", retry=0)
            assert found["v"] == [None] * 50
    assert server.run("select count(*) from notes") == "0"


@pytest.mark.parametrize("batch", [1, "auto"])
def test_types_of_the_users_own_are_found_out_and_nothing_is_left_behind(
    server: PostgresServer, batch: Any
) -> None:
    sql = "select id, feeling, u, home, doc from people where id = $1 and feeling = $2"
    with PgBouncer(server, pool_size=1) as pooler:
        function = postgres.lookup(pooler.dsn, sql, ["k", "m"], batch=batch, prepare=False)
        found = rows_of(function, {"k": [1, 2, 3], "m": ["happy"] * 3})
        left = "select name from pg_prepared_statements where name <> $1"
        look = postgres.lookup(pooler.dsn, left, ["k"], batch=batch, prepare=False)

        assert rows_of(look, {"k": [""]})["name"] == [None]

    assert found["feeling"] == ["happy", "happy", None]
    assert found["u"][0] == "00112233-4455-6677-8899-aabbccddeeff"
    assert (found["home"][1], found["doc"][0]) == ("(2,sad)", '{"x": 1}')


def test_the_pooler_is_not_needed(server: PostgresServer) -> None:
    function = postgres.lookup(server.dsn, STATEMENT, ["k"], prepare=False)

    assert rows_of(function, {"k": list(range(1, 2001))})["name"] == NAMES


@pytest.mark.parametrize("batch", [1, "auto"])
def test_a_key_has_all_of_its_rows(pooler: PgBouncer, batch: Any) -> None:
    sql = "select item from orders where person = $1 order by item desc limit 2"
    function = postgres.lookup(pooler.dsn, sql, ["k"], how="inner", batch=batch, prepare=False)

    found = rows_of(function, {"k": [7, 99, 2]})

    assert found == {"k": [7, 7, 2, 2], "item": ["7-3", "7-2", "2-3", "2-2"]}


def test_an_error_of_one_row_leaves_the_others(pooler: PgBouncer) -> None:
    sql = "select 10 / $1 as x"
    function = postgres.lookup(pooler.dsn, sql, ["k"], schema="x int", prepare=False)

    found = rows_of(function, {"k": pa.array([1, 0, 5], pa.int32())}, on_error="capture")

    assert found["x"] == [10, None, 2]
    assert "SQLSTATE 22012" in found["error"][1]["message"]


def test_a_statement_that_writes_is_refused_until_it_may(
    server: PostgresServer, pooler: PgBouncer
) -> None:
    sql = "insert into log values ($1) returning id"
    refused = postgres.lookup(pooler.dsn, sql, ["k"], prepare=False)
    error = rows_of(refused, {"k": [1]}, on_error="capture")["error"][0]
    assert "SQLSTATE 25006" in error["message"]

    function = postgres.lookup(pooler.dsn, sql, ["k"], prepare=False, writes=True)
    found = rows_of(function, {"k": list(range(50))})

    assert found["id"] == list(range(50))
    assert server.run("select count(*) from log") == "50"


def test_the_server_ends_statements_that_take_too_long(pooler: PgBouncer) -> None:
    function = postgres.lookup(
        pooler.dsn,
        "select pg_sleep(20) is null as slept where $1 > 0",
        ["k"],
        statement_timeout="50ms",
        prepare=False,
    )

    error = rows_of(function, {"k": [1]}, on_error="capture")["error"][0]

    assert "SQLSTATE 57014" in error["message"]


def test_a_table_that_changes_is_planned_anew(server: PostgresServer, pooler: PgBouncer) -> None:
    server.run("create table changing as select 1 as id, 5::int as v")
    sql = "select v from changing where id = $1"
    function, writing = (
        postgres.lookup(pooler.dsn, sql, ["k"], "v bigint", prepare=False, writes=writes)
        for writes in (False, True)
    )
    for one in (function, writing):
        assert rows_of(one, {"k": [1]}, retry=0)["v"] == [5]

    server.run("alter table changing alter v type bigint")

    assert rows_of(function, {"k": [1]}, retry=0)["v"] == [5]
    # That one was carried out, and may have written.
    error = rows_of(writing, {"k": [1]}, on_error="capture", retry=3)["error"][0]
    assert "have other types" in error["message"]
    assert error["attempts"] == 1
    assert rows_of(writing, {"k": [1]}, retry=0)["v"] == [5]


def test_a_pooler_that_is_restarted_costs_nothing_but_a_retry(server: PostgresServer) -> None:
    with PgBouncer(server) as pooler:
        function = postgres.lookup(pooler.dsn, STATEMENT, ["k"], prepare=False)

        def batches() -> Iterator[pa.RecordBatch]:
            for index in range(20):
                if index == 10:
                    pooler.restart()
                yield pa.RecordBatch.from_pydict(
                    {"k": list(range(100 * index + 1, 100 * index + 101))}
                )

        retry = sa.retry.exponential_backoff(40, "20ms", "500ms", 2.0)
        found = sa.arrow.ordered_wait(batches(), function, retry=retry, timeout="25s")

        assert pa.Table.from_batches(list(found)).column("name").to_pylist() == NAMES
