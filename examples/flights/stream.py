# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
"""A stream of flights whose stragglers are waited for, or carried over. Runs on the driver.

The same flights come in twice, at the same rate: once each micro-batch waits for its slowest
lookup, once it ends while lookups are in flight.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from rich.console import Console

import sparkawait as sa
from sparkawait._flights.data import Dataset
from sparkawait._flights.job import enrich
from sparkawait._flights.report import StreamRun, progress, stream_table
from sparkawait._flights.services import Service
from sparkawait._flights.settings import FLIGHTS_PER_SECOND, TRIGGER_SECONDS, DemoError, Settings
from sparkawait.functions import NativeFunction

_WARM_UP_ROWS = 200
_POLL_SECONDS = 0.05


def run_streams(
    spark: SparkSession,
    settings: Settings,
    dataset: Dataset,
    service: Service,
    *,
    work: Path,
    console: Console,
) -> bool:
    """Runs the stream without and with ``carry_over``, and prints both side by side.

    Args:
        spark: A classic session.
        settings: Say how many flights come, and what is asked for.
        dataset: Has the flights.
        service: What is asked.
        work: Folder for the checkpoints.
        console: Where to print.

    Returns:
        Whether each flight came out exactly once, with its own aircraft.

    Raises:
        DemoError: If a query fails.
    """
    tasks = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    flights = Flights(spark, dataset, settings.stream_rows)
    _, lookup = service.lookups
    for carry_over in (None, sa.CarryOver()):
        warm_up = Flights(spark, dataset, _WARM_UP_ROWS)
        FlightStream(warm_up, "warm-up", lookup, settings, carry_over).run(work)
    runs: list[StreamRun] = []
    for name, carry_over in (("without carry_over", None), ("with carry_over", sa.CarryOver())):
        collected = FlightStream(flights, name, lookup, settings, carry_over)
        with progress(console, name, flights.rows, lambda it=collected: it.rows):
            run = collected.run(work)
        console.print(f"{name}: {run.rows:,} rows in {run.seconds:,.1f} s")
        runs.append(run)
    console.print(stream_table(runs))
    for run in runs:
        console.print(f"{run.name}: {run.verdict}")
    return all(run.is_right for run in runs)


class Flights:
    """The first flights of a dataset whose aircraft are known, at `FLIGHTS_PER_SECOND`.

    Args:
        spark: A session.
        dataset: Has the flights.
        rows: How many.
    """

    def __init__(self, spark: SparkSession, dataset: Dataset, rows: int) -> None:
        """Starts nothing."""
        known = set(dataset.aircraft["tailnum"].to_pylist())
        flown: Sequence[str | None] = dataset.flights["tailnum"].to_pylist()
        self.tails = [str(tail) for tail in flown if tail in known][:rows]
        self.rows = len(self.tails)
        self._spark = spark
        built = dataset.aircraft.select(["tailnum", "built"]).to_pylist()
        by_tail = {row["tailnum"]: row["built"] for row in built}
        self.built = [by_tail[tail] for tail in self.tails]

    def stream(self) -> DataFrame:
        """Returns the stream: when a flight comes, its number, and the number of its aircraft."""
        rate = self._spark.readStream.format("rate").option("rowsPerSecond", FLIGHTS_PER_SECOND)
        tails = F.split(F.lit(",".join(self.tails)), ",")
        tail = F.element_at(tails, (F.col("value") + 1).cast("int"))
        flights = rate.load().where(F.col("value") < self.rows)
        return flights.select("timestamp", F.col("value").alias("flight"), tail.alias("tailnum"))


class FlightStream:
    """A query over flights, and what has come out of it.

    Args:
        flights: What comes in.
        name: What the run is called.
        lookup: Looks the aircraft up.
        settings: Have the calls in flight for each task.
        carry_over: How rows outlive their micro-batch, if they do.
    """

    def __init__(
        self,
        flights: Flights,
        name: str,
        lookup: NativeFunction,
        settings: Settings,
        carry_over: sa.CarryOver | None,
    ) -> None:
        """Starts nothing."""
        self._flights = flights
        self._name = name
        calls = settings.max_concurrency
        self._out = enrich(
            flights.stream(), "unordered", [lookup], calls, carry_over=carry_over
        ).select("flight", "built", F.unix_micros("timestamp").alias("came"))
        self._latencies: list[float] = []
        self._seen: list[tuple[int, int | None]] = []
        self._batches: set[int] = set()

    @property
    def rows(self) -> int:
        """Rows that have come out."""
        return len(self._seen)

    def run(self, work: Path) -> StreamRun:
        """Runs the query until all flights have come out.

        Raises:
            DemoError: If it fails.
        """
        start = time.monotonic()
        checkpoint = work / f"checkpoint {self._name} {time.time_ns()}"
        writer = self._out.writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(checkpoint))
        query = writer.trigger(processingTime=f"{TRIGGER_SECONDS} seconds").start()
        try:
            while self.rows < self._flights.rows:
                error = query.exception()
                if error is not None:
                    first_line = str(error).split("\n", 1)[0]
                    raise DemoError(f"the stream failed: {first_line}") from error
                time.sleep(_POLL_SECONDS)
            seconds = time.monotonic() - start
            return self._report(query.recentProgress, seconds)
        finally:
            query.stop()

    def _keep(self, batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        if number in self._batches:
            return
        self._batches.add(number)
        now = time.time()
        self._latencies += [now - row.came / 1e6 for row in rows]
        self._seen += [(row.flight, row.built) for row in rows]

    def _report(self, batches: Sequence[Any], seconds: float) -> StreamRun:
        # Those without new rows say nothing; the last one may not have said anything yet.
        busy = [it for it in batches if it["numInputRows"]]
        numbers = [it["observedMetrics"].get("sparkawait") for it in busy]
        return StreamRun(
            name=self._name,
            rows=self.rows,
            seconds=seconds,
            batches=[it["durationMs"]["triggerExecution"] / 1000 for it in busy],
            latencies=list(self._latencies),
            carried=[row["carried"] for row in numbers if row is not None],
            expected=dict(enumerate(self._flights.built)),
            seen=list(self._seen),
        )
