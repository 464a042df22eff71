# SPDX-License-Identifier: Apache-2.0
"""What a peer is: a file in `peers` that has a `PEER` of this kind.

The file is imported by whoever asks what peers there are, in any environment, so it imports its
packages inside functions only.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from benches.compare import peers
from benches.compare.workloads import Workload, by_name

__all__ = ["Job", "Outcome", "Peer", "all_peers", "find"]


@dataclass(frozen=True)
class Job:
    """What the process of a peer is asked to do.

    Attributes:
        workload: The workload.
        rows: Ids from 0 up to this number, in this order.
        warm_up_rows: Rows of a first pass in the same process that is not measured.
        url: Address of the HTTP server, if the workload has one. Where there are several
            destinations, with a blank and the address of the one that never answers behind it.
    """

    workload: Workload
    rows: int
    warm_up_rows: int
    url: str = ""

    @property
    def warm_up(self) -> Job:
        """The pass that is not measured."""
        return Job(self.workload, self.warm_up_rows, 0, self.url)

    def to_json(self) -> dict[str, Any]:
        """Returns the job as a value for `json`."""
        return {
            "workload": self.workload.name,
            "rows": self.rows,
            "warm_up_rows": self.warm_up_rows,
            "url": self.url,
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> Job:
        """Returns the job that `to_json` has described."""
        return Job(by_name(value["workload"]), value["rows"], value["warm_up_rows"], value["url"])


@dataclass(frozen=True)
class Outcome:
    """What the process of a peer reports. Times are of the machine's monotonic clock.

    Attributes:
        first_ns: When the first row was admitted.
        last_ns: When the last row was out.
        rows: Rows that came out.
        id_sum: Sum of their ids.
        result_sum: Sum of their results.
        missing: Rows that came out without a result.
        misplaced: Rows whose place in the output is not the one that the mode promises.
        latency_ms: From the start of a row's call to its emission, by percentile.
        added_ms: The same without what the call itself was to take.
        settings: How the peer was set up, for people.
        versions: Of the peer and what it runs on.
    """

    first_ns: int
    last_ns: int
    rows: int
    id_sum: int
    result_sum: int
    missing: int = 0
    misplaced: int = 0
    latency_ms: dict[str, float] | None = None
    added_ms: dict[str, float] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """Something that calls a function for every row.

    Attributes:
        name: The name of its file.
        title: For people.
        environment: Its virtual environment: ``requirements/compare-<environment>.lock``.
        can: What workloads may need of it: ``ordered``, ``unordered``, ``http``, ``watermarks``,
            ``paced input``.
        rows_per_second: About what it reaches where calls return at once; together with a duration
            it gives the rows of a run.
        run: Does the work, in the peer's environment.
        start: Seconds of its process beside the work: starting, getting ready, ending.
        rates: Rows a second by name of workload, where the smaller of `rows_per_second` and the
            bound is far off.
        max_calls: Most calls in flight that it is asked for.
        is_ours: Whether the product is part of it.
        prepare: Builds what it needs beside packages; called in the project's environment. Raises
            `benches.compare.environment.NotInstalledError`.
    """

    name: str
    title: str
    environment: str
    can: frozenset[str]
    rows_per_second: float
    run: Callable[[Job], Outcome]
    start: float
    rates: Mapping[str, float] = field(default_factory=dict)
    max_calls: int = 1_000_000
    is_ours: bool = False
    prepare: Callable[[], None] | None = None

    def takes(self, workload: Workload) -> bool:
        """Tells whether it can do the workload."""
        is_asked = workload.peers is None or self.name in workload.peers
        return is_asked and workload.needs <= self.can and workload.calls <= self.max_calls

    def rows(self, workload: Workload, seconds: float) -> int:
        """Returns how many rows keep it busy for about that long."""
        return max(100, round(self._rate(workload) * seconds * workload.stretch))

    def process_seconds(self, workload: Workload, seconds: float, warm_up_share: float) -> float:
        """Returns about how long its process takes that works on `rows`, and on its warm-up."""
        work = self.rows(workload, seconds) / self._rate(workload)
        return self.start + work * (1 + warm_up_share)

    def _rate(self, workload: Workload) -> float:
        bound = workload.bound()
        limits = (self.rows_per_second, bound, workload.reach)
        usual = min(limit for limit in limits if limit is not None)
        rate = self.rates.get(workload.name, usual)
        if workload.load is not None and bound is not None:
            rate = workload.load * bound
        return rate


def all_peers() -> dict[str, Peer]:
    """Returns the peer of each file in `peers`, by name, ours first."""
    names = [module.name for module in pkgutil.iter_modules(peers.__path__)]
    found = [find(name) for name in names]
    return {
        peer.name: peer for peer in sorted(found, key=lambda peer: (not peer.is_ours, peer.name))
    }


def find(name: str) -> Peer:
    """Returns the peer of that name."""
    return import_module(f"{peers.__name__}.{name}").PEER
