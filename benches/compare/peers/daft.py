# SPDX-License-Identifier: Apache-2.0
"""Daft on its local runner: ``@daft.func`` over a coroutine.

Daft starts the calls of a whole batch at once, whatever ``max_concurrency`` says, so a semaphore in
the function bounds those that wait for something. It keeps the order of rows unless told otherwise
(`maintain_order`).
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from importlib.metadata import version

from benches.compare.calls import coroutine_call
from benches.compare.observe import Observer
from benches.compare.peer import Job, Outcome, Peer


@lru_cache(maxsize=4)
def _semaphore(loop: asyncio.AbstractEventLoop, calls: int) -> asyncio.Semaphore:  # noqa: ARG001 - one for each loop
    return asyncio.Semaphore(calls)


def _pass(job: Job) -> Observer:
    import daft
    from daft import DataType

    name, url, calls = job.workload.name, job.url, job.workload.calls
    columns = DataType.struct({"result": DataType.int64(), "admitted": DataType.int64()})

    async def at_once(row: int) -> dict[str, int | None]:
        result, admitted = await coroutine_call(name, url)(row)
        return {"result": result, "admitted": admitted}

    async def bounded(row: int) -> dict[str, int | None]:
        async with _semaphore(asyncio.get_running_loop(), calls):
            return await at_once(row)

    one = at_once if job.workload.mean_seconds() is None else bounded
    function = daft.func(one, return_dtype=columns, unnest=True, max_concurrency=calls)
    frame = daft.range(job.rows).select("id", function(daft.col("id")))
    observer = Observer(job)
    for batch in frame.to_arrow_iter():
        ids = batch.column("id").to_numpy()
        results = batch.column("result")
        filled = results.fill_null(0).to_numpy(zero_copy_only=False)
        admitted = batch.column("admitted").to_numpy()
        observer.emitted(ids, filled, admitted, results.null_count)
    return observer


def run(job: Job) -> Outcome:
    """Does the job."""
    import daft

    daft.set_runner_native()
    if job.warm_up_rows:
        _pass(job.warm_up)
    calls = str(job.workload.calls)
    settings = {"runner": "native", "max_concurrency": calls, "semaphore": calls}
    return _pass(job).outcome(settings, {name: version(name) for name in ("daft", "pyarrow")})


PEER = Peer(
    name="daft",
    title="Daft",
    environment="daft",
    can=frozenset({"ordered", "unordered", "http"}),
    rows_per_second=100_000,
    start=4.5,
    run=run,
    rates={"uniform-1000": 46_000, "uniform-10000": 9_000, "http": 7_500},
)
