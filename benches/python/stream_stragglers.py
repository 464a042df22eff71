# SPDX-License-Identifier: Apache-2.0
"""What do stragglers do to the micro-batches of a stream, with and without ``carry_over``?

200 rows a second, a trigger of 500 ms, calls of 1 to 20 ms, capacity 1 000, two partitions; one row
of a hundred takes 20 triggers, 10 s. Goals: micro-batches (``triggerExecution``, p95) of at most
1.3 times those of the same query without stragglers, and no call made twice. Without ``carry_over``
a micro-batch takes as long as its slowest call.

Then 2 000 rows in each micro-batch, one after another, one row of a hundred taking 2 s. Goal: 3
times the rows a second that the same query has without ``carry_over``.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

from figures import Figure, Settings
from pyspark.sql import DataFrame, SparkSession
from session import local_spark

import sparkawait as sa

CORES = 2
CAPACITY = 1_000
TRIGGER_SECONDS = 0.5
ROWS_PER_SECOND = 200
ROWS_PER_BATCH = 2_000
WARM_UP_BATCHES = 5
"""Not counted: workers start in them."""
PATIENCE_SECONDS = 600
PACED, FULL = 20 * TRIGGER_SECONDS, 2.0
"""How long a straggler takes, in seconds, in either part."""


class Call(sa.AsyncFunction):
    """Takes 1 to 20 ms, or `straggler` seconds for one row of a hundred, if any.

    Args:
        straggler: Seconds.
        log: File that gets a line for each call; ``None`` for none.
    """

    schema = "answer bigint"

    def __init__(self, straggler: float | None, log: Path | None = None) -> None:
        """Opens nothing: this is the driver."""
        self.straggler = straggler
        self.log = None if log is None else str(log)

    async def async_invoke(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Waits."""
        if self.log is not None:
            self._note(row["value"])
        is_straggler = self.straggler is not None and row["value"] % 100 == 0
        await asyncio.sleep(self.straggler if is_straggler else random.uniform(0.001, 0.020))
        return {"answer": row["value"]}

    def _note(self, value: int) -> None:
        file = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b"%d\n" % value)
        os.close(file)


@dataclass(frozen=True)
class Measured:
    """The micro-batches of a query behind those that warm up.

    Attributes:
        starts: When each began, in seconds since the first.
        batches: Seconds of each.
        rows: Rows that came in, less those that were in flight in the end.
        seconds: Time from the first to the last.
    """

    starts: list[float]
    batches: list[float]
    rows: int
    seconds: float

    @property
    def p95(self) -> float:
        """The time that 95 % of the micro-batches did not exceed."""
        return quantiles(self.batches, n=20, method="inclusive")[-1]


def figures(settings: Settings) -> list[Figure]:
    """Measures both parts."""
    batches = 12 if settings.quick else 120
    seconds = 8.0 if settings.quick else 60.0
    with local_spark(CORES) as spark, TemporaryDirectory() as folder:
        spark.conf.set("spark.sql.shuffle.partitions", str(CORES))
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
        return [
            *_paced(spark, Path(folder), batches),
            _full(spark, Path(folder), seconds),
        ]


def _paced(spark: SparkSession, folder: Path, batches: int) -> list[Figure]:
    stream = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", ROWS_PER_SECOND)
        .option("numPartitions", CORES)
        .load()
    )
    log = folder / "calls"

    def measure(straggler: float | None, *, carries: bool, batches: int = batches) -> Measured:
        log.unlink(missing_ok=True)
        out = _called(stream, Call(straggler, log), carries=carries)
        with _running(out, folder, f"{TRIGGER_SECONDS} seconds") as query:
            return _first_batches(query, batches)

    plain = measure(None, carries=True)
    # Each takes as long as its slowest call.
    barrier = measure(PACED, carries=False, batches=max(3, batches // 20))
    carried = measure(PACED, carries=True)
    twice = sum(count > 1 for count in Counter(log.read_text().split()).values())
    name = "Stream, 1 % of the calls take 20 triggers, micro-batch p95"
    return [
        Figure(
            name,
            "s",
            [carried.p95],
            "without stragglers",
            [plain.p95],
            goal=1.3,
            at_most=True,
            details={
                "micro-batches": {
                    "without stragglers": [plain.starts, plain.batches],
                    "with carry_over": [carried.starts, carried.batches],
                    "without carry_over": [barrier.starts, barrier.batches],
                }
            },
        ),
        Figure(name, "s", [carried.p95], "without carry_over", [barrier.p95], goal=None),
        Figure(
            "Stream, calls made twice", "", [float(twice)], "", [], 0, of_ratio=False, at_most=True
        ),
    ]


def _full(spark: SparkSession, folder: Path, seconds: float) -> Figure:
    stream = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .option("numPartitions", CORES)
        .load()
    )
    rates: list[float] = []
    for carries in (True, False):
        with _running(_called(stream, Call(FULL), carries=carries), folder, "0 seconds") as query:
            measured = _for_a_time(query, seconds)
        rates.append(measured.rows / measured.seconds)
    name = "Stream, calls of 1-20 ms, 1 % of 2 s, 2 000 rows a micro-batch"
    return Figure(name, "rows/s", rates[:1], "without carry_over", rates[1:], goal=3)


def _called(stream: DataFrame, call: Call, *, carries: bool) -> DataFrame:
    carry_over = sa.CarryOver() if carries else None
    return sa.unordered_wait(
        stream, call, max_concurrency=CAPACITY, timeout="60s", carry_over=carry_over
    )


@contextmanager
def _running(out: DataFrame, folder: Path, trigger: str) -> Iterator[Any]:
    writer = out.writeStream.format("noop")
    with TemporaryDirectory(dir=folder) as checkpoint:
        writer = writer.option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime=trigger).start()
        try:
            yield query
        finally:
            query.stop()


def _first_batches(query: Any, batches: int) -> Measured:
    """Waits for so many micro-batches, and `WARM_UP_BATCHES` before them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(query.recentProgress) < WARM_UP_BATCHES + batches:
        _check(query, deadline)
        time.sleep(0.1)
    return _measured(query)


def _for_a_time(query: Any, seconds: float) -> Measured:
    """Waits for so long, behind `WARM_UP_BATCHES` micro-batches."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(query.recentProgress) <= WARM_UP_BATCHES:
        _check(query, deadline)
        time.sleep(0.1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _check(query, deadline)
        time.sleep(0.1)
    return _measured(query)


def _check(query: Any, deadline: float) -> None:
    if query.exception() is not None:
        raise query.exception()
    if time.monotonic() > deadline:
        message = f"{len(query.recentProgress)} micro-batches in {PATIENCE_SECONDS} s"
        raise TimeoutError(message)


def _measured(query: Any) -> Measured:
    warm_up, *others = query.recentProgress[WARM_UP_BATCHES - 1 :]
    batches = [it["durationMs"]["triggerExecution"] / 1000 for it in others]
    began = [_seconds(it["timestamp"]) for it in others]
    rows = sum(it["numInputRows"] for it in others)
    rows += _in_flight(warm_up) - _in_flight(others[-1])
    return Measured([it - began[0] for it in began], batches, rows, sum(batches))


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def _in_flight(progress: Any) -> int:
    numbers = progress["observedMetrics"].get("sparkawait")
    return 0 if numbers is None else numbers["carried"] + numbers["held"]
