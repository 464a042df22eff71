# SPDX-License-Identifier: Apache-2.0
"""sparkawait without Spark: the operator over Arrow batches, with a native function.

The counterpart of Flink's operator in a local cluster. Batches have 10 000 rows, as Spark makes
them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from benches.compare.calls import servers
from benches.compare.observe import Observer
from benches.compare.ours import described, native_function, native_options
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.workloads import KEYS

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_BATCH = 10_000


def input_batches(job: Job, rows_per_batch: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a job; with watermarks also an event time, without pause."""
    import numpy as np
    import pyarrow as pa

    for start in range(0, job.rows, ROWS_PER_BATCH):
        ids = np.arange(start, min(start + ROWS_PER_BATCH, job.rows))
        columns = {"id": pa.array(ids)}
        if job.workload.watermark_every is not None:
            columns["time"] = pa.array(ids, pa.timestamp("us", "UTC"))
        service = job.workload.service
        if service is not None:
            columns["key"] = pa.array(ids % KEYS)
        if service is not None and service.destinations > 1:
            answering, silent = servers(job.url)
            destinations = ids % service.destinations
            columns["destination"] = pa.array(destinations)
            columns["server"] = pa.array(np.where(destinations == 0, silent, answering))
        batch = pa.record_batch(columns)
        for offset in range(0, len(ids), rows_per_batch):
            yield batch.slice(offset, rows_per_batch)


def rows_per_batch(job: Job) -> int:
    """Returns how many rows the batches of the input have."""
    return min(job.rows, ROWS_PER_BATCH)


def all_options(job: Job) -> dict[str, Any]:
    """Returns the options of the wait functions."""
    import sparkawait as sa

    given = native_options(job)
    if job.workload.watermark_every is not None:
        every = job.workload.watermark_every
        strategy = sa.WatermarkStrategy.for_bounded_out_of_orderness("time", 0, every=every)
        given["watermark"] = strategy
    return given


def versions() -> dict[str, str]:
    """Returns what takes part."""
    python = ".".join(map(str, sys.version_info[:3]))
    return {"pyarrow": version("pyarrow"), "python": python}


def _pass(job: Job) -> Observer:
    import numpy as np

    from sparkawait import arrow

    wait = arrow.ordered_wait if job.workload.mode == "ordered" else arrow.unordered_wait
    observer = Observer(job)
    observer.start()
    source = input_batches(job, rows_per_batch(job))
    for batch in wait(source, native_function(job), **all_options(job)):
        ids = batch.column("id").to_numpy()
        if job.workload.service is None:
            results = 3 * batch.column("ordinal").to_numpy() + 1
            began = batch.column("began").to_numpy()
            observer.emitted(ids, results, admitted=began, delays=False)
        else:
            values = batch.column("value")
            results = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            observer.emitted(ids, results, missing=values.null_count)
    return observer


def run(job: Job) -> Outcome:
    """Does the job."""
    if job.warm_up_rows:
        _pass(job.warm_up)
    settings = described(all_options(job))
    settings["rows in a batch of the input"] = str(rows_per_batch(job))
    return _pass(job).outcome(settings, versions())


PEER = Peer(
    name="sparkawait_arrow",
    title="sparkawait, native function, no Spark",
    environment="spark",
    can=frozenset({"ordered", "unordered", "http", "watermarks"}),
    rows_per_second=16_000_000,
    start=1.5,
    run=run,
    rates={"http-stalled-host": 14_000},
    is_ours=True,
)
