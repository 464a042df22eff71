# SPDX-License-Identifier: Apache-2.0
"""A real Redis cluster on free loopback ports, up within a second or two."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from typing_extensions import Self

from tests.support.redis_server import RedisServer
from tests.support.servers import LOOPBACK, START_SECONDS, free_port

__all__ = ["SLOTS", "RedisCluster", "wait_for"]

SLOTS = 16384

NODE_TIMEOUT_MS = 500
"""A node that is silent for so long is lost, and a replica takes over."""


class RedisCluster:
    """Three primaries with a third of the slots each, as a context manager.

    Args:
        replicas: Replicas of each primary.

    Attributes:
        primaries: Their servers, in the order of their slots.
        replicas: Those of the first primary, of the second, and so on.
    """

    def __init__(self, replicas: int = 0) -> None:
        self._buses: dict[int, str] = {}
        self._stack = contextlib.ExitStack()
        self.primaries = [self._prepare() for _ in range(3)]
        self.replicas = [[self._prepare() for _ in range(replicas)] for _ in self.primaries]

    @property
    def nodes(self) -> list[RedisServer]:
        """All servers."""
        return [*self.primaries, *(node for nodes in self.replicas for node in nodes)]

    @property
    def url(self) -> str:
        """Where the first primary listens."""
        return self.primaries[0].url

    def __enter__(self) -> Self:
        """Starts the nodes, and returns when each of them says that the cluster is whole."""
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            self._introduce()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops all nodes."""
        self._stack.close()

    def load(self, values: Mapping[str, object]) -> None:
        """Sets all keys, and waits until replicas have them."""
        commands = [["SET", key, str(value)] for key, value in values.items()]
        for node in self.primaries:
            # Keys of the other nodes are refused.
            node.load(commands, expect="MOVED")
        for primary, replicas in zip(self.primaries, self.replicas, strict=True):
            size = primary.cli("dbsize")
            for replica in replicas:
                wait_for(lambda replica=replica, size=size: replica.cli("dbsize") == size)
        # A node tells of a replica only once it has heard that it has something.
        ports = {str(node.port) for nodes in self.replicas for node in nodes}
        for node in self.nodes:
            wait_for(lambda node=node: ports <= set(node.cli("cluster", "slots").split()))

    def is_agreed(self) -> bool:
        """Returns whether all primaries name the same owner of each slot, by epochs that differ.

        Slots that move on before that may be claimed by two nodes with one epoch; one of them then
        gives way, and Redis deletes the keys that it has in them.
        """
        told = {_primaries_told_by(node) for node in self.primaries}
        epochs = [epoch for _, epoch, _ in next(iter(told))]
        return len(told) == 1 and len(set(epochs)) == len(epochs)

    def _prepare(self) -> RedisServer:
        bus = str(free_port())
        node = RedisServer(
            *("--cluster-enabled", "yes", "--cluster-port", bus),
            *("--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
            *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
            cli=["-c"],
        )
        self._buses[node.port] = bus
        return node

    def _introduce(self) -> None:
        first, *others = self.nodes
        share = -(-SLOTS // len(self.primaries))
        for index, node in enumerate(self.primaries):
            node.cli("cluster", "set-config-epoch", str(index + 1))
            slots = range(SLOTS)[index * share : (index + 1) * share]
            node.cli("cluster", "addslotsrange", str(slots[0]), str(slots[-1]))
        for node in others:
            first.cli("cluster", "meet", LOOPBACK, str(node.port), self._buses[node.port])
        self._wait(f"cluster_known_nodes:{len(self.nodes)}")
        for primary, replicas in zip(self.primaries, self.replicas, strict=True):
            name = primary.cli("cluster", "myid").strip()
            for replica in replicas:
                wait_for(lambda replica=replica, name=name: _follows(replica, name))
        self._wait("cluster_state:ok")

        # Each node must know of each replica.
        count = sum(len(replicas) for replicas in self.replicas)
        for node in self.nodes:
            wait_for(lambda node=node: node.cli("cluster", "nodes").count("slave ") == count)

    def _wait(self, state: str) -> None:
        for node in self.nodes:
            wait_for(lambda node=node: state in node.cli("cluster", "info"))


def _primaries_told_by(node: RedisServer) -> frozenset[tuple[str, str, tuple[str, ...]]]:
    """Name, epoch and slots of each primary, as a node has heard."""
    fields = (line.split() for line in node.cli("cluster", "nodes").splitlines())
    # A slot that is on its way is marked beside the others.
    return frozenset(
        (name, epoch, tuple(it for it in slots if not it.startswith("[")))
        for name, _, flags, _, _, _, epoch, _, *slots in fields
        if "master" in flags
    )


def _follows(replica: RedisServer, primary: str) -> bool:
    replica.cli("cluster", "replicate", primary)  # refused until it knows the primary
    return "master_link_status:up" in replica.cli("info", "replication")


def wait_for(condition: Callable[[], bool]) -> None:
    """Returns when a condition of the servers holds."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
