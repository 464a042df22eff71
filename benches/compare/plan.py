# SPDX-License-Identifier: Apache-2.0
"""Who does what, how often and in which turn, and about how long all of it takes.

The page must be measured in one go, so that all of its numbers are of one machine and one commit.
sparkawait and Flink have seven rounds, because claims are ratios of the two. The others have three,
spread over the same time: they are many, slow to start, and far from close.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benches.compare.peer import Peer
from benches.compare.workloads import Workload

__all__ = [
    "BASELINE",
    "ROUNDS",
    "SECONDS",
    "WARM_UP_SHARE",
    "Entry",
    "few",
    "in_turn",
    "plan",
    "table",
    "turns",
]

ROUNDS = 7
"""Measured processes of sparkawait and of Flink at each workload."""
OTHERS = 3
"""The same of other peers."""
SECONDS = 2.5
"""About how long each works."""
WARM_UP_SHARE = 0.2
"""Rows of the pass that is dropped, by rows of the measured one."""
BASELINE = "flink_java"
"""Measured as often as sparkawait. A run whose baseline is not steady is refused."""


@dataclass(frozen=True)
class Entry:
    """One workload of a run.

    Attributes:
        workload: The workload.
        peers: Who does it, in the order of the first round.
        rounds: The most rounds of a peer.
        seconds: About how long a peer works in each.
    """

    workload: Workload
    peers: tuple[Peer, ...]
    rounds: int
    seconds: float

    def minutes(self) -> float:
        """Returns about how long it takes, start-up of the processes included."""
        return (
            sum(
                peer.process_seconds(self.workload, self.seconds, WARM_UP_SHARE)
                for _, peer in in_turn(self.peers, self.rounds)
            )
            / 60
        )


def plan(
    peers: Sequence[Peer], workloads: Sequence[Workload], rounds: int, seconds: float
) -> list[Entry]:
    """Returns what a run measures; a workload that no peer does is left out."""
    entries = [
        Entry(workload, tuple(peer for peer in peers if peer.takes(workload)), rounds, seconds)
        for workload in workloads
    ]
    return [entry for entry in entries if entry.peers]


def few(rounds: int) -> int:
    """Returns the rounds of the others, where sparkawait and Flink have so many."""
    return max(1, round(rounds * OTHERS / ROUNDS))


def turns(peer: Peer, rounds: int) -> list[int]:
    """Returns the rounds of a peer, by number."""
    if peer.is_ours or peer.name == BASELINE:
        return list(range(rounds))
    count = few(rounds)
    return [round(place * (rounds - 1) / max(1, count - 1)) for place in range(count)]


def in_turn(peers: Sequence[Peer], rounds: int) -> Iterator[tuple[int, Peer]]:
    """Yields round and peer: A B, B A, A B, so that neither is always the first of a pair."""
    for number in range(rounds):
        yield from (
            (number, peer)
            for peer in peers[:: -1 if number % 2 else 1]
            if number in turns(peer, rounds)
        )


def table(entries: Sequence[Entry]) -> str:
    """Returns the plan for people: a line for each workload, and the minutes of all."""
    lines = [f"{'workload':26}{'processes':>9}{'minutes':>9}  peers, with their rounds"]
    for entry in entries:
        often = [f"{peer.name} {len(turns(peer, entry.rounds))}" for peer in entry.peers]
        count = sum(1 for _ in in_turn(entry.peers, entry.rounds))
        lines.append(f"{entry.workload.name:26}{count:9}{entry.minutes():9.1f}  {', '.join(often)}")
    total = sum(entry.minutes() for entry in entries)
    return "\n".join([*lines, f"{'all':26}{'':9}{total:9.1f}"])
