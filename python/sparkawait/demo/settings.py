# SPDX-License-Identifier: Apache-2.0
"""What the command line says about the demo. Needs none of the demo's own packages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sparkawait.testing.latency import Latency, log_normal

__all__ = [
    "FLIGHTS_PER_SECOND",
    "STORE_CALLS",
    "STRAGGLER_FACTOR",
    "STREAM_ROWS",
    "STREAM_STRAGGLER_FACTOR",
    "TRIGGER_SECONDS",
    "Function",
    "Mode",
    "Settings",
]

Mode = Literal["ordered", "unordered"]

Function = Literal["http", "python"]
"""``"http"`` are two lookups by `sparkawait.http`, one after the other; ``"python"`` is a coroutine
that makes both calls at once."""

STRAGGLER_FACTOR = 20.0
"""How many times as long as the others stragglers take."""


STREAM_STRAGGLER_FACTOR = 100.0
"""The same of a stream: ten triggers, as a rule."""

FLIGHTS_PER_SECOND = 200
"""How many flights a stream has."""

TRIGGER_SECONDS = 0.5
"""How often a stream begins a micro-batch."""

STREAM_ROWS = 6_000
"""Flights of a stream, if nothing is said: those of half a minute."""

STORE_CALLS = 1000
"""Calls in flight per task and lookup, where Redis or PostgreSQL is asked and nothing is said."""


@dataclass(frozen=True)
class Settings:
    """The options of ``sparkawait demo``.

    Attributes:
        rows: Flights to enrich; ``None`` for all of them.
        sample: Flights for the runs that are there to be compared with.
        modes: What runs through sparkawait; the first over all rows, the second over the sample.
        function: What makes the calls of these runs.
        max_concurrency: Calls in flight per task and lookup.
        latency: Median of the server's latency in seconds.
        stragglers: Share of the answers that take `STRAGGLER_FACTOR` times as long.
        error_rate: Share of the requests that the server answers with status 500.
        url: A service to be asked instead of the embedded server.
        redis: URL of a Redis server to be asked instead; it may have a password in it.
        postgres: URL of a PostgreSQL database to be asked instead; the same.
        output: Folder for the Parquet files; ``None`` for one that does not outlive the demo.
        master: Where Spark runs.
        verify: Whether the output is compared with a plain join.
        streaming: Whether the flights come as a stream, with and without ``carry_over``, instead.
    """

    rows: int | None = None
    sample: int = 40_000
    modes: tuple[Mode, ...] = ("unordered", "ordered")
    function: Function = "http"
    max_concurrency: int = 100
    latency: float = 0.05
    stragglers: float = 0.005
    error_rate: float = 0.002
    url: str | None = None
    redis: str | None = field(default=None, repr=False)
    postgres: str | None = field(default=None, repr=False)
    output: str | None = None
    master: str = "local[*]"
    verify: bool = True
    streaming: bool = False

    @property
    def is_over_http(self) -> bool:
        """Whether an HTTP service is asked, and no store."""
        return self.redis is None and self.postgres is None

    @property
    def stream_rows(self) -> int:
        """Flights of a stream."""
        return self.rows or STREAM_ROWS

    @property
    def straggler_factor(self) -> float:
        """How many times as long as the others stragglers take."""
        return STREAM_STRAGGLER_FACTOR if self.streaming else STRAGGLER_FACTOR

    @property
    def distribution(self) -> Latency:
        """The embedded server's latency."""
        return log_normal(
            self.latency, stragglers=self.stragglers, straggler_factor=self.straggler_factor
        )
