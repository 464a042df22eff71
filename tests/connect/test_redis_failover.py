# SPDX-License-Identifier: Apache-2.0
"""Lookups in Redis where servers hang, move, are replaced or are full."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import redis
from tests.support.redis_cluster import RedisCluster, wait_for
from tests.support.redis_sentinel import RedisSentinel
from tests.support.redis_server import RedisServer
from tests.support.relay import Relay
from tests.support.resp_server import RespServer, bulk
from tests.support.servers import LOOPBACK, free_port

UNTIL_BACK = sa.retry.exponential_backoff(1000, "1ms", "50ms", budget=None)
PASSWORD = "only-of-sentinels"  # noqa: S105 - of a server that lives as long as a test


def lookup(function: object, keys: Any, **options: Any) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pylist([{"id": key} for key in keys])
    out = sa.arrow.ordered_wait([batch], function, **options)
    rows = [row for batch in out for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == list(keys)
    return rows


def writer(url: Any, **options: Any) -> redis.RedisFunction:
    command = ("SET", "k:{id}", "{id}")
    return redis.command(url, *command, schema="v string", writes="idempotent", **options)


def count_of(server: RedisServer, command: str) -> int:
    """How often a server was sent a command."""
    line = server.cli("info", "commandstats").partition(f"cmdstat_{command}:calls=")[2]
    return int(line.partition(",")[0] or 0)


@contextlib.contextmanager
def a_name(server: RedisServer) -> Iterator[Relay]:
    """A place that leads to a server, and can lead to another one later."""
    with Relay(server.port, lambda _, sent: sent) as relay:
        yield relay


def url_of(port: int) -> str:
    return f"redis://{LOOPBACK}:{port}"


def test_a_primary_that_is_demoted_is_left_for_the_one_behind_the_same_name() -> None:
    with RedisServer() as old, RedisServer() as new, a_name(old) as relay:
        function = writer(url_of(relay.port))
        lookup(function, range(7), timeout="25s")
        relay.lead_to(new.port)
        old.cli("replicaof", LOOPBACK, str(new.port))

        rows = lookup(function, range(7, 60), retry=2, timeout="25s")

        assert [row["v"] for row in rows] == ["OK"] * 53
        assert count_of(new, "set") == 53


def test_a_server_that_hangs_is_left_as_soon_as_its_calls_were_given_up() -> None:
    with RedisServer() as old, RedisServer() as new, a_name(old) as relay:
        for server in (old, new):
            server.cli("set", "k", "x")
        function = redis.get(url_of(relay.port), "k", schema="v string")
        lookup(function, range(3), timeout="25s")
        old.pause()
        relay.lead_to(new.port)
        try:
            # Before `idle_timeout` could see it.
            options = {"attempt_timeout": "200ms", "retry": UNTIL_BACK, "timeout": "20s"}
            rows = lookup(function, range(3, 50), **options)
        finally:
            old.resume()

    assert [row["v"] for row in rows] == ["x"] * 47


def test_a_slow_answer_that_somebody_waits_for_costs_no_connection() -> None:
    asked, release = threading.Event(), threading.Event()

    def answer(_: int, command: list[str]) -> bytes:
        if command[1] == "slow":
            asked.set()
            release.wait()
        return bulk(command[1])

    with RespServer(answer) as server:
        keys = redis.get(server.url, "{id}", schema="v string")

        def slow() -> None:
            assert lookup(keys, ["slow"])[0]["v"] == "slow"

        waiting = threading.Thread(target=slow)
        waiting.start()
        asked.wait()
        rows = lookup(keys, ["behind"], timeout="700ms", on_error="null", retry=0)
        release.set()
        waiting.join()

        assert rows[0]["v"] is None
        assert server.connections == 1


@pytest.mark.parametrize(
    "read_from", ["primary", pytest.param("replica", marks=pytest.mark.nightly)]
)
def test_a_node_of_a_cluster_that_hangs_is_asked_no_more(read_from: Any) -> None:
    values = {f"k:{i}": str(i) for i in range(200)}
    with RedisCluster(replicas=1) as cluster:
        cluster.load(values)
        function = redis.get(
            cluster.primaries[1].url, "k:{id}", schema="v string", cluster=True, read_from=read_from
        )
        options: dict[str, Any] = {
            "retry": UNTIL_BACK,
            "timeout": "25s",
            "attempt_timeout": "300ms",
        }
        assert [row["v"] for row in lookup(function, range(200), **options)] == list(
            values.values()
        )
        # A replica takes over from the one, and the primary answers for the other.
        hung = cluster.primaries[0] if read_from == "primary" else cluster.replicas[0][0]
        hung.pause()
        try:
            rows = lookup(function, range(200), **options)
        finally:
            hung.resume()

    assert [row["v"] for row in rows] == list(values.values())


def test_a_server_that_is_full_is_not_stormed() -> None:
    with (
        RedisServer("--maxclients", "1") as server,
        socket.create_connection((LOOPBACK, server.port)) as held,
    ):
        function = redis.get(server.url, "{id}", schema="v string")
        options = {"retry": sa.retry.fixed_delay(1000, "1ms", budget=None), "timeout": "3s"}
        started = time.monotonic()
        rows = lookup(function, range(10), on_error="capture", **options)
        late = max(time.monotonic() - started - 3, 0)
        held.sendall(b"INFO stats\r\n")
        stats = held.recv(1 << 16).decode()

    # A reset may come before the words.
    assert all("Redis" in row["error"]["message"] for row in rows)
    refused = int(stats.partition("rejected_connections:")[2].split()[0])
    # Pauses of 50, 100, .. ms; it was a connection for each row that was tried again.
    assert 2 < refused < 15 + 20 * late


@pytest.mark.parametrize("writes", [False, True])
def test_commands_that_only_read_are_sent_once_more_where_the_connection_ended(
    writes: bool,
) -> None:
    def answer(connection: int, command: list[str]) -> bytes | None:
        return bulk(command[1]) if connection > 0 or command[1] == "1" else None

    with RespServer(answer) as server:
        function = redis.command(
            server.url, "SET" if writes else "GET", "{id}", schema="v string", writes=writes
        )
        assert lookup(function, [1])[0]["v"] == "1"
        rows = lookup(function, range(2, 20), retry=0, on_error="capture")

        if writes:
            assert all(
                "closed" in row["error"]["message"] or "reading" in row["error"]["message"]
                for row in rows
            )
        else:
            assert [row["v"] for row in rows] == [str(i) for i in range(2, 20)]
            assert server.connections == 2


def test_commands_are_not_sent_a_third_time() -> None:
    def answer(_: int, command: list[str]) -> bytes | None:
        return bulk("x") if command[1] == "1" else None

    with RespServer(answer) as server:
        function = redis.get(server.url, "{id}", schema="v string")
        lookup(function, [1])

        (row,) = lookup(function, [2], retry=0, on_error="capture")

        assert row["error"]["attempts"] == 1
        assert server.connections == 2


def test_any_of_several_servers_is_taken() -> None:
    dead = url_of(free_port())
    with RedisServer() as server:
        server.cli("set", "k", "x")
        function = redis.get([dead, server.url, dead], "k", schema="v string")

        rows = lookup(function, range(5), retry=0)

    assert [row["v"] for row in rows] == ["x"] * 5


def test_a_cluster_is_found_by_any_of_its_nodes() -> None:
    values = {f"k:{i}": str(i) for i in range(100)}
    with RedisCluster() as cluster:
        cluster.load(values)
        seeds = [url_of(free_port()), url_of(free_port()), cluster.primaries[2].url]
        function = redis.get(seeds, "k:{id}", schema="v string", cluster=True)

        rows = lookup(function, range(100), retry=UNTIL_BACK, timeout="25s")

    assert [row["v"] for row in rows] == list(values.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": []}, "empty list"),
        ({"url": ["redis://a", "rediss://b"]}, "one kind"),
        ({"url": ["redis://a", "http://b"]}, "begins with"),
        ({"url": "redis://a", "sentinel": "main", "cluster": True}, "exclude each other"),
        ({"url": "redis://a", "sentinel": ""}, "sentinel"),
    ],
)
def test_addresses_that_do_not_go_together_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(sa.ConfigurationError, match=message):
        redis.get(key="k", schema="v string", **arguments)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("password", [pytest.param("", marks=pytest.mark.nightly), PASSWORD])
def test_sentinels_say_where_the_primary_is_and_a_failover_loses_no_idempotent_write(
    password: str,
) -> None:
    with RedisServer() as old, RedisServer("--replicaof", LOOPBACK, str(old.port)) as new:
        with RedisSentinel("main", old, password) as sentinel:
            sentinel.wait_for_replica()
            login = f":{password}@" if password else ""
            urls = [url_of(free_port()), sentinel.url.replace("://", f"://{login}")]
            function = writer(urls, sentinel="main")

            def batches() -> Iterator[pa.RecordBatch]:
                for start in range(0, 2000, 100):
                    if start == 1000:
                        old.kill()
                    keys = [{"id": i} for i in range(start, start + 100)]
                    yield pa.RecordBatch.from_pylist(keys)

            out = sa.arrow.ordered_wait(batches(), function, retry=UNTIL_BACK, timeout="40s")
            rows = [row for batch in out for row in batch.to_pylist()]

        assert [(row["id"], row["v"]) for row in rows] == [(i, "OK") for i in range(2000)]
        assert new.cli("role").startswith("master")
        assert count_of(new, "set") >= 1000


def test_a_name_that_no_sentinel_knows_is_told() -> None:
    with RedisServer() as server, RedisSentinel("main", server) as sentinel:
        function = redis.get(sentinel.url, "k", schema="v string", sentinel="other")

        (row,) = lookup(function, [1], retry=0, on_error="capture")

    assert "no primary of the name `other`" in row["error"]["message"]


def test_a_server_without_memory_may_be_tried_again() -> None:
    with RedisServer("--maxmemory", "1") as server:
        (row,) = lookup(
            writer(server.url), [1], retry=sa.retry.fixed_delay(2, "1ms"), on_error="capture"
        )
        assert "OOM" in row["error"]["message"]
        assert "policy that evicts" in row["error"]["message"]
        assert row["error"]["attempts"] == 3

        server.cli("config", "set", "maxmemory", "0")
        wait_for(lambda: "maxmemory\n0" in server.cli("config", "get", "maxmemory"))
        assert lookup(writer(server.url), [1])[0]["v"] == "OK"
