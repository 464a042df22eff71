# SPDX-License-Identifier: Apache-2.0
"""The table at the end. Pure functions of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

__all__ = ["Buckets", "Run", "latency_mean", "latency_percentile", "littles_bound", "table"]

Buckets = Sequence[tuple[float, int]]
"""Upper bounds in seconds and counts, ascending."""

_UNKNOWN = "-"


@dataclass(frozen=True)
class Run:
    """What one run did.

    Attributes:
        name: What ran.
        rows: Flights enriched.
        seconds: Time from the start of the Spark job to its end.
        calls: Requests that the service had, retries included; ``None`` if it does not tell.
        errors: Those of them that it failed.
        retries: Flights that were looked up once more.
        latencies: Durations of the calls; where both of a flight are made at once, of the two.
    """

    name: str
    rows: int
    seconds: float
    calls: int | None = None
    errors: int | None = None
    retries: int | None = None
    latencies: Buckets = ()

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def littles_bound(in_flight: int, tasks: int, mean_latency: float) -> float:
    """Returns the rows per second that no scheduling can exceed, by Little's law."""
    return in_flight * tasks / mean_latency


def latency_mean(buckets: Buckets) -> float | None:
    """Returns the mean of the recorded durations."""
    count = sum(count for _, count in buckets)
    return sum(seconds * count for seconds, count in buckets) / count if count else None


def latency_percentile(buckets: Buckets, share: float) -> float | None:
    """Returns the duration that `share` of the calls did not exceed."""
    wanted = share * sum(count for _, count in buckets)
    for seconds, count in buckets:
        wanted -= count
        if wanted <= 0:
            return seconds
    return None


def table(runs: Sequence[Run], bounds: Sequence[float]) -> Table:
    """Returns the runs side by side.

    Args:
        runs: What was measured.
        bounds: Little's bound of each, in rows per second; none if they say nothing.
    """
    result = Table(box=SIMPLE_HEAD)
    result.add_column("")
    for one in runs:
        result.add_column(one.name, justify="right", no_wrap=True)
    for title, cell in _LINES.items():
        result.add_row(title, *(cell(one) for one in runs))
    if not bounds:
        return result
    result.add_row("Little's bound, rows/s", *(f"{bound:,.0f}" for bound in bounds))
    shares = [f"{one.rate / bound:.0%}" for one, bound in zip(runs, bounds, strict=True)]
    result.add_row("share of it reached", *shares)
    return result


def _count(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _milliseconds(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else f"{seconds * 1000:,.1f} ms"


_LINES: dict[str, Callable[[Run], str]] = {
    "rows": lambda run: _count(run.rows),
    "calls": lambda run: _count(run.calls),
    "errors": lambda run: _count(run.errors),
    "retries": lambda run: _count(run.retries),
    "p50 of a call": lambda run: _milliseconds(latency_percentile(run.latencies, 0.5)),
    "p99 of a call": lambda run: _milliseconds(latency_percentile(run.latencies, 0.99)),
    "seconds": lambda run: f"{run.seconds:,.1f}",
    "rows/s": lambda run: _count(round(run.rate)),
}
