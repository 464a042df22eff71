# SPDX-License-Identifier: Apache-2.0
"""Carries out one run: flights from Parquet, through a job, to Parquet, with the clock on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from time import monotonic

from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from sparkawait.demo.data import Dataset
from sparkawait.demo.progress import progress
from sparkawait.demo.report import Run
from sparkawait.demo.service import Service
from sparkawait.spark import Metrics

__all__ = ["Job", "Runner"]

_WARM_UP_ROWS = 100
"""For each task."""

Job = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Runner:
    """Runs jobs one after another.

    Attributes:
        spark: A classic session.
        service: What the jobs ask.
        console: Where progress is shown.
        tasks: Partitions of a run.
        work: Folder for the flights.
        output: Folder for what comes out, in a folder of the name of the run.
    """

    spark: SparkSession
    service: Service
    console: Console
    tasks: int
    work: Path
    output: Path

    def warm_up(self, dataset: Dataset, job: Job) -> None:
        """Runs `job` over a few flights, so that no run has to wait for Spark's workers to start.

        Args:
            dataset: Where the flights come from.
            job: Adds the columns; it should not be counting.
        """
        flights = self._flights("warm-up", dataset.first(self.tasks * _WARM_UP_ROWS))
        job(flights).write.format("noop").mode("overwrite").save()

    def run(self, name: str, dataset: Dataset, job: Job, metrics: Metrics | None = None) -> Run:
        """Runs `job` over the flights of `dataset`.

        Args:
            name: Name of the run.
            dataset: Its flights are the input.
            job: Adds the columns.
            metrics: Where the job collects its metrics, if it does.
        """
        enriched = job(self._flights(name, dataset))
        rows, before, start = dataset.flights.num_rows, self.service.stats(), monotonic()
        with progress(self.console, name, rows, lambda: self._rows_since(before)):
            enriched.write.parquet(str(self.output / name))
        seconds = monotonic() - start
        self.console.print(f"{name}: {rows:,} rows in {seconds:,.1f} s")
        collected = {} if metrics is None else metrics.snapshot()
        return Run(
            name=name,
            rows=rows,
            seconds=seconds,
            calls=self._since(before, "requests"),
            errors=self._since(before, "errors"),
            retries=collected.get("retries"),
            latencies=collected.get("call_latency", []),
        )

    def _rows_since(self, before: dict[str, int] | None) -> int | None:
        """Estimates how many flights are done; a few have one lookup only, or none."""
        answered = self._since(before, "hits", "misses")
        return None if answered is None else answered // 2

    def _since(self, before: dict[str, int] | None, *counters: str) -> int | None:
        """Returns how much `counters` of the service have grown, if it has any."""
        now = None if before is None else self.service.stats()
        if before is None or now is None:
            return None
        return sum(now[name] - before[name] for name in counters)

    def _flights(self, name: str, dataset: Dataset) -> DataFrame:
        """Returns the flights in as many partitions as there are tasks, in their order."""
        folder = self.work / name
        folder.mkdir()
        parts: list[DataFrame] = []
        rows = dataset.flights.num_rows
        for task in range(self.tasks):
            first, end = (rows * number // self.tasks for number in (task, task + 1))
            file = folder / f"{task:05}.parquet"
            parquet.write_table(  # pyright: ignore[reportUnknownMemberType]
                dataset.flights.slice(first, end - first), file
            )
            parts.append(self.spark.read.parquet(str(file)))
        return reduce(DataFrame.union, parts)
