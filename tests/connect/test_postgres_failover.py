# SPDX-License-Identifier: Apache-2.0
"""Lookups in PostgreSQL where there are several servers, and the one that is asked may change."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import postgres
from tests.support.postgres_server import PASSWORD, PostgresServer
from tests.support.relay import Relay
from tests.support.servers import LOOPBACK, find_program, free_port
from tests.support.waiting import wait_until

KIND = "select pg_is_in_recovery()::int as standby, $1::int as k2"
SCHEMA = "standby int, k2 int"
WORDS = ["any", "read-write", "read-only", "primary", "standby", "prefer-standby"]
UNTIL_BACK = sa.retry.exponential_backoff(200, "20ms", "200ms", 2.0, budget=None)
MANY = "drop table if exists kept; create table kept (id int primary key, name text)"


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with PostgresServer(max_connections="300") as running:
        yield running


@pytest.fixture(scope="module")
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with PostgresServer(primary=primary, max_connections="300") as running:
        yield running


def dsn_of(*ports: int, words: str = "") -> str:
    hosts, places = ",".join([LOOPBACK] * len(ports)), ",".join(map(str, ports))
    login = f"user=tester password={PASSWORD} dbname=postgres"
    return f"host={hosts} port={places} {login} {words}"


def rows_of(function: object, *keys: int, **options: Any) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict({"k": pa.array(keys, pa.int32())})
    options = {"on_error": "capture", "timeout": "25s"} | options
    out = sa.arrow.ordered_wait([batch], function, **options)
    rows = [row for batch in out for row in batch.to_pylist()]
    assert [row["k"] for row in rows] == list(keys)
    return rows


def of_libpq(dsn: str) -> str:
    """What the official client finds there; empty if it takes none of the servers."""
    command = [find_program("psql"), dsn, "-qAt", "-c", "select pg_is_in_recovery()::int"]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert "too many clients" not in done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("writes", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize("word", WORDS)
def test_the_server_that_answers_is_the_one_that_libpq_takes(
    primary: PostgresServer, standby: PostgresServer, word: str, writes: bool
) -> None:
    words = f"target_session_attrs={word}"
    ports = (primary.port, standby.port)
    for order in (ports, ports[::-1], ports[:1], ports[1:]):
        dsn = dsn_of(*order, words=words)
        expected = of_libpq(dsn)
        function = postgres.lookup(dsn, KIND, ["k"], SCHEMA, writes=writes, batch=1, connections=1)
        found = rows_of(function, 7, 13, retry=0)
        if expected:
            assert [row["standby"] for row in found] == [int(expected)] * 2, order
        else:
            messages = {row["error"]["message"] for row in found}
            assert all(f"{words} does not take" in it.replace("`", "") for it in messages)


def test_a_lookup_that_reads_has_a_read_only_connection_to_the_primary_that_it_asks_for(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    dsn = dsn_of(standby.port, primary.port, words="target_session_attrs=read-write")
    show = "select current_setting('transaction_read_only') as mode where $1 > 0"

    for prepare in (True, False):
        function = postgres.lookup(dsn, show, ["k"], "mode string", prepare=prepare)
        assert [row["mode"] for row in rows_of(function, 1, 2)] == ["on", "on"]


@pytest.mark.parametrize(
    "hosts",
    ["127.0.0.1,127.0.0.1", pytest.param("localhost,localhost", marks=pytest.mark.nightly)],
)
def test_a_host_that_accepts_and_is_silent_costs_its_own_time_and_not_that_of_the_next(
    primary: PostgresServer, hosts: str
) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        ports = f"{silent.getsockname()[1]},{primary.port}"
        login = f"user=tester password={PASSWORD} dbname=postgres"
        dsn = f"host={hosts} port={ports} {login}"
        function = postgres.lookup(dsn, KIND, ["k"], SCHEMA, connect_timeout="1700ms")

        found = rows_of(function, *range(1, 24), retry=0)

    assert [row["k2"] for row in found] == list(range(1, 24))


def test_none_of_several_hosts_says_how_many_there_are() -> None:
    dsn = dsn_of(free_port(), free_port(), free_port())
    function = postgres.lookup(dsn, KIND, ["k"], SCHEMA)

    (row,) = rows_of(function, 1, retry=0)

    assert "none of the 3 hosts could be used" in row["error"]["message"]
    assert PASSWORD not in row["error"]["message"]


def test_a_primary_that_is_demoted_is_left_for_the_one_behind_the_same_name() -> None:
    insert = "insert into kept values ($1::int, 'x') on conflict do nothing returning id as id2"
    with PostgresServer() as old, PostgresServer() as new:
        for server in (old, new):
            server.run(MANY)
        with Relay(old.port, lambda _, sent: sent) as relay:
            dsn = dsn_of(relay.port)
            function = postgres.lookup(dsn, insert, ["k"], "id2 int", writes=True, connections=1)
            assert [row["id2"] for row in rows_of(function, 1, 2)] == [1, 2]
            old.run("alter system set default_transaction_read_only = on")
            old.run("select pg_reload_conf()")
            wait_until(lambda: old.run("show default_transaction_read_only") == "on")
            relay.lead_to(new.port)

            rows = rows_of(function, *range(3, 20), retry=1)

        assert [row["id2"] for row in rows] == list(range(3, 20))
        assert (old.run("select count(*) from kept"), new.run("select count(*) from kept")) == (
            "2",
            "17",
        )


def test_a_write_that_was_not_allowed_stays_refused_where_lookups_only_read(
    primary: PostgresServer,
) -> None:
    primary.run(MANY)
    insert = "insert into kept values ($1::int, 'x') returning id as id2"
    function = postgres.lookup(primary.dsn, insert, ["k"], "id2 int")

    (row,) = rows_of(function, 1, retry=sa.retry.fixed_delay(3, "1ms"))

    assert "25006" in row["error"]["message"]
    assert (row["error"]["kind"], row["error"]["attempts"]) == ("request-refused", 1)


@pytest.mark.parametrize(("batch", "writes"), [(1, False), ("auto", False), (1, True)])
def test_a_table_that_is_altered_costs_no_row_and_no_retry(
    primary: PostgresServer, batch: Any, writes: bool
) -> None:
    primary.run(MANY)
    primary.run("insert into kept select i, 'n' || i from generate_series(0, 299) as i")
    select = "select name from kept where id = $1"
    function = postgres.lookup(
        primary.dsn, select, ["k"], "name string", batch=batch, writes=writes, connections=1
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for start in (0, 100, 200):
            if start:
                kind = {100: "varchar(17)", 200: "char(5)"}[start]
                primary.run(f"alter table kept alter column name type {kind}")
            yield pa.RecordBatch.from_pydict({"k": pa.array(range(start, start + 100), pa.int32())})

    out = sa.arrow.ordered_wait(batches(), function, retry=0, max_concurrency=100)
    names = [name for batch in out for name in batch.column("name").to_pylist()]

    assert [name.rstrip() for name in names] == [f"n{i}" for i in range(300)]


def test_what_the_server_does_not_support_is_not_planned_again(primary: PostgresServer) -> None:
    primary.run(
        "create or replace function refuses(int) returns int language plpgsql as $$ begin"
        " raise exception 'not here' using errcode = '0A000'; end $$"
    )
    function = postgres.lookup(primary.dsn, "select refuses($1) as x", ["k"], "x int", batch=1)

    rows = rows_of(function, 1, 2, retry=sa.retry.fixed_delay(3, "1ms"))

    assert [row["error"]["attempts"] for row in rows] == [1, 1]
    assert "0A000" in rows[0]["error"]["message"]


def test_a_reply_beyond_its_bound_is_not_read_to_its_end(primary: PostgresServer) -> None:
    passed = [0]

    def count(_: int, sent: bytes) -> bytes:
        passed[0] += len(sent)
        return sent

    large = "select repeat('x', 1000000) as x from generate_series(1, 300 * $1::int)"
    with Relay(primary.port, count) as relay:
        dsn = dsn_of(relay.port, words="sslmode=disable")
        function = postgres.lookup(
            dsn, large, ["k"], "x string", max_reply_bytes="3 MB", connections=1
        )
        (row,) = rows_of(function, 1)
        assert "max_reply_bytes" in row["error"]["message"]
        wait_until(lambda: primary.run(BUSY) == "0")

    assert passed[0] < 100 << 20


BUSY = (
    "select count(*) from pg_stat_activity where state = 'active'"
    " and query like '%repeat%' and pid <> pg_backend_pid()"
)


def test_a_failover_loses_no_read_and_no_idempotent_write() -> None:
    upsert = (
        "insert into kept values ($1::int, 'x') on conflict (id) do update set name = 'x'"
        " returning id as id2"
    )
    read = "select $1::int as id2"
    with PostgresServer() as old:
        old.run(MANY)
        with PostgresServer(primary=old) as new:
            dsn = dsn_of(old.port, new.port, words="target_session_attrs=read-write")
            reads = postgres.lookup(dsn, read, ["k"], "id2 int")
            writes = postgres.lookup(dsn, upsert, ["k"], "id2 int", writes="idempotent")

            def batches(kills: bool) -> Iterator[pa.RecordBatch]:
                for start in range(0, 3000, 100):
                    if kills and start == 1500:
                        old.kill()
                        new.promote()
                    keys = pa.array(range(start, start + 100), pa.int32())
                    yield pa.RecordBatch.from_pydict({"k": keys})

            found: dict[str, list[int]] = {}

            def run(name: str, function: object, kills: bool) -> None:
                options: dict[str, Any] = {"retry": UNTIL_BACK, "timeout": "60s"}
                out = sa.arrow.ordered_wait(batches(kills), function, **options)
                found[name] = [it for batch in out for it in batch.column("id2").to_pylist()]

            other = threading.Thread(target=run, args=("writes", writes, False))
            other.start()
            run("reads", reads, kills=True)
            other.join()

            # Whatever the old one had and did not hand on before it died was not told as done.
            assert found["reads"] == found["writes"] == list(range(3000))
            assert int(new.run("select count(*) from kept")) > 0
