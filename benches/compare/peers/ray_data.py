# SPDX-License-Identifier: Apache-2.0
"""Ray Data: ``map`` with a class whose ``__call__`` is a coroutine, on one actor.

How many calls an actor has in flight is an environment variable that it reads when it is imported.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

from benches.compare.calls import coroutine_call
from benches.compare.observe import Observer
from benches.compare.peer import Job, Outcome, Peer

CALLS = "RAY_DATA_DEFAULT_ASYNC_ROW_UDF_MAX_CONCURRENCY"


class Enrich:
    """The function of the job, made once in the actor."""

    def __init__(self, workload: str, url: str) -> None:
        self._call = coroutine_call(workload, url)

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Adds the columns of a result to a row."""
        result, admitted = await self._call(row["id"])
        return {"id": row["id"], "result": result, "admitted": admitted}


def _pass(job: Job) -> Observer:
    import ray

    dataset = ray.data.range(job.rows, override_num_blocks=max(1, job.rows // 10_000)).map(
        Enrich,
        fn_constructor_args=[job.workload.name, job.url],
        compute=ray.data.ActorPoolStrategy(size=1),
    )
    observer = Observer(job)
    for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
        ids = batch.column("id").to_numpy()
        results = batch.column("result")
        filled = results.fill_null(0).to_numpy()
        admitted = batch.column("admitted").to_numpy()
        observer.emitted(ids, filled, admitted, results.null_count)
    return observer


def run(job: Job) -> Outcome:
    """Does the job."""
    os.environ[CALLS] = str(job.workload.calls)
    import ray

    ray.init(
        include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": dict(os.environ)}
    )
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = job.workload.mode == "ordered"
    context.enable_progress_bars = False
    if job.warm_up_rows:
        _pass(job.warm_up)
    settings = {
        "actors": "1",
        CALLS: os.environ[CALLS],
        "preserve_order": str(context.execution_options.preserve_order),
    }
    return _pass(job).outcome(settings, {name: version(name) for name in ("ray", "pyarrow")})


PEER = Peer(
    name="ray_data",
    title="Ray Data",
    environment="ray",
    can=frozenset({"ordered", "unordered", "http"}),
    rows_per_second=40_000,
    start=10.5,
    run=run,
    rates={
        "uniform-1000": 28_000,
        "uniform-10000": 24_000,
        "stragglers-ordered": 4_200,
        "http": 6_000,
    },
)
