# SPDX-License-Identifier: Apache-2.0
"""Lookups in servers that are slow, break off in a burst, or have a module that Redis lacks."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import redis
from tests.support.redis_server import RedisServer
from tests.support.resp_server import RespServer, bulk, json_module

ROWS = [{"id": i} for i in range(2500)]
EXPECTED = [{"id": i, "v": f"value {i}"} for i in range(2500)]


def lookup(function, rows, **options):
    batch = pa.RecordBatch.from_pylist(rows)
    out = sa.arrow.ordered_wait(
        [batch], function, **{"tuning": sa.Tuning(warm_up=False), **options}
    )
    return [row for batch in out for row in batch.to_pylist()]


def value(command: list[str]) -> bytes:
    return bulk(f"value {command[1]}")


def test_a_host_that_has_no_address_is_named_and_may_be_retried():
    function = redis.get("redis://no-such-host.invalid:6399", "{id}", schema="v string")
    retry = sa.retry.fixed_delay(1, "1ms")
    (row,) = lookup(function, ROWS[:1], retry=retry, on_error="capture")
    assert "`no-such-host.invalid:6399` failed: " in row["error"]["message"]
    assert row["error"]["attempts"] == 2


def test_each_row_leaves_once_when_connections_are_reset_in_a_burst():
    answered = [0] * 10

    def answer(connection, command):
        # Each of the first connections breaks after some hundred replies.
        answered[connection] += 1
        return None if answered[connection] > 300 * (connection + 1) else value(command)

    with RespServer(answer) as server:
        function = redis.get(server.url, "{id}", schema="v string")
        retry = sa.retry.fixed_delay(100, "1ms")
        assert lookup(function, ROWS, max_concurrency=2500, retry=retry) == EXPECTED
        assert server.connections > 2


def test_without_a_retry_the_rows_that_were_answered_before_a_reset_have_their_values():
    def answer(_connection, command):
        return value(command) if int(command[1]) < 100 else None

    with RespServer(answer) as server:
        function = redis.get(server.url, "{id}", schema="v string")
        rows = lookup(function, ROWS[:500], max_concurrency=500, on_error="capture", retry=0)
    # Replies that were on their way are lost with the connection.
    values = [row["v"] for row in rows if not row["error"]]
    assert values == [f"value {i}" for i in range(len(values))]
    assert len(values) <= 100
    assert all(row["error"]["message"].endswith(("failed", "closed it")) for row in rows[100:])


@pytest.mark.parametrize("answered", [0, 1, 13, 99])
def test_reads_of_a_burst_that_was_answered_in_part_are_sent_once_more(answered):
    def answer(connection, command):
        key = int(command[1])
        seen.append(key)
        if connection > 0 or key < answered:
            return value(command)
        if key == 99:
            server.hang_up(0)
        return b""

    seen: list[int] = []
    with RespServer(answer) as server:
        function = redis.get(server.url, "{id}", schema="v string")
        # Those of the first burst: a connection that never answered is not believed.
        rows = lookup(function, ROWS[:100], max_concurrency=100, on_error="capture", retry=0)
        again = [*range(answered, 100)] if answered else []
        assert [row["v"] for row in rows if row["error"] is None] == (
            [f"value {i}" for i in range(100)] if answered else []
        )
        assert seen == [*range(100), *again]


def test_writes_that_never_left_are_made_over_the_next_connection():
    """All in one burst, whose server reads three of thirty and resets the connection."""

    def answer(connection, command):
        written.append(command[1])
        is_large = len(command[2]) > 1
        return None if connection == 0 and is_large and len(written) == 4 else bulk("OK")

    written: list[str] = []

    def batches():
        yield pa.RecordBatch.from_pydict({"id": [-1], "v": ["x"]})
        many = {"id": list(range(30)), "v": ["x" * 500_000] * 30}
        yield pa.RecordBatch.from_pydict(many)

    with RespServer(answer) as server:
        function = redis.command(
            server.url, "SET", "{id}", "{v}", schema="r string", writes=True, connections=1
        )
        options = {"tuning": sa.Tuning(warm_up=False), "max_concurrency": 1000}
        out = sa.arrow.ordered_wait(batches(), function, on_error="capture", retry=5, **options)
        rows = [row for batch in out for row in batch.to_pylist()]

    failed = [row for row in rows if row["error"]]
    # What the system had taken to send may have been read: two buffers of it.
    assert len(failed) <= 24
    assert {row["error"]["attempts"] for row in failed} == {1}
    assert len(written) == len(set(written))
    assert {row["id"] for row in rows if row["r"] == "OK"} <= {int(key) for key in written}


def test_replies_that_trickle_in_are_whole():
    with RespServer(lambda _, command: value(command), piece=1) as server:
        function = redis.get(server.url, "{id}", schema="v string")
        assert lookup(function, ROWS[:300], max_concurrency=300) == EXPECTED[:300]


def test_a_slow_server_holds_back_no_row_that_it_answered():
    last = threading.Event()

    def answer(_connection, command):
        if command[1] == "1":
            last.wait()
        return value(command)

    with RespServer(answer) as server:
        function = redis.get(server.url, "{id}", schema="v string")

        def batches():
            yield pa.RecordBatch.from_pylist(ROWS[:1])
            yield pa.RecordBatch.from_pylist(ROWS[1:2])

        out = sa.arrow.ordered_wait(
            batches(), function, capacity=1, tuning=sa.Tuning(buffer_timeout="1ms")
        )
        try:
            assert next(row for batch in out for row in batch.to_pylist()) == EXPECTED[0]
        finally:
            last.set()
        assert [row for batch in out for row in batch.to_pylist()] == EXPECTED[1:2]


def test_a_connection_that_stalls_is_left_for_another_one():
    never = threading.Event()

    def answer(connection, command):
        if connection == 0:
            never.wait()
        return value(command)

    with RespServer(answer) as server:
        function = redis.get(server.url, "{id}", schema="v string", idle_timeout="100ms")
        retry = sa.retry.fixed_delay(100, "1ms")
        try:
            assert lookup(function, ROWS[:50], retry=retry) == EXPECTED[:50]
            assert server.connections >= 2
        finally:
            never.set()


def test_documents_of_the_module_are_read():
    documents = {"doc:1": '{"name":"x","tags":["p","q"]}', "doc:3": '{"name":1'}
    with RespServer(json_module(documents)) as server:
        function = redis.json(
            server.url, "doc:{id}", schema="name string, tags array<string>", stored="json"
        )
        rows = lookup(function, [{"id": i} for i in (1, 2, 3)], on_error="capture")
    assert [(row["name"], row["tags"]) for row in rows] == [
        ("x", ["p", "q"]), (None, None), (None, None),
    ]  # fmt: skip
    assert [row["error"] is None for row in rows] == [True, True, False]


def test_a_server_without_the_module_is_told_from_a_wrong_command():
    with RedisServer() as server:
        function = redis.json(server.url, "doc:{id}", schema="name string", stored="json")
        with pytest.raises(sa.AsyncFunctionError, match=r"1 attempt: .*does not have the command"):
            lookup(function, [{"id": 1}], retry=sa.retry.fixed_delay(2, "1ms"))


def node(server: RespServer) -> bytes:
    host, _, port = server.url.removeprefix("redis://").rpartition(":")
    return b"*2\r\n%s:%s\r\n" % (bulk(host), port.encode())


@pytest.mark.parametrize(
    "refusal",
    [b"-LOADING Redis is loading\r\n", b"-MASTERDOWN Link with MASTER is down\r\n", None],
    ids=["loading", "cut off", "reset"],
)
def test_the_primary_is_asked_for_what_a_replica_does_not_answer(refusal):
    refused = []

    def of_replica(_connection, command):
        if command[0] == "GET":
            refused.append(command[1])
            return refusal
        return b"+OK\r\n"

    def of_primary(_connection, command):
        if command[0] == "CLUSTER":
            return b"*1\r\n*4\r\n:0\r\n:16383\r\n" + node(primary) + node(replica)
        return value(command) if command[0] == "GET" else b"+OK\r\n"

    with RespServer(of_replica) as replica, RespServer(of_primary) as primary:
        function = redis.get(
            primary.url, "{id}", schema="v string", cluster=True, read_from="replica"
        )
        # The first burst may leave before the nodes are known.
        assert lookup(function, ROWS[:50]) == EXPECTED[:50]
        assert lookup(function, ROWS[:50]) == EXPECTED[:50]
    assert "0" in refused


def test_a_write_is_sent_where_somebody_has_answered():
    asked: list[tuple[int, str]] = []

    def answer(connection, command):
        asked.append((connection, command[0]))
        # So does a balancer whose server is away: it takes the connection, and ends it.
        return None if connection < 3 else b"+PONG\r\n" if command == ["PING"] else b"+OK\r\n"

    with RespServer(answer, is_told_pings=True) as server:
        function = redis.command(server.url, "SET", "{id}", "x", schema="v string", writes=True)
        retry = sa.retry.fixed_delay(100, "10ms", budget=None)
        rows = lookup(function, ROWS, max_concurrency=2500, retry=retry, on_error="capture")

    assert [(row["v"], row["error"]) for row in rows] == [("OK", None)] * len(ROWS)
    written = [connection for connection, name in asked if name == "SET"]
    assert len(written) == len(ROWS)
    assert min(written) == 3


@pytest.mark.parametrize(
    "refusal",
    [
        b"-NOPERM User default has no permissions to run the 'ping' command\r\n",
        b"-ERR unknown command 'PING'\r\n",
    ],
)
def test_a_server_that_refuses_to_say_that_it_is_there_is_there(refusal):
    def answer(_connection, command):
        return refusal if command == ["PING"] else value(command)

    with RespServer(answer, is_told_pings=True) as server:
        function = redis.get(server.url, "{id}", schema="v string")
        assert lookup(function, ROWS[:17], retry=0) == EXPECTED[:17]


def test_a_server_with_too_many_clients_is_asked_again_before_anything_is_written():
    def answer(connection, command):
        if connection < 2:
            return b"-ERR max number of clients reached\r\n"
        return b"+PONG\r\n" if command == ["PING"] else value(command)

    with RespServer(answer, is_told_pings=True) as server:
        function = redis.get(server.url, "{id}", schema="v string")
        retry = sa.retry.fixed_delay(100, "10ms", budget=None)
        assert lookup(function, ROWS[:17], retry=retry) == EXPECTED[:17]
