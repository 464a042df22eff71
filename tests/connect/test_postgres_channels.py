# SPDX-License-Identifier: Apache-2.0
"""Many tenants of one server: what the rows of the others notice while those of one wait.

A tenant stands still because its statement asks for a lock that the test holds, so nothing here
depends on time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import postgres
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

LOCK = 4711
STATEMENT = f"""
    select case when $1 like 'stuck%' then pg_advisory_xact_lock_shared({LOCK}) is null
           else false end as waited
"""
TENANTS = [f"tenant {number}" for number in range(9)]
PATIENCE = "20s"
"""Longer than a test takes: a row that has no result by then is one that was held up."""
ATTEMPT_SECONDS = 0.5
SLOW = "select $1::int as n from pg_sleep(1.5)"
ACTIVE = "select query from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


@contextmanager
def lock_held(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.dsn, autocommit=True) as holder:
        holder.execute("select pg_advisory_lock(%s)", [LOCK])
        yield holder


def waiting(server: PostgresServer) -> int:
    """Returns how many statements wait for the lock."""
    return int(
        server.run("select count(*) from pg_locks where locktype = 'advisory' and not granted")
    )


def batches(tenants: list[str], rounds: int, rows: int = 100) -> list[pa.RecordBatch]:
    ordered = tenants * rounds
    table = pa.table({"tenant": ordered, "row": range(len(ordered))})
    return table.to_batches(max_chunksize=rows)


def lookup(dsn: str, **options: Any) -> postgres.Lookup:
    return postgres.lookup(dsn, STATEMENT, ["tenant"], schema="waited boolean", **options)


def others_then_all(
    server: PostgresServer, function: postgres.Lookup, tenants: list[str], **options: Any
) -> list[int]:
    """Returns the rows in the order in which they came; lets the stuck go when the others have."""
    rounds, found = 30, Counter[str]()
    stuck = sum(it.startswith("stuck") for it in tenants)
    numbers: list[int] = []
    with lock_held(server) as holder:
        out = sa.arrow.unordered_wait(
            batches(tenants, rounds),
            function,
            **{"channel": "tenant", "timeout": PATIENCE, **options},
        )
        for batch in out:
            found.update(batch["tenant"].to_pylist())
            numbers += batch["row"].to_pylist()
            if len(numbers) == rounds * (len(tenants) - stuck):
                assert not any(tenant.startswith("stuck") for tenant in found)
                holder.execute("select pg_advisory_unlock(%s)", [LOCK])
    assert found == Counter(dict.fromkeys(tenants, rounds))
    return numbers


@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize("batch", [1, "auto"])
def test_a_tenant_that_waits_holds_none_of_the_others(
    server: PostgresServer, batch: Any, prepare: Any
) -> None:
    function = lookup(server.dsn, batch=batch, prepare=prepare)

    numbers = others_then_all(server, function, ["stuck", *TENANTS])

    assert sorted(numbers) == list(range(300))


def test_as_many_tenants_may_wait_as_there_are_connections_but_one(server: PostgresServer) -> None:
    function = lookup(server.dsn, connections=4)
    tenants = ["stuck 1", "stuck 2", "stuck 3", *TENANTS]

    numbers = others_then_all(server, function, tenants)

    assert sorted(numbers) == list(range(len(tenants) * 30))


def test_a_tenant_that_may_have_all_calls_leaves_a_connection_to_others(
    server: PostgresServer,
) -> None:
    function = lookup(server.dsn, connections=2)
    channel = sa.Channel("tenant", count=1, max_per_channel=99)

    numbers = others_then_all(server, function, ["stuck", "other"], channel=channel)

    assert sorted(numbers) == list(range(60))


def test_behind_a_pooler_too(server: PostgresServer) -> None:
    with PgBouncer(server, pool_size=4) as pooler:
        function = lookup(pooler.dsn, prepare=False)

        numbers = others_then_all(server, function, ["stuck", *TENANTS])

    assert sorted(numbers) == list(range(300))


def test_a_cache_in_front_keeps_the_tenants_apart(server: PostgresServer) -> None:
    function = lookup(server.dsn)
    cache = sa.Cache(max_rows=1000, key=["row"])

    numbers = others_then_all(server, function, ["stuck", *TENANTS], cache=cache)

    assert sorted(numbers) == list(range(300))


def test_lookups_that_share_connections_leave_them_to_one_another(server: PostgresServer) -> None:
    """One holds a connection with its only tenant, another has rows of its own."""
    function = lookup(server.dsn, connections=2)
    found: list[str] = []

    def look_up(tenant: str, **options: Any) -> None:
        out = sa.arrow.unordered_wait(
            batches([tenant], 1000), function, timeout=PATIENCE, **options
        )
        for batch in out:
            found.extend(batch["tenant"].to_pylist())

    with lock_held(server):
        held = threading.Thread(target=look_up, args=["stuck"], kwargs={"channel": "tenant"})
        held.start()
        wait_until(lambda: waiting(server) == 1)

        look_up("other")

        assert found == ["other"] * 1000
        assert waiting(server) == 1
    held.join()

    assert Counter(found) == {"other": 1000, "stuck": 1000}


def test_without_channels_rows_of_all_tenants_share_queries(server: PostgresServer) -> None:
    """As they always did: fewer queries, and a row that waits holds those beside it."""
    server.run("create table seen (query bigint, tenant text)")
    statement = "select txid_current() as query where $1 <> ''"
    options: dict[str, Any] = {"connections": 1, "writes": True, "batch": 1000}
    function = postgres.lookup(server.dsn, statement, ["tenant"], **options)
    tenants = batches(TENANTS, 10)

    def queries(**options: Any) -> dict[int, set[str]]:
        seen: dict[int, set[str]] = {}
        for batch in sa.arrow.unordered_wait(tenants, function, **options):
            for query, tenant in zip(
                batch["query"].to_pylist(), batch["tenant"].to_pylist(), strict=True
            ):
                seen.setdefault(query, set()).add(tenant)
        return seen

    together = queries()
    assert any(len(of) > 1 for of in together.values())
    assert all(len(of) == 1 for of in queries(channel="tenant").values())


def test_waiting_for_a_connection_that_others_have_is_no_part_of_an_attempt(server):
    """One lookup has the only connection for longer than an attempt of the other may take."""
    options = {"connections": 1, "schema": "n int"}
    slow = postgres.lookup(server.dsn, SLOW, ["row"], **options)
    quick = postgres.lookup(server.dsn, "select $1::int as n", ["row"], **options)
    (batch,) = batches(TENANTS[:1], 1)
    thread = threading.Thread(target=lambda: list(sa.arrow.ordered_wait([batch], slow)))

    thread.start()
    wait_until(lambda: "pg_sleep" in server.run(ACTIVE))
    (found,) = sa.arrow.ordered_wait(
        [batch],
        quick,
        timeout=PATIENCE,
        attempt_timeout=ATTEMPT_SECONDS,
        channel="tenant",
        max_concurrency=sa.Adaptive(1, 80, initial=8),
    )
    thread.join()

    assert found["n"].to_pylist() == [0]
