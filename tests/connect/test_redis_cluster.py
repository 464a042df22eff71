# SPDX-License-Identifier: Apache-2.0
"""Lookups in a real Redis cluster of three nodes."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import redis
from tests.support.redis_server import RedisServer
from tests.support.servers import free_port

ROWS = 5000
SLOTS = 16384


@pytest.fixture
def cluster() -> Iterator[list[RedisServer]]:
    """Three nodes with a third of the slots each, and all keys."""
    with contextlib.ExitStack() as stack:
        bus = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port"]
        nodes = [
            stack.enter_context(RedisServer(*bus, str(free_port()), cli=["-c"])) for _ in range(3)
        ]
        addresses = [f"127.0.0.1:{node.port}" for node in nodes]
        command = ["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        while any("cluster_state:ok" not in node.cli("cluster", "info") for node in nodes):
            pass
        values = {f"k:{i}": i * 3 for i in range(ROWS)}
        for node in nodes:
            with contextlib.suppress(
                subprocess.CalledProcessError
            ):  # keys of the other nodes are refused
                node.load([["SET", key, str(value)] for key, value in values.items()])
        yield nodes


def batches():
    for start in range(0, ROWS, 500):
        yield pa.RecordBatch.from_pylist([{"id": i} for i in range(start, start + 500)])


def test_keys_are_found_on_all_nodes(cluster):
    function = redis.get(cluster[0].url, "k:{id}", schema="v bigint", cluster=True)
    out = sa.arrow.ordered_wait(batches(), function, capacity=700)
    assert [row["v"] for batch in out for row in batch.to_pylist()] == [i * 3 for i in range(ROWS)]
    sizes = [int(node.cli("dbsize")) for node in cluster]
    assert sum(sizes) == ROWS
    assert min(sizes) > ROWS // 4


def test_the_keys_of_a_row_may_lie_on_several_nodes(cluster):
    keys = {"a": "k:{id}", "b": "k:{other}", "c": "none:{id}", "d": "k:7"}
    schema = "a bigint, b bigint, c bigint, d bigint"
    function = redis.mget(cluster[0].url, keys, schema=schema, cluster=True)
    rows = [{"id": i, "other": None if i % 5 == 0 else (i * 7) % ROWS} for i in range(ROWS)]
    batch = pa.RecordBatch.from_pylist(rows)
    out = sa.arrow.ordered_wait([batch], function, capacity=700)
    found = [row for batch in out for row in batch.to_pylist()]
    for row in rows:
        other = None if row["other"] is None else row["other"] * 3
        row.update(a=row["id"] * 3, b=other, c=None, d=21)
    assert found == rows


def test_a_row_of_several_nodes_fails_once_when_one_of_them_is_lost(cluster):
    columns = [f"c{i}" for i in range(9)]
    keys = [f"k:{{id}}{i}" for i in range(9)]
    function = redis.mget(
        cluster[0].url, keys, schema=", ".join(f"{it} bigint" for it in columns), cluster=True
    )
    batch = pa.RecordBatch.from_pylist([{"id": i} for i in range(100)])
    assert sum(out.num_rows for out in sa.arrow.ordered_wait([batch], function)) == 100
    cluster[2].kill()
    out = sa.arrow.unordered_wait(
        [batch], function, on_error="capture", retry=sa.retry.fixed_delay(1, "1ms")
    )
    rows = [row for batch in out for row in batch.to_pylist()]
    assert sorted(row["id"] for row in rows) == list(range(100))
    failed = [row for row in rows if row["error"]]
    assert len(failed) > 50
    assert {row["error"]["attempts"] for row in failed} == {2}
    assert {row[column] for row in failed for column in columns} == {None}


def test_without_the_option_the_error_names_the_cluster(cluster):
    function = redis.get(cluster[0].url, "k:{id}", schema="v bigint")
    with pytest.raises(sa.AsyncFunctionError, match="cluster"):
        list(sa.arrow.ordered_wait(batches(), function))


def test_nothing_is_lost_while_slots_move(cluster):
    function = redis.get(cluster[0].url, "k:{id}", schema="v bigint", cluster=True)
    source, target = cluster[0], cluster[1]
    source_id, target_id = (node.cli("cluster", "myid").strip() for node in (source, target))

    def moving():
        for index, batch in enumerate(batches()):
            for slot in range(index * 20, index * 20 + 20):
                target.cli("cluster", "setslot", str(slot), "importing", source_id)
                source.cli("cluster", "setslot", str(slot), "migrating", target_id)
                keys = source.cli("cluster", "getkeysinslot", str(slot), "100").split()
                # Half of the slots stay on their way: their keys are asked for by ASK.
                for key in keys:
                    where = ["127.0.0.1", str(target.port), key, "0", "5000"]
                    source.cli("migrate", *where)
                if slot % 2:
                    for node in (target, source):
                        node.cli("cluster", "setslot", str(slot), "node", target_id)
            yield batch

    out = sa.arrow.unordered_wait(moving(), function, capacity=700)
    found = sorted((row["id"], row["v"]) for batch in out for row in batch.to_pylist())
    assert found == [(i, i * 3) for i in range(ROWS)]
