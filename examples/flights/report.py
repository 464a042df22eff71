# SPDX-License-Identifier: Apache-2.0
"""What the terminal shows: how far a run is, and the tables at the end."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

Buckets = Sequence[tuple[float, int]]
"""Upper bounds in seconds and counts, ascending."""

_UNKNOWN = "-"
_R = TypeVar("_R", "Run", "StreamRun")


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
    result = _side_by_side(runs, _LINES)
    if not bounds:
        return result
    result.add_row("Little's bound, rows/s", *(f"{bound:,.0f}" for bound in bounds))
    shares = [f"{one.rate / bound:.0%}" for one, bound in zip(runs, bounds, strict=True)]
    result.add_row("share of it reached", *shares)
    return result


def _side_by_side(runs: Sequence[_R], lines: Mapping[str, Callable[[_R], str]]) -> Table:
    result = Table(box=SIMPLE_HEAD)
    result.add_column("")
    for one in runs:
        result.add_column(one.name, justify="right", no_wrap=True)
    for title, cell in lines.items():
        result.add_row(title, *(cell(one) for one in runs))
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
    return _side_by_side(runs, _STREAM_LINES)


def _seconds(values: Sequence[float], share: float) -> str:
    found = percentile(values, share)
    return "-" if found is None else f"{found:,.2f} s"


_STREAM_LINES: dict[str, Callable[[StreamRun], str]] = {
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


_POLL_SECONDS = 0.2
_LINE_SECONDS = 10.0
_Polled = Callable[[float], Iterator[int]]


@contextmanager
def progress(
    console: Console, title: str, total: int, done: Callable[[], int | None]
) -> Generator[None]:
    """Shows, while the body runs, how many of `total` rows `done` returns.

    A live bar on a terminal, now and then a line elsewhere.

    Args:
        console: Where to.
        title: What runs.
        total: Rows of the run.
        done: Returns the rows so far, or ``None`` if that is not known; called on a thread of the
            progress.
    """
    show = _bar if console.is_terminal else _lines
    stopped = threading.Event()
    arguments = (console, title, total, _polled(done, stopped))
    thread = threading.Thread(target=show, args=arguments, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _polled(done: Callable[[], int | None], stopped: threading.Event) -> _Polled:
    def every(seconds: float) -> Iterator[int]:
        while not stopped.wait(seconds):
            rows = done()
            if rows is not None:
                yield rows

    return every


def _bar(console: Console, title: str, total: int, polled: _Polled) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows, {task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
    )
    start = monotonic()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, rate=0.0)
        for rows in polled(_POLL_SECONDS):
            rate = rows / (monotonic() - start)
            bar.update(task, completed=min(rows, total), total=total, rate=rate)


def _lines(console: Console, title: str, total: int, polled: _Polled) -> None:
    for rows in polled(_LINE_SECONDS):
        console.print(f"{title}: {min(rows, total):,} of {total:,} rows")
