# SPDX-License-Identifier: Apache-2.0
"""A PgBouncer that closes connections: each row has its result, and one only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import postgres
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

STATEMENT = "select name from people where id = $1"
NAMES = [f"p{i}" if i % 3 else None for i in range(1, 2001)]
RETRY = sa.retry.exponential_backoff(40, "20ms", "500ms", 2.0)
LOCK = 815
PATIENT = {"server_login_retry": "0.05"}
"""Otherwise it waits 15 s before it connects again to a server whose connection was closed."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        running.run("""
            create table people (id int primary key, name text);
            insert into people
              select i, 'p' || i from generate_series(1, 2000) as i where i % 3 <> 0;
            create table written (k int);
            create function write(k int) returns int language sql as
              'insert into written values (k) returning k';
        """)
        yield running


@pytest.fixture
def pooler(server: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer(server, **PATIENT) as running:
        yield running


def batches(at: Callable[[int], None] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields 20 batches of 100 rows; calls `at` before each with its number."""
    for index in range(20):
        if at is not None:
            at(index)
        yield pa.RecordBatch.from_pydict({"k": list(range(100 * index + 1, 100 * index + 101))})


def names(function: postgres.Lookup, source: Iterator[pa.RecordBatch], **options: Any) -> list[Any]:
    found = sa.arrow.ordered_wait(source, function, timeout="25s", **options)
    return pa.Table.from_batches(list(found)).column("name").to_pylist()


def reconnect(pooler: PgBouncer) -> None:
    """Has it leave each connection to the server after its transaction."""
    pooler.tell("RECONNECT")


def restart(pooler: PgBouncer) -> None:
    """Ends all connections of its clients, whatever they are at.

    Not by `KILL`: PgBouncer 1.18 crashes where a client is logging in at that moment.
    """
    pooler.restart()


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.nightly), "auto"])
@pytest.mark.parametrize("act", [reconnect, restart])
def test_no_row_is_lost_or_doubled_by_what_an_administrator_does(
    pooler: PgBouncer, act: Callable[[PgBouncer], None], batch: Any
) -> None:
    function = postgres.lookup(
        pooler.dsn, STATEMENT, ["k"], schema="name string", batch=batch, prepare=False
    )

    def at(index: int) -> None:
        if index % 5 == 2:
            act(pooler)

    assert names(function, batches(at), retry=RETRY) == NAMES


def test_server_connections_for_one_transaction_each_cost_no_retry(server: PostgresServer) -> None:
    with PgBouncer(server, server_lifetime="0") as pooler:
        function = postgres.lookup(pooler.dsn, STATEMENT, ["k"], prepare=False)

        assert names(function, batches()) == NAMES


def test_a_pooler_that_closes_idle_clients_is_connected_to_again(server: PostgresServer) -> None:
    with PgBouncer(server, client_idle_timeout="1") as pooler:
        function = postgres.lookup(
            pooler.dsn, STATEMENT, ["k"], schema="name string", prepare=False
        )

        def is_idle() -> bool:
            return "sparkawait" not in pooler.tell("SHOW CLIENTS")

        def at(index: int) -> None:
            if index == 10:
                wait_until(is_idle)

        assert names(function, batches(at), retry=RETRY) == NAMES


def test_a_pooler_whose_server_is_restarted_is_asked_again(server: PostgresServer) -> None:
    with PgBouncer(server, **PATIENT) as pooler:
        function = postgres.lookup(
            pooler.dsn, STATEMENT, ["k"], schema="name string", prepare=False
        )

        def at(index: int) -> None:
            if index == 10:
                server.restart()

        assert names(function, batches(at), retry=RETRY) == NAMES


def waiting(server: PostgresServer) -> int:
    where = "locktype = 'advisory' and not granted"
    return int(server.run(f"select count(*) from pg_locks where {where}"))  # noqa: S608


def test_rows_whose_query_was_killed_are_called_again(
    server: PostgresServer, pooler: PgBouncer
) -> None:
    """The lock shows where the query is, so that it is killed while it runs."""
    sql = f"select $1::int as name, pg_advisory_xact_lock_shared({LOCK}) is null as waited"
    function = postgres.lookup(
        pooler.dsn, sql, ["k"], schema="name int", prepare=False, connections=1
    )
    with psycopg.connect(server.dsn, autocommit=True) as holder:
        holder.execute("select pg_advisory_lock(%s)", [LOCK])

        def source() -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"k": list(range(100))})
            wait_until(lambda: waiting(server) == 1)
            pooler.tell("KILL postgres")
            pooler.tell("RESUME postgres")
            # A server does not notice that its client is gone while it waits for a lock.
            wait_until(lambda: waiting(server) == 2)
            holder.execute("select pg_advisory_unlock(%s)", [LOCK])

        assert names(function, source(), retry=RETRY) == list(range(100))


def test_what_is_written_is_written_once_where_nothing_is_tried_again(
    server: PostgresServer, pooler: PgBouncer
) -> None:
    function = postgres.lookup(
        pooler.dsn, "select write($1) as name", ["k"], writes=True, prepare=False
    )

    def at(index: int) -> None:
        if index % 5 == 2:
            restart(pooler)

    found = names(function, batches(at), on_error="null")

    # A row without a result may have been written: nobody knows whether its commit got through.
    written = [int(it) for it in server.run("select k from written").split()]
    assert len(written) == len(set(written))
    assert {it for it in found if it is not None} <= set(written)


def test_rows_are_called_again_where_a_client_keeps_its_connection(server: PostgresServer) -> None:
    settings = {"pool_mode": "session", "ignore_startup_parameters": "options"}
    with PgBouncer(server, pool_size=4, **settings, **PATIENT) as pooler:
        # One that is refused the settings would leave what it sets to the next client.
        prepared = postgres.lookup(pooler.dsn, STATEMENT, ["k"], schema="name string")
        with pytest.raises(sa.AsyncIOError, match="give `prepare=False`"):
            names(prepared, batches(lambda _: None), retry=RETRY)
        function = postgres.lookup(
            pooler.dsn, STATEMENT, ["k"], schema="name string", prepare=False
        )

        def at(index: int) -> None:
            if index % 5 == 2:
                restart(pooler)

        assert names(function, batches(at), retry=RETRY) == NAMES


def test_a_statement_that_nobody_waits_for_is_ended_behind_a_pooler(server: PostgresServer) -> None:
    sleep = "select $1::int as k2, pg_sleep(case when $1 < 90 then 40 else 0 end) is null as slept"
    busy = (
        "select count(*) from pg_stat_activity where state = 'active'"
        " and query like '%pg_sleep%' and pid <> pg_backend_pid()"
    )
    with PgBouncer(server, pool_size=2, **PATIENT) as pooler:
        function = postgres.lookup(
            pooler.dsn, sleep, ["k"], "k2 int", prepare=False, connections=2, batch=1
        )

        def found(*keys: int, timeout: str) -> list[int | None]:
            batch = pa.RecordBatch.from_pydict({"k": pa.array(keys, pa.int32())})
            out = sa.arrow.ordered_wait([batch], function, on_error="null", timeout=timeout)
            return [it for batch in out for it in batch.column("k2").to_pylist()]

        for pair in range(3):
            # As many as the pooler has connections, each time.
            assert found(2 * pair, 2 * pair + 1, timeout="400ms") == [None, None]

        # Those of the pooler are free again.
        assert found(90, 91, timeout="15s") == [90, 91]
        wait_until(lambda: server.run(busy) == "0")
