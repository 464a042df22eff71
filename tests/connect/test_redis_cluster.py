# SPDX-License-Identifier: Apache-2.0
"""Lookups in a real Redis cluster of three nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import redis
from tests.support.redis_cluster import RedisCluster, wait_for
from tests.support.redis_server import RedisServer

ROWS = 5000
VALUES = {f"k:{i}": i * 3 for i in range(ROWS)}
UNTIL_BACK = sa.retry.exponential_backoff(1000, "1ms", "50ms")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """All keys on three nodes; for tests that leave them as they are."""
    with RedisCluster() as running:
        running.load(VALUES)
        yield running


@pytest.fixture(scope="module")
def replicated() -> Iterator[RedisCluster]:
    """All keys on three nodes with a replica each; the last test loses one for good."""
    with RedisCluster(replicas=1) as running:
        running.load(VALUES)
        yield running


@pytest.fixture
def passing() -> Iterator[RedisCluster]:
    """All keys on three nodes; for a test that changes or loses some of them."""
    with RedisCluster() as running:
        running.load(VALUES)
        yield running


def batches():
    for start in range(0, ROWS, 500):
        yield pa.RecordBatch.from_pylist([{"id": i} for i in range(start, start + 500)])


def test_keys_are_found_on_all_nodes(cluster):
    function = redis.get(cluster.url, "k:{id}", schema="v bigint", cluster=True)
    out = sa.arrow.ordered_wait(batches(), function, max_concurrency=700)
    assert [row["v"] for batch in out for row in batch.to_pylist()] == [i * 3 for i in range(ROWS)]
    sizes = [int(node.cli("dbsize")) for node in cluster.primaries]
    assert sum(sizes) == ROWS
    assert min(sizes) > ROWS // 4


def test_the_keys_of_a_row_may_lie_on_several_nodes(cluster):
    keys = {"a": "k:{id}", "b": "k:{other}", "c": "none:{id}", "d": "k:7"}
    schema = "a bigint, b bigint, c bigint, d bigint"
    function = redis.mget(cluster.url, keys, schema=schema, cluster=True)
    rows = [{"id": i, "other": None if i % 5 == 0 else (i * 7) % ROWS} for i in range(ROWS)]
    batch = pa.RecordBatch.from_pylist(rows)
    out = sa.arrow.ordered_wait([batch], function, max_concurrency=700)
    found = [row for batch in out for row in batch.to_pylist()]
    for row in rows:
        other = None if row["other"] is None else row["other"] * 3
        row.update(a=row["id"] * 3, b=other, c=None, d=21)
    assert found == rows


def test_a_row_of_several_nodes_fails_once_when_one_of_them_is_lost(passing):
    columns = [f"c{i}" for i in range(9)]
    keys = [f"k:{{id}}{i}" for i in range(9)]
    function = redis.mget(
        passing.url, keys, schema=", ".join(f"{it} bigint" for it in columns), cluster=True
    )
    batch = pa.RecordBatch.from_pylist([{"id": i} for i in range(100)])
    assert sum(out.num_rows for out in sa.arrow.ordered_wait([batch], function)) == 100
    passing.primaries[2].kill()
    out = sa.arrow.unordered_wait(
        [batch], function, on_error="capture", retry=sa.retry.fixed_delay(1, "1ms")
    )
    rows = [row for batch in out for row in batch.to_pylist()]
    assert sorted(row["id"] for row in rows) == list(range(100))
    failed = [row for row in rows if row["error"]]
    assert len(failed) > 50
    assert {row["error"]["attempts"] for row in failed} == {2}
    assert {row[column] for row in failed for column in columns} == {None}


@pytest.mark.parametrize("channel", [None, sa.Channel(count=3)])
def test_a_user_that_may_not_ask_for_the_nodes_is_redirected(cluster, channel):
    for server in cluster.primaries:
        server.cli("acl", "setuser", "reader", "on", ">secret", "~*", "+get")
    url = cluster.url.replace("//", "//reader:secret@")
    function = redis.get(url, "k:{id}", schema="v bigint", cluster=True)
    assert found(function, channel=channel) == EXPECTED


def test_without_the_option_the_error_names_the_cluster(cluster):
    function = redis.get(cluster.url, "k:{id}", schema="v bigint")
    with pytest.raises(sa.AsyncFunctionError, match="cluster"):
        list(sa.arrow.ordered_wait(batches(), function))


def run(node: RedisServer, commands: Iterable[str]) -> str:
    return node.cli(stdin="\n".join([*commands, ""]).encode())


def migrate(
    source: RedisServer, target: RedisServer, slots: Sequence[int], given: Sequence[int]
) -> None:
    """Moves the keys of some slots, and gives some of the slots away with them."""
    source_id, target_id = (node.cli("cluster", "myid").strip() for node in (source, target))
    run(target, (f"cluster setslot {it} importing {source_id}" for it in slots))
    run(source, (f"cluster setslot {it} migrating {target_id}" for it in slots))
    where = f'127.0.0.1 {target.port} "" 0 5000'

    def is_empty() -> bool:
        listed = run(source, (f"cluster getkeysinslot {it} 100\necho end" for it in slots))
        groups = [keys for keys in listed.split("end") if keys.strip()]
        run(source, (f"migrate {where} keys {' '.join(keys.split())}" for keys in groups))
        return not groups

    # A node that has lost sight of the others for a moment takes no keys.
    wait_for(is_empty)
    give(source, target, given)


def give(source: RedisServer, target: RedisServer, slots: Sequence[int]) -> None:
    """Has both ends know who owns some slots now."""
    target_id = target.cli("cluster", "myid").strip()
    for node in (target, source):
        run(node, (f"cluster setslot {it} node {target_id}" for it in slots))


@pytest.mark.parametrize(
    "channel", [pytest.param(None, marks=pytest.mark.nightly), sa.Channel(count=3)]
)
def test_nothing_is_lost_while_slots_move(passing, channel):
    function = redis.get(passing.url, "k:{id}", schema="v bigint", cluster=True)
    source, target = passing.primaries[:2]

    def moving():
        for index, batch in enumerate(batches()):
            slots = range(index * 20, index * 20 + 20)
            # Half of the slots stay on their way: their keys are asked for by ASK.
            migrate(source, target, slots, given=slots[::2])
            yield batch

    out = sa.arrow.unordered_wait(moving(), function, max_concurrency=700, channel=channel)
    found = sorted((row["id"], row["v"]) for batch in out for row in batch.to_pylist())
    assert found == [(i, i * 3) for i in range(ROWS)]


@pytest.mark.nightly  # slots move, and are taken over, for each change
def test_nothing_is_lost_while_slots_go_to_and_fro(passing):
    function = redis.get(passing.url, "k:{id}", schema="v bigint", cluster=True)
    # A node may take the last of them back for a moment, by old news, and Redis deletes what it
    # then has twice: there is no key in slot 1.
    slots = [*range(0, 5461, 9), 1]

    def flip(source, target):
        migrate(source, target, slots, given=slots)
        wait_for(lambda: passing.is_agreed() or give(source, target, slots))

    def flipping():
        for index, batch in enumerate(batches()):
            source, target = passing.primaries[index % 2], passing.primaries[1 - index % 2]
            flip(source, target)
            yield batch

    out = sa.arrow.unordered_wait(flipping(), function, max_concurrency=700, retry=UNTIL_BACK)
    found = sorted((row["id"], row["v"]) for batch in out for row in batch.to_pylist())
    assert found == [(i, i * 3) for i in range(ROWS)]


def gets(node: RedisServer) -> int:
    stats = node.cli("info", "commandstats").partition("cmdstat_get:calls=")[2]
    return int(stats.partition(",")[0] or 0)


def found(function, **options) -> list[tuple[int, int]]:
    out = sa.arrow.unordered_wait(batches(), function, max_concurrency=700, **options)
    return sorted((row["id"], row["v"]) for batch in out for row in batch.to_pylist())


EXPECTED = [(i, i * 3) for i in range(ROWS)]


def test_replicas_are_read_by_choice(replicated):
    replicas = [node for nodes in replicated.replicas for node in nodes]
    function = redis.get(
        replicated.url, "k:{id}", schema="v bigint", cluster=True, read_from="replica"
    )
    # The first burst may leave before the nodes are known.
    assert found(function) == EXPECTED
    before = [gets(node) for node in (*replicated.primaries, *replicas)]
    assert found(function) == EXPECTED
    after = [gets(node) for node in (*replicated.primaries, *replicas)]
    assert after[:3] == before[:3]
    assert sum(after[3:]) - sum(before[3:]) == ROWS


def test_keys_of_several_replicas_make_a_row(replicated):
    function = redis.mget(
        replicated.url, ["k:{id}", "k:1"], schema="v bigint, w bigint", cluster=True,
        read_from="replica",
    )  # fmt: skip
    assert found(function) == EXPECTED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"read_from": "replica"}, "needs `cluster=True`"),
        ({"read_from": "nearest"}, "`read_from` must be"),
        ({"read_from": "replica", "cluster": True, "writes": True}, "replicas take no writes"),
    ],
)
def test_replicas_need_a_cluster_and_no_writes(options, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        redis.command("redis://localhost", "GET", "k", schema="v bigint", **options)


def test_the_primary_is_read_when_its_replica_is_lost(replicated):
    function = redis.get(
        replicated.url, "k:{id}", schema="v bigint", cluster=True, read_from="replica",
        connections=2,
    )  # fmt: skip
    assert found(function) == EXPECTED
    (replica,) = replicated.replicas[1]
    replica.kill()
    try:
        # No retry is given: the rows do not see it.
        assert found(function) == EXPECTED
    finally:
        replica.start()


def test_each_row_leaves_once_when_a_replica_takes_over(replicated):
    function = redis.get(replicated.url, "k:{id}", schema="v bigint", cluster=True)
    lost = replicated.primaries[2]

    def losing():
        for index, batch in enumerate(batches()):
            if index == 4:
                lost.kill()
            yield batch

    out = sa.arrow.unordered_wait(
        losing(), function, max_concurrency=700, retry=UNTIL_BACK, channel=sa.Channel(count=3)
    )
    rows = sorted((row["id"], row["v"]) for batch in out for row in batch.to_pylist())
    assert rows == EXPECTED
    assert "role:master" in replicated.replicas[2][0].cli("info", "replication")
