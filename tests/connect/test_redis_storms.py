# SPDX-License-Identifier: Apache-2.0
"""Nodes of a Redis cluster that send commands around: all at once, for ever, and to nobody."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from typing_extensions import Self

import sparkawait as sa
from sparkawait import arrow, redis
from tests.support.resp_server import RespServer, bulk
from tests.support.servers import LOOPBACK, free_port

ROWS = 3000
EXPECTED = [(i, i * 3) for i in range(ROWS)]
UNTIL_BACK = sa.retry.exponential_backoff(1000, "1ms", "50ms", budget=None)
HOPS = 5
"""Redirections that a command follows."""

QUESTION_SECONDS = 0.1
"""Least time between two questions for the nodes."""


def batches() -> Iterator[pa.RecordBatch]:
    for start in range(0, ROWS, 100):
        yield pa.RecordBatch.from_pydict({"id": range(start, start + 100)})


def found(function, **options) -> list[tuple[int, int]]:
    out = arrow.unordered_wait(batches(), function, max_concurrency=300, **options)
    return sorted((row["id"], row["v"]) for batch in out for row in batch.to_pylist())


def value(key: str) -> bytes:
    return bulk(str(int(key.partition(":")[2]) * 3))


def slot(key: str) -> int:
    """The slot of a key without a hash tag: CRC-16/XMODEM."""
    crc = 0
    for byte in key.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x1021 if crc & 0x8000 else 0)) & 0xFFFF
    return crc % 16384


Reply = Callable[["Cluster", int, str], bytes]
"""Makes the reply of a node, by its number, to a ``GET`` of a key."""


class Cluster:
    """Nodes whose replies and whose layout a test makes up, as a context manager.

    Args:
        reply: Answers ``GET``.
        owners: The node of each third of the slots, as each node tells it when it is asked.

    Attributes:
        counts: Commands of each name.
        asked: Nodes that got ``ASKING`` right before a ``GET``, by their number.
    """

    def __init__(self, reply: Reply, owners: Callable[[int], list[int]] | None = None) -> None:
        self._reply = reply
        self._owners = owners or (lambda _: [0, 1, 2])
        self._asking: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.asked: Counter[int] = Counter()
        self.nodes = [RespServer(self._answer_of(node)) for node in range(3)]
        self._stack = contextlib.ExitStack()

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def address(self, node: int) -> str:
        return self.nodes[node].url.removeprefix("redis://")

    def __enter__(self) -> Self:
        for node in self.nodes:
            self._stack.enter_context(node)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _answer_of(self, node: int) -> Callable[[int, list[str]], bytes]:
        def answer(connection: int, command: list[str]) -> bytes:
            with self._lock:
                self.counts[command[0]] += 1
                if command[0] == "CLUSTER":
                    return self._layout(node)
                if command[0] == "ASKING":
                    self._asking.add((node, connection))
                    return b"+OK\r\n"
                if (node, connection) in self._asking:
                    self._asking.remove((node, connection))
                    self.asked[node] += 1
                return self._reply(self, node, command[1])

        return answer

    def _layout(self, node: int) -> bytes:
        owners = self._owners(node)
        bounds = [0, 5461, 10922, 16384]
        reply = b"*%d\r\n" % len(owners)
        for index, owner in enumerate(owners):
            host, port = self.address(owner).split(":")
            first, last = bounds[index], bounds[index + 1] - 1
            reply += b"*3\r\n:%d\r\n:%d\r\n" % (first, last)
            reply += b"*2\r\n" + bulk(host) + b":%d\r\n" % int(port)
        return reply


def moved(cluster: Cluster, key: str, node: int, code: str = "MOVED") -> bytes:
    return f"-{code} {slot(key)} {cluster.address(node)}\r\n".encode()


def lookup(cluster: Cluster, **options):
    return redis.get(cluster.url, "k:{id}", schema="v bigint", cluster=True, **options)


def owner(key: str) -> int:
    return min(slot(key) // 5461, 2)


@pytest.mark.parametrize("channel", [None, sa.Channel(count=3)])
def test_a_storm_of_redirections_passes_and_the_nodes_are_asked_for_now_and_then(channel):
    left = [20_000]

    def reply(cluster: Cluster, node: int, key: str) -> bytes:
        left[0] -= 1
        return moved(cluster, key, (node + 1) % 3) if left[0] > 0 else value(key)

    with Cluster(reply) as cluster:
        started = time.monotonic()
        function = lookup(cluster, connections=2)
        assert found(function, retry=UNTIL_BACK, channel=channel) == EXPECTED
        asked = cluster.counts["CLUSTER"]
        seconds = time.monotonic() - started

    assert left[0] <= 0
    # The first, and no more than fit the time that it took.
    assert 1 <= asked <= 1 + seconds / QUESTION_SECONDS


@pytest.mark.parametrize("code", ["MOVED", "ASK"])
def test_an_endless_redirection_is_the_failure_of_its_row(code):
    def reply(cluster: Cluster, node: int, key: str) -> bytes:
        return moved(cluster, key, (node + 1) % 3, code)

    with Cluster(reply) as cluster:
        out = arrow.ordered_wait(
            batches(), lookup(cluster), max_concurrency=300, on_error="capture", retry=0
        )
        rows = [row for batch in out for row in batch.to_pylist()]

    assert [row["id"] for row in rows] == list(range(ROWS))
    assert all(f"`{code} " in row["error"]["message"] for row in rows)
    assert cluster.counts["GET"] == ROWS * (1 + HOPS)
    assert sum(cluster.asked.values()) == (ROWS * HOPS if code == "ASK" else 0)


def test_a_row_whose_slot_is_on_its_way_says_so_to_its_new_node():
    def reply(cluster: Cluster, node: int, key: str) -> bytes:
        own = owner(key)
        if node == own:
            return moved(cluster, key, (own + 1) % 3, "ASK")
        return value(key)

    with Cluster(reply) as cluster:
        assert found(lookup(cluster)) == EXPECTED
        # ASK is no news: the layout stays as it was.
        assert cluster.counts["CLUSTER"] == 1

    assert cluster.counts["ASKING"] == sum(cluster.asked.values())
    # Rows that went to any node before the layout was known may have met the right one.
    assert 0 < cluster.counts["ASKING"] <= ROWS
    assert cluster.counts["GET"] == ROWS + cluster.counts["ASKING"]


def test_nodes_that_contradict_each_other_delay_rows_and_lose_none():
    """What the layout says is not what the redirections say, and both change all the time."""
    count = [0]

    def owners(_node: int) -> list[int]:
        count[0] += 1
        return [count[0] % 3, (count[0] + 1) % 3, 2]

    def reply(cluster: Cluster, node: int, key: str) -> bytes:
        own = owner(key)
        return value(key) if node == own else moved(cluster, key, own)

    with Cluster(reply, owners) as cluster:
        started = time.monotonic()
        assert found(lookup(cluster)) == EXPECTED
        asked = cluster.counts["CLUSTER"]
        seconds = time.monotonic() - started

    assert cluster.counts["GET"] <= 2 * ROWS
    assert 1 <= asked <= 1 + seconds / QUESTION_SECONDS


def test_a_node_that_is_named_and_not_there_fails_no_row_that_may_be_retried():
    nobody = f"{LOOPBACK}:{free_port()}"
    wrong = set(range(0, ROWS, 7))

    def reply(_cluster: Cluster, _node: int, key: str) -> bytes:
        row = int(key.partition(":")[2])
        if row in wrong:
            wrong.remove(row)
            return f"-MOVED {slot(key)} {nobody}\r\n".encode()
        return value(key)

    with Cluster(reply) as cluster:
        assert found(lookup(cluster), retry=UNTIL_BACK) == EXPECTED

    assert not wrong


@pytest.mark.parametrize(
    "words",
    ["MOVED", "MOVED 7", "MOVED x 127.0.0.1:1", "MOVED 16384 127.0.0.1:1", "MOVED 1 127.0.0.1:x"],
)
def test_what_is_no_redirection_is_the_failure_of_its_row(words):
    def reply(_cluster: Cluster, _node: int, key: str) -> bytes:
        return f"-{words}\r\n".encode() if key == "k:5" else value(key)

    with Cluster(reply) as cluster:
        out = arrow.ordered_wait(batches(), lookup(cluster), on_error="capture", retry=0)
        rows = [row for batch in out for row in batch.to_pylist()]

    failed = [row for row in rows if row["error"] is not None]
    assert [row["id"] for row in failed] == [5]
    assert f"Redis answered `{words}`" in failed[0]["error"]["message"]
    assert len(rows) == ROWS
    assert cluster.counts["GET"] == ROWS


def test_a_node_in_a_storm_holds_its_own_rows_and_no_others():
    """The keys of one node are sent in a circle until all rows of the others are there."""
    calm = threading.Event()
    own = {i for i in range(ROWS) if owner(f"k:{i}") == 1}

    def reply(cluster: Cluster, node: int, key: str) -> bytes:
        if owner(key) == 1 and not calm.is_set():
            return moved(cluster, key, (node + 1) % 3)
        return value(key)

    with Cluster(reply) as cluster:
        out = arrow.unordered_wait(
            batches(),
            lookup(cluster),
            capacity=60,
            channel=sa.Channel(count=3),
            retry=sa.retry.fixed_delay(1_000_000, "5ms", budget=None),
            timeout="10min",
            tuning=sa.Tuning(buffer_timeout=0, max_rows=1),
        )
        early = [next(out).to_pylist()[0] for _ in range(300)]
        calm.set()
        rest = [row for batch in out for row in batch.to_pylist()]

    assert not own & {row["id"] for row in early}
    assert sorted((row["id"], row["v"]) for row in early + rest) == EXPECTED
