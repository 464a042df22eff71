# SPDX-License-Identifier: Apache-2.0
"""The usual recipe: `mapInArrow`, and `asyncio.gather` within a batch of Spark."""

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


def _transform(job: Job, frame: DataFrame) -> DataFrame:
    name, url, calls = job.workload.name, job.url, job.workload.calls

    async def one(semaphore: asyncio.Semaphore, row: int) -> Call:
        async with semaphore:
            return await coroutine_call(name, url)(row)

    async def all_of(ids: list[int]) -> list[Call]:
        semaphore = asyncio.Semaphore(calls)
        return await asyncio.gather(*(one(semaphore, row) for row in ids))

    def enrich(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        loop = asyncio.new_event_loop()
        for batch in batches:
            done = loop.run_until_complete(all_of(batch.column("id").to_pylist()))
            results, admitted = zip(*done, strict=True)
            columns = [batch.column("id"), pa.array(results, pa.int64()), pa.array(admitted)]
            yield pa.record_batch(columns, ["id", "result", "admitted"])

    return frame.mapInArrow(enrich, OUTPUT)


def run(job: Job) -> Outcome:
    """Does the job."""
    settings = {"semaphore": str(job.workload.calls), "batch": "10000 rows, Spark's default"}
    return run_in_spark(job, _transform, settings)


PEER = Peer(
    name="recipe_gather",
    title="PySpark, gather per batch",
    environment="spark",
    can=frozenset({"ordered", "unordered", "http"}),
    rows_per_second=95_000,
    start=11.5,
    run=run,
    rates={
        "uniform-1000": 35_000,
        "uniform-10000": 35_000,
        "stragglers-ordered": 4_100,
        "http": 6_500,
    },
)
