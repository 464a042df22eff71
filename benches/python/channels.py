# SPDX-License-Identifier: Apache-2.0
"""One of ten destinations stands still: what do the rows of the nine others notice?

Coroutines that sleep for 5 to 15 ms, 200 at a time, no Spark. 5 000 rows a second come in, a tenth
for each destination; the calls of one take 10 s. The nine others are compared with a run where
nothing stands still and there are no channels. Then ten equal destinations that always have rows
waiting: is each served as often?
Goals: throughput of the nine at least 0.95 of what it was, the 99th percentile of their rows (from
arrival to output) at most 1.2 times; most served by least served at most 1.05.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from time import perf_counter, sleep

import pyarrow as pa
from figures import Figure, Settings, alternate

import sparkawait as sa
import sparkawait.arrow

DESTINATIONS = 10
STALLED = 0
RATE = 5_000
"""Rows a second: a quarter of what 200 calls of 10 ms could do."""
ROWS_PER_BATCH = 50
CALLS = 200
STALL_SECONDS = 10.0
OPTIONS = {
    "capacity": 2 * CALLS,
    "max_concurrency": CALLS,
    "tuning": sa.Tuning(buffer_timeout="2ms"),
}
CHANNEL = sa.Channel("destination", max_backlog=50_000)


class Destination(sa.AsyncFunction):
    """Sleeps for as long as a call to the row's destination takes."""

    schema = "answer bigint"

    def __init__(self, stalled: int | None) -> None:
        """Lets `stalled` stand still, if it is not ``None``."""
        self._stalled = stalled

    async def async_invoke(self, row: sa.typing.Row) -> dict[str, int]:
        """Answers after 5 to 15 ms, or 10 s."""
        stalls = row["destination"] == self._stalled
        await asyncio.sleep(STALL_SECONDS if stalls else random.uniform(0.005, 0.015))
        return {"answer": 1}


class Seen:
    """What the nine others got out of a run."""

    def __init__(self) -> None:
        """Has seen nothing."""
        self.delays: list[float] = []
        self.in_second: Counter[int] = Counter()
        self.seconds = 0.0

    @property
    def rate(self) -> float:
        """Rows a second."""
        return len(self.delays) / self.seconds

    @property
    def timeline(self) -> list[int]:
        """Rows that came out in each second."""
        return [self.in_second[second] for second in range(int(self.seconds))]

    @property
    def p99(self) -> float:
        """Milliseconds from arrival to output, for all but the slowest hundredth."""
        return sorted(self.delays)[int(0.99 * len(self.delays))] * 1_000


def run(seconds: float, *, stalled: int | None, channel: sa.Channel | None) -> Seen:
    """Feeds rows for `seconds`, and looks at what came out by then."""
    seen = Seen()
    started = perf_counter()
    options = {} if channel is None else {"channel": channel}
    batches = paced(started, seconds)
    out = sparkawait.arrow.unordered_wait(batches, Destination(stalled), **OPTIONS, **options)
    # A watchdog that ends the run where nothing comes out any more is not needed: rows of the
    # stalled destination come out after 10 s, so the loop looks at the clock then at the latest.
    for batch in out:
        now = perf_counter()
        if now - started > seconds:
            break
        destinations, arrived = batch["destination"].to_pylist(), batch["arrived"].to_pylist()
        rows = zip(destinations, arrived, strict=True)
        delays = [now - at for destination, at in rows if destination != STALLED]
        seen.delays += delays
        seen.in_second[int(now - started)] += len(delays)
    seen.seconds = seconds
    out.close()  # type: ignore[attr-defined]
    return seen


def paced(started: float, seconds: float) -> Iterator[pa.RecordBatch]:
    """Yields rows at `RATE`, each with the time of its arrival; ends a little after the run."""
    for number in range(int((seconds + 0.2) * RATE / ROWS_PER_BATCH)):
        wait = started + number * ROWS_PER_BATCH / RATE - perf_counter()
        if wait > 0:
            sleep(wait)
        destinations = [row % DESTINATIONS for row in range(ROWS_PER_BATCH)]
        arrived = [perf_counter()] * ROWS_PER_BATCH
        yield pa.record_batch({"destination": destinations, "arrived": arrived})


def fairness(rows: int) -> float:
    """Returns how much more often the most served of ten busy destinations was served."""
    order = [row % DESTINATIONS for row in range(rows)]
    random.Random(7).shuffle(order)
    batch = pa.record_batch({"destination": order})
    channel = sa.Channel("destination", max_backlog=2 * rows, max_per_channel=CALLS)
    out = sparkawait.arrow.unordered_wait([batch], Destination(None), **OPTIONS, channel=channel)
    served: Counter[int] = Counter()
    for output in out:
        served.update(output["destination"].to_pylist())
        if served.total() > rows // 2:
            break
    out.close()  # type: ignore[attr-defined]
    return max(served.values()) / min(served.values())


def figures(settings: Settings) -> list[Figure]:
    """Measures isolation and fairness."""
    seconds, rounds = (2.0, 1) if settings.quick else (20.0, 3)
    before, with_channels, without = alternate(
        rounds,
        lambda: run(seconds, stalled=None, channel=None),
        lambda: run(seconds, stalled=STALLED, channel=CHANNEL),
        lambda: run(seconds, stalled=STALLED, channel=None),
    )
    was, was_p99 = [seen.rate for seen in before], [seen.p99 for seen in before]
    return [
        Figure(
            "nine destinations beside a stalled one, with channels",
            "rows/s",
            [seen.rate for seen in with_channels],
            "nothing stalled",
            was,
            goal=0.95,
            details={
                "timelines": {
                    "nothing stalled": before[-1].timeline,
                    "with channels": with_channels[-1].timeline,
                    "without channels": without[-1].timeline,
                }
            },
        ),
        Figure(
            "99th percentile of their rows, with channels",
            "ms",
            [seen.p99 for seen in with_channels],
            "nothing stalled",
            was_p99,
            goal=1.2,
            at_most=True,
        ),
        Figure(
            "nine destinations beside a stalled one, without channels",
            "rows/s",
            [seen.rate for seen in without],
            "nothing stalled",
            was,
            goal=0.95,
            at_most=True,
        ),
        Figure(
            "most served of ten busy destinations",
            "x least served",
            [fairness(settings.rows(200_000)) for _ in range(rounds)],
            "even",
            [],
            goal=1.05,
            of_ratio=False,
            at_most=True,
        ),
    ]
