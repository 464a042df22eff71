# SPDX-License-Identifier: Apache-2.0
"""A pool of threads: `mapInArrow`, and `ThreadPoolExecutor.map` over each batch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benches.compare.calls import Call, blocking_call
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.spark import OUTPUT, run_in_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def _transform(job: Job, frame: DataFrame) -> DataFrame:
    name, url, calls = job.workload.name, job.url, job.workload.calls

    def one(row: int) -> Call:
        return blocking_call(name, url)(row)

    def enrich(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with ThreadPoolExecutor(max_workers=calls) as pool:
            for batch in batches:
                done = pool.map(one, batch.column("id").to_pylist())
                results, admitted = zip(*done, strict=True)
                columns = [batch.column("id"), pa.array(results, pa.int64()), pa.array(admitted)]
                yield pa.record_batch(columns, ["id", "result", "admitted"])

    return frame.mapInArrow(enrich, OUTPUT)


def run(job: Job) -> Outcome:
    """Does the job."""
    settings = {"threads": str(job.workload.calls), "batch": "10000 rows, Spark's default"}
    return run_in_spark(job, _transform, settings)


PEER = Peer(
    name="recipe_threads",
    title="PySpark, ThreadPoolExecutor",
    environment="spark",
    can=frozenset({"ordered", "unordered", "http"}),
    rows_per_second=43_000,
    start=12,
    run=run,
    rates={"uniform-1000": 20_000, "stragglers-ordered": 4_000, "http": 1_500},
    max_calls=1_000,
)
