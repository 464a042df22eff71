# SPDX-License-Identifier: Apache-2.0
"""What came of a stream, as a table. Pure functions of what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.table import Table

__all__ = ["StreamRun", "percentile", "stream_table"]


@dataclass(frozen=True)
class StreamRun:
    """What one run of a stream did.

    Attributes:
        name: What ran.
        rows: Flights that came out.
        seconds: From the start of the query until all had come out.
        batches: Seconds of each micro-batch that had new rows.
        latencies: Seconds from when a flight came until it was at the sink.
        carried: Rows in flight at the end of each of these micro-batches; none without carry-over.
        expected: What is right for each flight.
        seen: What came out, by flight.
    """

    name: str
    rows: int
    seconds: float
    batches: Sequence[float]
    latencies: Sequence[float]
    carried: Sequence[int] = ()
    expected: Mapping[int, int | None] = field(default_factory=dict[int, "int | None"])
    seen: Sequence[tuple[int, int | None]] = ()

    @property
    def is_right(self) -> bool:
        """Whether each flight came out exactly once, with what is right for it."""
        return len(self.seen) == len(self.expected) and dict(self.seen) == self.expected

    @property
    def verdict(self) -> str:
        """What there is to say about the output."""
        if self.is_right:
            return f"{self.rows:,} flights, each once, each with its own aircraft"
        found = dict(self.seen)
        missing = len(self.expected.keys() - found.keys())
        twice = len(self.seen) - len(found)
        wrong = sum(self.expected.get(flight) != built for flight, built in found.items())
        return f"not right: {missing:,} missing, {twice:,} twice, {wrong:,} different"


def percentile(values: Sequence[float], share: float) -> float | None:
    """Returns what `share` of the values do not exceed; ``None`` without any."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def stream_table(runs: Sequence[StreamRun]) -> Table:
    """Returns the runs side by side."""
    result = Table(box=SIMPLE_HEAD)
    result.add_column("")
    for run in runs:
        result.add_column(run.name, justify="right", no_wrap=True)
    for title, cell in _LINES.items():
        result.add_row(title, *(cell(run) for run in runs))
    return result


def _seconds(values: Sequence[float], share: float) -> str:
    found = percentile(values, share)
    return "-" if found is None else f"{found:,.2f} s"


_LINES: dict[str, Callable[[StreamRun], str]] = {
    "rows": lambda run: f"{run.rows:,}",
    "micro-batches with rows": lambda run: f"{len(run.batches):,}",
    "p50 of a micro-batch": lambda run: _seconds(run.batches, 0.5),
    "p95 of a micro-batch": lambda run: _seconds(run.batches, 0.95),
    "longest micro-batch": lambda run: _seconds(run.batches, 1.0),
    "p50 from coming to sink": lambda run: _seconds(run.latencies, 0.5),
    "p95 from coming to sink": lambda run: _seconds(run.latencies, 0.95),
    "longest": lambda run: _seconds(run.latencies, 1.0),
    "most rows in flight between batches": lambda run: f"{max(run.carried, default=0):,}",
}
