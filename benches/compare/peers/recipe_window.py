# SPDX-License-Identifier: Apache-2.0
"""A sliding window by hand: `mapInArrow` that keeps calls of several batches in flight.

The generator runs the event loop until something has completed whenever the window is full, and
yields what has completed once it is worth a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benches.compare.calls import Call, coroutine_call
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.spark import OUTPUT, run_in_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ROWS_PER_BATCH = 1_000


class _Window:
    """Calls in flight, and the rows of those that have completed."""

    def __init__(self, job_name: str, url: str, calls: int) -> None:
        self._call = coroutine_call(job_name, url)
        self._calls = calls
        self._loop = asyncio.new_event_loop()
        self._progress = asyncio.Event()
        self._in_flight = 0
        self.done: list[tuple[int, Call]] = []

    def add(self, row: int) -> None:
        """Starts a call once there is room for it."""
        while self._in_flight >= self._calls:
            self._wait()
        self._in_flight += 1
        self._loop.create_task(self._run(row))

    def finish(self) -> None:
        """Waits for all calls."""
        while self._in_flight:
            self._wait()

    async def _run(self, row: int) -> None:
        self.done.append((row, await self._call(row)))
        self._in_flight -= 1
        self._progress.set()

    def _wait(self) -> None:
        self._progress.clear()
        self._loop.run_until_complete(self._progress.wait())


def _transform(job: Job, frame: DataFrame) -> DataFrame:
    name, url, calls = job.workload.name, job.url, job.workload.calls

    def enrich(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        window = _Window(name, url, calls)
        for batch in batches:
            for row in batch.column("id").to_pylist():
                window.add(row)
                if len(window.done) >= ROWS_PER_BATCH:
                    yield _to_batch(window.done)
        window.finish()
        yield _to_batch(window.done)

    return frame.mapInArrow(enrich, OUTPUT)


def _to_batch(done: list[tuple[int, Call]]) -> pa.RecordBatch:
    """Takes all rows out of `done`."""
    import pyarrow as pa

    rows = [(row, result, admitted) for row, (result, admitted) in done]
    done.clear()
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    arrays = [pa.array(column, pa.int64()) for column in columns]
    return pa.record_batch(arrays, ["id", "result", "admitted"])


def run(job: Job) -> Outcome:
    """Does the job."""
    settings = {"window": str(job.workload.calls), "rows in a batch": str(ROWS_PER_BATCH)}
    return run_in_spark(job, _transform, settings)


PEER = Peer(
    name="recipe_window",
    title="PySpark, sliding window by hand",
    environment="spark",
    can=frozenset({"unordered", "http"}),
    rows_per_second=150_000,
    start=11,
    run=run,
    rates={"uniform-1000": 69_000, "uniform-10000": 48_000, "http": 8_000},
)
