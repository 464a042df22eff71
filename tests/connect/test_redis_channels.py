# SPDX-License-Identifier: Apache-2.0
"""The nodes of a real Redis cluster as channels: one that stands still holds its own rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow, redis
from sparkawait._plan.resolve import resolve_unpickled
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import RedisServer

ROWS = 600
VALUES = {f"k:{i}": i * 3 for i in range(ROWS)}
NODES = sa.Channel(count=3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """All keys on three nodes, which go on when one of them is silent."""
    with RedisCluster() as running:
        running.load(VALUES)
        for node in running.primaries:
            node.cli("config", "set", "cluster-require-full-coverage", "no")
        yield running


@pytest.fixture(scope="module")
def replicated() -> Iterator[RedisCluster]:
    """All keys on three nodes with two replicas each."""
    with RedisCluster(replicas=2) as running:
        running.load(VALUES)
        yield running


@contextmanager
def stopped(node: RedisServer) -> Iterator[None]:
    """Lets a node stand still in the block."""
    node.pause()
    try:
        yield
    finally:
        node.resume()


def rows_of(node: RedisServer) -> set[int]:
    return {int(key.partition(":")[2]) for key in node.cli("keys", "k:*").split()}


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": range(ROWS), **columns})


def run(function, *batches, **options) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns the rows in their order, and the calls of each channel."""
    totals: dict[str, Any] = {}
    plan = resolve_unpickled("unordered", function, input_schema=None, channel=NODES, **options)
    out = arrow.run(plan, iter(batches or [batch()]), on_metrics=totals.update)
    rows = [row for part in out for row in part.to_pylist()]
    calls = {name: counts["calls"] for name, counts in totals["channels"].items()}
    return sorted(rows, key=lambda row: row["id"]), calls


def address(node: RedisServer) -> str:
    return f"127.0.0.1:{node.port}"


def test_a_node_that_stands_still_holds_its_own_rows_and_no_others(cluster):
    node = cluster.primaries[1]
    own = rows_of(node)
    function = redis.get(cluster.url, "k:{id}", schema="v bigint", cluster=True)
    # Without channels, rows of the node would have taken all slots by now.
    capacity = 30
    assert len(own) > 5 * capacity

    with stopped(node):
        out = arrow.unordered_wait(
            [batch()],
            function,
            capacity=capacity,
            channel=NODES,
            timeout=None,
            tuning=sa.Tuning(buffer_timeout=0, max_rows=1),
        )
        early = [next(out).to_pylist()[0] for _ in range(ROWS - len(own))]
    rest = [row for part in out for row in part.to_pylist()]

    assert not own & {row["id"] for row in early}
    found = sorted((row["id"], row["v"]) for row in early + rest)
    assert found == [(i, i * 3) for i in range(ROWS)]


def test_metrics_name_the_channels_by_the_address_of_their_node(cluster):
    function = redis.get(cluster.url, "k:{id}", schema="v bigint", cluster=True)

    rows, calls = run(function)

    assert [row["v"] for row in rows] == [i * 3 for i in range(ROWS)]
    assert calls == {address(node): len(rows_of(node)) for node in cluster.primaries}


def test_a_row_that_asks_for_no_key_goes_to_no_node(cluster):
    function = redis.get(cluster.url, "k:{other}", schema="v bigint", cluster=True)

    rows, calls = run(function, batch(other=[None, 7] * (ROWS // 2)))

    assert [row["v"] for row in rows] == [None, 21] * (ROWS // 2)
    assert calls.pop(None) == ROWS // 2
    assert list(calls.values()) == [ROWS // 2]


def test_a_row_of_several_nodes_is_of_the_channel_of_its_first_key(cluster):
    keys = {"a": "k:{first}", "b": "k:{id}", "c": "k:7"}
    function = redis.mget(cluster.url, keys, schema="a bigint, b bigint, c bigint", cluster=True)

    rows, calls = run(function, batch(first=[None, *range(1, ROWS)]))

    assert [(row["a"], row["b"], row["c"]) for row in rows] == [
        (None if i == 0 else i * 3, i * 3, 21) for i in range(ROWS)
    ]
    assert calls == {address(node): len(rows_of(node)) for node in cluster.primaries}


def test_a_row_is_read_from_the_replica_that_is_its_channel(replicated):
    function = redis.get(
        replicated.url, "k:{id}", schema="v bigint", cluster=True, read_from="replica"
    )
    replicas = [node for nodes in replicated.replicas for node in nodes]
    before = gets(replicas)

    rows, calls = run(function, *[batch().slice(i, 100) for i in range(0, ROWS, 100)])

    assert [row["v"] for row in rows] == [i * 3 for i in range(ROWS)]
    assert calls == dict(gets(replicas) - before)
    assert len(calls) == len(replicas)


def test_a_cluster_that_does_not_tell_of_its_nodes_stops_no_task(cluster):
    node = cluster.primaries[0]
    function = redis.get(
        cluster.url, "k:{id}", schema="v bigint", cluster=True, connect_timeout="99ms"
    )

    with stopped(node):
        rows, calls = run(function, timeout="100ms", on_error="capture")

    kinds = {row["error"]["kind"] for row in rows}
    assert kinds <= {"element-timed-out", "destination-unavailable"}
    assert set(calls) == {f"localhost:{node.port}"}


def test_a_node_that_is_lost_keeps_its_channel(cluster):
    # The last test of this cluster: the node does not come back.
    lost = cluster.primaries[2]
    expected = {address(node): len(rows_of(node)) for node in cluster.primaries}
    function = redis.get(cluster.url, "k:{id}", schema="v bigint", cluster=True)
    run(function)

    lost.kill()
    rows, calls = run(
        function, *[batch().slice(i, 20) for i in range(0, ROWS, 20)], on_error="capture", retry=0
    )

    assert sum(row["v"] is None for row in rows) == expected[address(lost)]
    assert calls == expected


def gets(nodes: list[RedisServer]) -> Counter[str]:
    """Returns how often each node was asked for a key."""
    counted: Counter[str] = Counter()
    for node in nodes:
        stats = node.cli("info", "commandstats").partition("cmdstat_get:calls=")[2]
        counted[address(node)] = int(stats.partition(",")[0] or 0)
    return counted
