# SPDX-License-Identifier: Apache-2.0
"""sparkawait without Spark, with a Python coroutine: what latency it adds to a call.

With paced input, a batch has the rows of a millisecond and a row is emitted as soon as it is
completed (``buffer_timeout`` 0).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import sparkawait as sa
from benches.compare.calls import coroutine_call
from benches.compare.observe import Observer
from benches.compare.ours import described
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.peers.sparkawait_arrow import (
    all_options,
    input_batches,
    rows_per_batch,
    versions,
)

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "result bigint, admitted bigint"
SECONDS_PER_BATCH = 0.001


def _options(job: Job) -> dict[str, Any]:
    given = all_options(job)
    if job.workload.load is not None:
        given["tuning"] = sa.Tuning(buffer_timeout=0)
    return given


def _source(job: Job) -> Iterator[pa.RecordBatch]:
    bound = job.workload.bound()
    if job.workload.load is None or bound is None:
        yield from input_batches(job, rows_per_batch(job))
        return
    rate = job.workload.load * bound
    rows = max(1, round(rate * SECONDS_PER_BATCH))
    started = time.monotonic()
    sent = 0
    for batch in input_batches(job, rows):
        # Late batches follow one another at once, so that the rate holds on average.
        time.sleep(max(0.0, started + sent / rate - time.monotonic()))
        sent += batch.num_rows
        yield batch


def _pass(job: Job) -> Observer:
    from sparkawait import arrow

    name, url = job.workload.name, job.url

    async def function(row: Mapping[str, Any]) -> dict[str, Any]:
        result, admitted = await coroutine_call(name, url)(row["id"])
        return {"result": result, "admitted": admitted}

    wait = arrow.ordered_wait if job.workload.mode == "ordered" else arrow.unordered_wait
    observer = Observer(job)
    for batch in wait(_source(job), function, schema=SCHEMA, **_options(job)):
        columns = (batch.column(name).to_numpy() for name in ("id", "result", "admitted"))
        observer.emitted(*columns)
    return observer


def run(job: Job) -> Outcome:
    """Does the job."""
    if job.warm_up_rows:
        _pass(job.warm_up)
    settings = described(_options(job))
    settings["event loop"] = "uvloop, which it takes where it is installed"
    return _pass(job).outcome(settings, versions())


PEER = Peer(
    name="sparkawait_arrow_python",
    title="sparkawait, Python function, no Spark",
    environment="spark",
    can=frozenset({"ordered", "unordered", "watermarks", "paced input"}),
    rows_per_second=800_000,
    start=1.5,
    run=run,
    rates={"uniform-10000": 100_000},
    is_ours=True,
)
