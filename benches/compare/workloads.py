# SPDX-License-Identifier: Apache-2.0
"""What the peers are asked to do, as data.

How long a call takes depends on the id of its row alone, so that all peers get the same calls:
`Delays.table` is a shuffled table of which row ``id`` takes entry ``id % TABLE_SIZE``.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

__all__ = ["KEYS", "TABLE_SIZE", "WORKLOADS", "Delays", "Mode", "Service", "Workload", "by_name"]

Mode = Literal["ordered", "unordered"]

TABLE_SIZE = 1 << 16
"""A power of two."""
KEYS = 1_000
"""Keys of the table that the HTTP server serves; row ``id`` asks for ``id % KEYS``."""

_SEED = 20
_SECONDS_PER_MICROSECOND = 1e-6


@dataclass(frozen=True)
class Delays:
    """How long calls take. Durations are in milliseconds.

    Attributes:
        kind: ``constant`` (`first`), ``uniform`` (`first` to `second`) or ``log_normal`` (median
            `first`, standard deviation of the logarithm `second`).
        first: See `kind`.
        second: See `kind`.
        stragglers: Share of the calls that take `factor` times as long.
        factor: See `stragglers`.
    """

    kind: Literal["constant", "uniform", "log_normal"]
    first: float
    second: float = 0.0
    stragglers: float = 0.0
    factor: float = 1.0

    @lru_cache(maxsize=4)  # noqa: B019 - delays are few, and live as long as the process
    def table(self) -> tuple[float, ...]:
        """Returns the seconds of each entry, evenly taken from the distribution and shuffled."""
        chance = random.Random(_SEED)
        seconds = [self._quantile((i + 0.5) / TABLE_SIZE) / 1e3 for i in range(TABLE_SIZE)]
        chance.shuffle(seconds)
        slow = chance.sample(range(TABLE_SIZE), round(self.stragglers * TABLE_SIZE))
        for entry in slow:
            seconds[entry] *= self.factor
        return tuple(
            round(value / _SECONDS_PER_MICROSECOND) * _SECONDS_PER_MICROSECOND for value in seconds
        )

    @lru_cache(maxsize=4)  # noqa: B019 - as above
    def mean(self) -> float:
        """Returns the mean of the table in seconds."""
        return math.fsum(self.table()) / TABLE_SIZE

    def _quantile(self, share: float) -> float:
        if self.kind == "constant":
            return self.first
        if self.kind == "uniform":
            return self.first + share * (self.second - self.first)
        return self.first * math.exp(self.second * NormalDist().inv_cdf(share))


@dataclass(frozen=True)
class Service:
    """HTTP servers on the loopback interface that answer calls after `milliseconds`.

    Attributes:
        milliseconds: How long an answer takes.
        rate_limit: Requests a second beyond which it answers 429 with ``Retry-After``.
        stall_rate: Share of the requests that it never answers.
        destinations: Destinations of the rows, which go to them in turn; column ``destination``.
            Of several, the first is a host that never answers.
    """

    milliseconds: float
    rate_limit: float | None = None
    stall_rate: float = 0.0
    destinations: int = 1

    @property
    def unanswered(self) -> float:
        """The share of the requests that are never answered."""
        return self.stall_rate if self.destinations == 1 else 1 / self.destinations

    def answers(self, row: int) -> bool:
        """Tells whether a row's destination is one that answers."""
        return self.destinations == 1 or row % self.destinations > 0


@dataclass(frozen=True)
class Workload:
    """One piece of work that every peer does.

    Attributes:
        name: As on the command line and in ``results.json``.
        title: For people.
        mode: The order of the output. A peer that has no unordered mode does it in its order.
        calls: Calls in flight at most.
        slots: Rows that may be held, by peers that bound them apart from calls.
        held: Bytes of results that may be held, by peers that bound these instead of rows.
        megabytes: What the process may have at its peak; a peer that takes more is out.
        delays: What a simulated call takes; ``None`` for a call that returns at once.
        service: What is called over HTTP instead of a simulated call.
        watermark_every: Rows between watermarks, if there are any.
        load: Input as a share of the bound, evenly paced; ``None`` for as fast as it is taken.
        timeout: Seconds that a row may take, retries included; armed in every peer that has it.
        reach: Rows a second that peers can reach at most, where that is far below the bound.
        stretch: Runs this many times as long as others, where the slowest calls are long.
        peers: The peers that are asked to do it; ``None`` for all that can.
        is_published: Whether it is a part of the page; others are measured when they are named.
        is_quick: Whether ``--quick`` runs it.
    """

    name: str
    title: str
    mode: Mode = "unordered"
    calls: int = 1_000
    slots: int | None = None
    held: str | None = None
    megabytes: float | None = None
    delays: Delays | None = None
    service: Service | None = None
    watermark_every: int | None = None
    load: float | None = None
    timeout: float = 60.0
    reach: float | None = None
    stretch: float = 1.0
    peers: frozenset[str] | None = None
    is_published: bool = True
    is_quick: bool = False

    @property
    def needs(self) -> set[str]:
        """What a peer must be able to do."""
        needed = {self.mode}
        if self.service is not None:
            needed.add("http")
        if self.watermark_every is not None:
            needed.add("watermarks")
        if self.load is not None:
            needed.add("paced input")
        return needed

    def mean_seconds(self) -> float | None:
        """Returns the mean duration of a call; ``None`` if it returns at once."""
        if self.service is not None:
            unanswered = self.service.unanswered
            return (1 - unanswered) * self.service.milliseconds / 1e3 + unanswered * self.timeout
        return self.delays.mean() if self.delays is not None else None

    def bound(self) -> float | None:
        """Returns Little's bound, calls in flight by mean duration, in rows a second.

        A rate limit that is below it takes its place; at once means that there is no bound.
        """
        seconds = self.mean_seconds()
        if seconds is None:
            return None
        limit = self.service.rate_limit if self.service is not None else None
        return min(self.calls / seconds, limit if limit is not None else math.inf)


_UNIFORM = Delays("uniform", 1, 20)
_STRAGGLERS = Delays("log_normal", 5, 0.5, stragglers=0.01, factor=100)
_HTTP = Workload(
    "http", "HTTP GET, answered after 5 ms, 100 calls", calls=100, service=Service(5), timeout=30.0
)

_OPERATORS = frozenset({"sparkawait_arrow", "sparkawait_arrow_python", "flink_java"})
"""Operators without Spark or SQL around them, where a question is about the operator."""
_IN_SPARK = frozenset(
    {"sparkawait_native", "sparkawait_python", "flink_java", "recipe_gather", "daft"}
)
"""Where each row costs a peer without channels a second: those that most readers know."""

WORKLOADS: tuple[Workload, ...] = (
    Workload("no-op-unordered", "Calls that return at once, unordered", is_quick=True),
    Workload("no-op-ordered", "Calls that return at once, ordered", "ordered", peers=_OPERATORS),
    Workload(
        "uniform-100",
        "Calls of 1-20 ms, 100 at a time",
        calls=100,
        delays=_UNIFORM,
        peers=_OPERATORS | _IN_SPARK - {"daft"},
    ),
    *(
        Workload(
            f"uniform-{calls}",
            f"Calls of 1-20 ms, {calls} at a time",
            calls=calls,
            delays=_UNIFORM,
            is_quick=calls == 1_000,  # noqa: PLR2004 - the usual one
        )
        for calls in (1_000, 10_000)
    ),
    Workload(
        "stragglers-unordered",
        "Log-normal calls around 5 ms, 1 % take 100 times as long",
        delays=_STRAGGLERS,
        stretch=3.0,
        peers=_OPERATORS,
    ),
    Workload(
        "stragglers-ordered",
        "Log-normal calls around 5 ms, 1 % take 100 times as long, ordered",
        "ordered",
        slots=10_000,
        delays=_STRAGGLERS,
        # The slowest of the rows that are held decides: 10 000 of them have one of 1.5 s.
        reach=6_000,
        stretch=2.0,
    ),
    Workload(
        "stragglers-ordered-200mb",
        "Log-normal calls around 5 ms, 1 % take 100 times as long, ordered, in at most 200 MB",
        "ordered",
        slots=10_000,
        held="32 MB",
        megabytes=200.0,
        delays=_STRAGGLERS,
        stretch=2.0,
        peers=_OPERATORS,
    ),
    Workload(
        "watermark-1",
        "Calls that return at once, a watermark after every row",
        watermark_every=1,
        peers=_OPERATORS,
    ),
    Workload(
        "half-load",
        "Calls of 1-20 ms, input at half of the bound",
        delays=_UNIFORM,
        load=0.5,
        peers=_OPERATORS,
    ),
    _HTTP,
    replace(
        _HTTP,
        name="http-stalled-host",
        title="HTTP GET of ten destinations, one never answers, timeout 1 s",
        service=Service(5, destinations=10),
        timeout=1.0,
        stretch=3.0,
        peers=_IN_SPARK,
    ),
    replace(
        _HTTP,
        name="http-429",
        title="HTTP GET with a limit of 2 000 requests a second, 429 beyond it",
        service=Service(5, rate_limit=2_000),
        stretch=2.0,
        is_published=False,
    ),
    replace(
        _HTTP,
        name="http-stall",
        title="HTTP GET where 1 request in 1 000 is never answered, timeout 1 s",
        service=Service(5, stall_rate=0.001),
        timeout=1.0,
        is_published=False,
    ),
)


def by_name(name: str) -> Workload:
    """Returns the workload of that name.

    Raises:
        ValueError: If there is none.
    """
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    msg = f"no such workload: `{name}`; there are {', '.join(w.name for w in WORKLOADS)}"
    raise ValueError(msg)
