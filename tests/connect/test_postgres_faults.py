# SPDX-License-Identifier: Apache-2.0
"""Lookups in a PostgreSQL server that fails, refuses or stalls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import postgres
from tests.support.postgres_server import PASSWORD, PostgresServer
from tests.support.servers import free_port
from tests.support.waiting import wait_until

SQL = "select $1::int * 2 as double"
SCHEMA = "double int"
RETRY = sa.retry.exponential_backoff(40, "20ms", "500ms", 2.0)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


def doubles(function: object, batches: Any, **options: Any) -> list[int]:
    options = {"retry": RETRY, "timeout": "25s"} | options
    found = sa.arrow.ordered_wait(batches, function, **options)
    return pa.Table.from_batches(list(found)).column("double").to_pylist()


def batch_of(first: int, rows: int = 100) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": pa.array(range(first, first + rows), pa.int32())})


def failure_of(function: object, **options: Any) -> str:
    options = {"on_error": "capture"} | options
    (out,) = sa.arrow.ordered_wait(
        [batch_of(1, 1)], function, tuning=sa.Tuning(buffer_timeout=None), **options
    )
    return out.to_pydict()["error"][0]["message"]


def test_a_server_that_is_down_fails_calls_with_a_clear_error() -> None:
    dsn = f"postgresql://tester:{PASSWORD}@127.0.0.1:{free_port()}/postgres"

    message = failure_of(postgres.lookup(dsn, SQL, ["k"], schema=SCHEMA))

    assert "connecting failed" in message
    assert "refused" in message
    assert PASSWORD not in message


def test_without_a_server_the_schema_must_be_given() -> None:
    dsn = f"postgresql://tester:{PASSWORD}@127.0.0.1:{free_port()}/postgres"

    with pytest.raises(sa.ConfigurationError, match=r"connecting failed.*give schema=") as caught:
        postgres.lookup(dsn, SQL, ["k"])

    assert PASSWORD not in str(caught.value)


def test_without_the_secret_the_schema_must_be_given() -> None:
    with pytest.raises(sa.ConfigurationError, match="give schema="):
        postgres.lookup(sa.secret("NOT_THERE"), SQL, ["k"])


def test_a_server_that_starts_late_is_waited_for_by_the_retry(server: PostgresServer) -> None:
    server.stop()
    function = postgres.lookup(server.dsn, SQL, ["k"], schema=SCHEMA)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of(0)
        server.start()
        yield batch_of(100)

    assert doubles(function, batches()) == [2 * i for i in range(200)]


def test_nothing_is_lost_when_the_server_is_killed_and_restarted(server: PostgresServer) -> None:
    function = postgres.lookup(server.dsn, SQL, ["k"], schema=SCHEMA)

    def batches() -> Iterator[pa.RecordBatch]:
        for index in range(40):
            if index == 20:
                server.restart()
            yield batch_of(100 * index)

    assert doubles(function, batches()) == [2 * i for i in range(4000)]


def test_nothing_is_lost_when_connections_are_terminated(server: PostgresServer) -> None:
    function = postgres.lookup(server.dsn, SQL, ["k"], schema=SCHEMA)
    terminate = "select pg_terminate_backend(pid) from pg_stat_activity"

    def batches() -> Iterator[pa.RecordBatch]:
        for index in range(40):
            if index % 10 == 5:
                server.run(f"{terminate} where application_name = 'sparkawait'")
            yield batch_of(100 * index)

    assert doubles(function, batches()) == [2 * i for i in range(4000)]


def test_too_many_connections_leave_those_that_there_are() -> None:
    with PostgresServer(max_connections="4", superuser_reserved_connections="2") as server:
        server.run("create role reader login password 'reader'")
        dsn = server.dsn.replace(f"tester:{PASSWORD}", "reader:reader")
        function = postgres.lookup(dsn, SQL, ["k"], schema=SCHEMA, connections=8)

        found = doubles(function, [batch_of(1000 * i, 1000) for i in range(5)])

    assert found == [2 * i for i in range(5000)]


def test_idle_connections_are_closed_before_others_may_do_so_where_statements_write(
    server: PostgresServer,
) -> None:
    server.run("create table written (k int)")
    write = "insert into written values ($1::int) returning k * 2 as double"

    def connections(name: str) -> int:
        where = f"application_name = '{name}'"
        return int(server.run(f"select count(*) from pg_stat_activity where {where}"))  # noqa: S608

    for name, sql in (("reading", SQL), ("writing", write)):
        dsn = server.dsn_with(PASSWORD, application_name=name)
        options = {"writes": sql == write, "connections": 3}
        function = postgres.lookup(dsn, sql, ["k"], schema=SCHEMA, **options)
        assert doubles(function, [batch_of(0, 23)]) == [2 * i for i in range(23)]
        assert 1 <= connections(name) <= 3

    wait_until(lambda: connections("writing") == 0)
    assert connections("reading") >= 1
    assert server.run("select count(*) from written") == "23"


def test_a_stalled_statement_times_its_row_out(server: PostgresServer) -> None:
    sql = "select 1 as double, pg_sleep(20) is null as slept where $1 > 0"
    schema = "double int, slept boolean"
    function = postgres.lookup(server.dsn, sql, ["k"], schema=schema, statement_timeout="19s")
    assert doubles(function, [batch_of(0, 1)]) == [None], "connects"

    message = failure_of(function, timeout="200ms")

    assert message == "timed out after 200ms and 1 attempt"


SLEEP = "select $1::int as k2, pg_sleep(case when $1 = 0 then 40 else 0 end) is null as slept"


def active(server: PostgresServer) -> str:
    where = "state = 'active' and query like '%pg_sleep%' and pid <> pg_backend_pid()"
    return server.run(f"select count(*) from pg_stat_activity where {where}")  # noqa: S608


@pytest.mark.parametrize(("batch", "prepare"), [(1, True), ("auto", False)])
def test_a_statement_that_nobody_waits_for_is_ended_and_others_take_its_place(
    server: PostgresServer, batch: Any, prepare: Any
) -> None:
    function = postgres.lookup(
        server.dsn, SLEEP, ["k"], schema="k2 int", connections=1, batch=batch, prepare=prepare
    )

    def found(*keys: int, timeout: str) -> list[int | None]:
        batch = pa.RecordBatch.from_pydict({"k": pa.array(keys, pa.int32())})
        (out,) = sa.arrow.ordered_wait(
            [batch],
            function,
            on_error="null",
            timeout=timeout,
            tuning=sa.Tuning(buffer_timeout=None),
        )
        return out.column("k2").to_pylist()

    assert found(1, 2, timeout="25s") == [1, 2]
    assert found(0, 0, timeout="100ms") == [None, None]
    assert found(3, 4, timeout="15s") == [3, 4]
    wait_until(lambda: active(server) == "0")


def test_a_task_that_is_closed_leaves_no_statement_behind(server: PostgresServer) -> None:
    function = postgres.lookup(server.dsn, SLEEP, ["k"], schema="k2 int", batch=1)
    keys = pa.RecordBatch.from_pydict({"k": pa.array([1, 2, 3, 0, 0], pa.int32())})
    out = sa.arrow.unordered_wait([keys], function, tuning=sa.Tuning(max_rows=1))

    assert next(out).column("k2").to_pylist()[0] > 0
    wait_until(lambda: active(server) != "0")
    out.close()

    wait_until(lambda: active(server) == "0")


def test_the_server_ends_statements_that_take_too_long(server: PostgresServer) -> None:
    sql = "select 1 as double, pg_sleep(20) is null as slept where $1 > 0"
    schema = "double int, slept boolean"
    function = postgres.lookup(server.dsn, sql, ["k"], schema=schema, statement_timeout="50ms")

    assert "SQLSTATE 57014" in failure_of(function)


def test_a_wrong_password_is_not_tried_again(server: PostgresServer) -> None:
    dsn = server.dsn_with("wrong-guess")
    function = postgres.lookup(dsn, SQL, ["k"], schema=SCHEMA)

    message = failure_of(function, retry=RETRY, timeout="25s")

    assert "SQLSTATE 28P01" in message
    assert message.endswith("; check user and password")
    assert "wrong-guess" not in message
    assert "wrong-guess" not in repr(function)


def test_a_statement_that_is_wrong_is_named_when_the_function_is_made(
    server: PostgresServer,
) -> None:
    with pytest.raises(sa.ConfigurationError, match="SQLSTATE 42P01"):
        postgres.lookup(server.dsn, "select 1 from nowhere where x = $1", ["k"])
    with pytest.raises(sa.ConfigurationError, match="1 placeholders and `args` names 2"):
        postgres.lookup(server.dsn, SQL, ["k", "k"])


def test_the_logs_of_an_error_do_not_quote_values(server: PostgresServer) -> None:
    function = postgres.lookup(server.dsn, "select $1::int as x", ["k"], schema="x int")
    function_of_text = postgres.lookup(
        server.dsn, "select ($1::text)::int as x", ["k"], schema="x int"
    )
    function_of_name = postgres.lookup(
        server.dsn,
        "select count(*)::int as x from pg_class where oid = ($1::text)::regclass",
        ["k"],
    )
    batch = pa.RecordBatch.from_pydict({"k": ["hidden-value"]})

    for one in (function, function_of_text, function_of_name):
        with pytest.raises(sa.AsyncFunctionError) as caught:
            list(sa.arrow.ordered_wait([batch], one))
        assert "hidden-value" not in str(caught.value)
