# SPDX-License-Identifier: Apache-2.0
"""Lookups in PostgreSQL whose replies stall, are garbage, are cut off or are huge."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import postgres
from tests.support.postgres_server import PASSWORD, PostgresServer
from tests.support.relay import Relay, Spoil
from tests.support.servers import LOOPBACK

SQL = "select $1::int * 2 as double"
SCHEMA = "double int"
RETRY = sa.retry.exponential_backoff(40, "20ms", "500ms", 2.0)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


def batch_of(first: int, rows: int = 100) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": pa.array(range(first, first + rows), pa.int32())})


def rows_of(function: object, batches: Any, **options: Any) -> dict[str, list[Any]]:
    options = {"timeout": "25s"} | options
    return pa.Table.from_batches(
        list(sa.arrow.ordered_wait(batches, function, **options))
    ).to_pydict()


def error_of(function: object, **options: Any) -> dict[str, Any]:
    return rows_of(function, [batch_of(1, 1)], on_error="capture", **options)["error"][0]


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that sends an answer to each thing that comes, and then hangs up."""
    with socket.create_server((LOOPBACK, 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        for answer in answers:
                            connection.recv(1 << 16)
                            connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(1 << 16):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            port = listener.getsockname()[1]
            yield f"postgresql://tester:{PASSWORD}@{LOOPBACK}:{port}/postgres?sslmode=disable"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


WELCOME = b"R\0\0\0\x08\0\0\0\0" + b"Z\0\0\0\x05I"
HAS_SETTINGS = (
    b"T\0\0\0\x1a\0\x01s\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0"
    b"D\0\0\0\x0c\0\x01\0\0\0\x02onC\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I"
)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "connecting failed"),
        ((b"",), "connecting failed"),
        ((b"R\0\0\0\x00\0\0\0\0",), "connecting failed"),
        (
            (WELCOME, HAS_SETTINGS, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "preparing the statement failed",
        ),
        ((WELCOME, HAS_SETTINGS, b"1\0\0\0\x04t\0\0"), "preparing the statement failed"),
        ((WELCOME, HAS_SETTINGS, b"D\0\0\0\x01"), "preparing the statement failed"),
    ],
    ids=["another protocol", "nothing", "no length", "later", "cut off", "no length later"],
)
def test_garbage_ends_the_connection_and_may_be_retried(
    answers: tuple[bytes, ...], reason: str
) -> None:
    with answering(*answers) as dsn:
        function = postgres.lookup(dsn, SQL, ["k"], schema=SCHEMA)
        error = error_of(function, retry=sa.retry.fixed_delay(2, "1ms"))

    assert reason in error["message"]
    assert PASSWORD not in error["message"]
    assert error["attempts"] == 3


def test_a_host_that_has_no_address_is_named_and_may_be_retried() -> None:
    # Longer than a name may be, so that no name server is asked.
    dsn = f"postgresql://tester:{PASSWORD}@{'nowhere' * 20}.invalid/postgres"

    error = error_of(
        postgres.lookup(dsn, SQL, ["k"], schema=SCHEMA), retry=sa.retry.fixed_delay(1, "1ms")
    )

    assert "connecting failed: failed to lookup address" in error["message"]
    assert PASSWORD not in error["message"]
    assert error["attempts"] == 2


@contextlib.contextmanager
def relayed(server: PostgresServer, spoil: Spoil) -> Iterator[str]:
    with Relay(server.port, spoil) as relay:
        yield f"postgresql://tester:{PASSWORD}@{LOOPBACK}:{relay.port}/postgres"


@pytest.mark.parametrize("batch", [1, "auto"])
@pytest.mark.parametrize("prepare", [True, False])
def test_nothing_is_lost_when_answers_are_cut_off(
    server: PostgresServer, batch: Any, prepare: Any
) -> None:
    seen: dict[int, int] = {}

    def spoil(connection: int, sent: bytes) -> bytes | None:
        seen[connection] = seen.get(connection, 0) + len(sent)
        # In the middle of an answer: the first two connections, since one may get all queries.
        return None if connection < 2 and seen[connection] > 3000 else sent

    with relayed(server, spoil) as dsn:
        function = postgres.lookup(
            dsn, SQL, ["k"], schema=SCHEMA, batch=batch, prepare=prepare, connections=2
        )
        batches = [batch_of(200 * i, 200) for i in range(10)]
        found = rows_of(function, batches, retry=RETRY)

    assert found["double"] == [2 * i for i in range(2000)]
    assert len(seen) > 2


@pytest.mark.parametrize("batch", [1, "auto"])
@pytest.mark.parametrize("prepare", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_login_that_takes_longer_than_an_attempt_is_made_once_a_connection(
    server: PostgresServer, batch: Any, prepare: Any
) -> None:
    seen: set[int] = set()

    def slow(connection: int, sent: bytes) -> bytes:
        if connection not in seen:
            seen.add(connection)
            # Attempts that waited for it would end meanwhile.
            threading.Event().wait(0.9)
        return sent

    with relayed(server, slow) as dsn:
        function = postgres.lookup(dsn, SQL, ["k"], schema=SCHEMA, batch=batch, prepare=prepare)
        options = {"attempt_timeout": "300ms", "retry": sa.retry.fixed_delay(12, "50ms")}
        found = rows_of(function, [batch_of(0, 20)], **options)

    assert found["double"] == [2 * i for i in range(20)]
    # 4 connections; without prepared statements another one finds the types out. On a busy machine
    # a query may take longer than an attempt, too, and its connection ends with it.
    assert len(seen) <= 9


def test_a_login_goes_on_when_the_rows_that_came_first_have_run_out_of_time(
    server: PostgresServer,
) -> None:
    logins: set[int] = set()
    release = threading.Event()

    def held(connection: int, sent: bytes) -> bytes:
        logins.add(connection)
        release.wait(60)
        return sent

    with relayed(server, held) as dsn:
        function = postgres.lookup(dsn, SQL, ["k"], schema=SCHEMA, connections=1)
        options = {"timeout": "200ms", "retry": 0, "on_error": "capture", "max_concurrency": 1}
        errors = rows_of(function, [batch_of(0, 5)], **options)["error"]
        release.set()
        found = rows_of(function, [batch_of(0, 20)], max_concurrency=1)

    assert [error["kind"] for error in errors] == ["element-timed-out"] * 5
    assert found["double"] == [2 * i for i in range(20)]
    assert len(logins) == 1


@pytest.mark.parametrize("batch", [1, "auto"])
@pytest.mark.parametrize("prepare", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_connection_that_falls_silent_is_given_up(
    server: PostgresServer, batch: Any, prepare: Any
) -> None:
    seen: dict[int, int] = {}

    def spoil(connection: int, sent: bytes) -> bytes | None:
        seen[connection] = seen.get(connection, 0) + len(sent)
        # The first swallows what it is asked to pass on, and stays open.
        return b"" if connection == 0 and seen[connection] > 3000 else sent

    with relayed(server, spoil) as dsn:
        function = postgres.lookup(
            dsn,
            SQL,
            ["k"],
            schema=SCHEMA,
            batch=batch,
            prepare=prepare,
            connections=1,
            connect_timeout="500ms",
            statement_timeout="500ms",
        )
        batches = [batch_of(200 * i, 200) for i in range(10)]
        found = rows_of(function, batches, retry=RETRY)

    assert found["double"] == [2 * i for i in range(2000)]


def test_silence_is_named_when_it_is_the_end(server: PostgresServer) -> None:
    asked = threading.Event()

    def spoil(_: int, sent: bytes) -> bytes | None:
        return b"" if asked.is_set() else sent

    with relayed(server, spoil) as dsn:
        function = postgres.lookup(
            dsn,
            SQL,
            ["k"],
            schema=SCHEMA,
            connections=1,
            connect_timeout="600ms",
            statement_timeout="400ms",
        )
        rows_of(function, [batch_of(1)], retry=RETRY)
        asked.set()
        error = error_of(function, retry=0)

    assert "said nothing for 1s, which is `statement_timeout` and" in error["message"]


def test_a_paused_server_is_the_rows_timeout_and_the_next_rows_are_found() -> None:
    with PostgresServer() as server:
        function = postgres.lookup(server.dsn, SQL, ["k"])

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch_of(0)

        def rows(first: int, timeout: str) -> list[int | None]:
            found = rows_of(function, [batch_of(first)], on_error="null", timeout=timeout)
            return found["double"]

        assert rows(0, "25s") == [2 * i for i in range(100)]
        server.pause()
        try:
            assert rows(100, "200ms") == [None] * 100
        finally:
            server.resume()
        assert rows(200, "25s") == [2 * i for i in range(200, 300)]


@pytest.mark.parametrize("batch", [1, "auto"])
@pytest.mark.parametrize("prepare", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_rows_that_find_too_much_fail_alone(
    server: PostgresServer, batch: Any, prepare: Any
) -> None:
    sql = "select repeat('x', $1 * 1000) as long, $1 as again"
    function = postgres.lookup(
        server.dsn,
        sql,
        ["k"],
        schema="long string, again int",
        batch=batch,
        prepare=prepare,
        connections=1,
        max_reply_bytes=17_100,
    )

    found = rows_of(function, [batch_of(1, 23)], on_error="capture")

    assert found["again"] == [k if k <= 17 else None for k in range(1, 24)]
    assert [len(it or "") for it in found["long"][:17]] == [1000 * k for k in range(1, 18)]
    messages = {error["message"] for error in found["error"] if error}
    assert messages == {"PostgreSQL: more was found than the 17100 bytes of `max_reply_bytes`"}


def test_a_huge_reply_gets_through(server: PostgresServer) -> None:
    sql = "select repeat('x', 100) as x, n from generate_series(1, $1) as n"
    function = postgres.lookup(server.dsn, sql, ["k"], schema="x string, n int")
    keys = pa.RecordBatch.from_pydict({"k": pa.array([100_000, 0, 200_000], pa.int32())})

    found = pa.Table.from_batches(list(sa.arrow.ordered_wait([keys], function)))

    assert found.num_rows == 300_001
    assert found.column("n").to_pylist()[-1] == 200_000
    assert found.column("n").null_count == 1
