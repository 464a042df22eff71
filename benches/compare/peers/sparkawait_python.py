# SPDX-License-Identifier: Apache-2.0
"""sparkawait in Spark with a Python coroutine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benches.compare.calls import TABLE, coroutine_call, is_too_many, session
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.spark import run_in_spark
from benches.compare.workloads import KEYS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "result bigint, admitted bigint"
RETRIED: dict[int, int] = {}
"""By id, when the first attempt began of a row whose next one is going to be made."""


def _function(job: Job) -> Any:
    workload, url = job.workload, job.url

    async def simulated(row: Mapping[str, Any]) -> dict[str, Any]:
        result, admitted = await coroutine_call(workload.name, url)(row["id"])
        return {"result": result, "admitted": admitted}

    async def over_http(row: Mapping[str, Any]) -> dict[str, Any]:
        import sparkawait as sa

        admitted = RETRIED.pop(row["id"], None) or time.monotonic_ns()
        address = f"{url}/{TABLE}/{row['id'] % KEYS}"
        async with session(workload.calls).get(address) as response:
            if is_too_many(response.status):
                RETRIED[row["id"]] = admitted
                raise sa.RetryAfter(response.headers["Retry-After"])
            return {"result": (await response.json())["value"], "admitted": admitted}

    return simulated if workload.service is None else over_http


def options(job: Job) -> dict[str, Any]:
    """Returns the options of the wait functions."""
    import sparkawait as sa

    workload = job.workload
    given: dict[str, Any] = {
        "capacity": workload.slots or workload.calls,
        "max_concurrency": workload.calls,
        "timeout": workload.timeout,
    }
    if workload.service is not None:
        given["retry"] = sa.retry.fixed_delay(1_000, "100ms")
        given["on_timeout"] = {"result": None, "admitted": None}
    return given


def _transform(job: Job, frame: DataFrame) -> DataFrame:
    import sparkawait as sa

    wait = sa.ordered_wait if job.workload.mode == "ordered" else sa.unordered_wait
    return wait(frame, _function(job), schema=SCHEMA, **options(job))


def run(job: Job) -> Outcome:
    """Does the job."""
    settings = {name: str(value) for name, value in options(job).items()}
    settings["event loop"] = "uvloop, which it takes where it is installed"
    return run_in_spark(job, _transform, settings)


PEER = Peer(
    name="sparkawait_python",
    title="sparkawait, Python function",
    environment="spark",
    can=frozenset({"ordered", "unordered", "http"}),
    rows_per_second=1_500_000,
    run=run,
    is_ours=True,
)
