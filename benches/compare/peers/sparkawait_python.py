# SPDX-License-Identifier: Apache-2.0
"""sparkawait in Spark with a Python coroutine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benches.compare.calls import address_of, coroutine_call, is_too_many, session
from benches.compare.ours import described, options, with_destination
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.spark import run_in_spark
from benches.compare.workloads import Service

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "result bigint, admitted bigint"
RETRIED: dict[int, int] = {}
"""By id, when the first attempt began of a row whose next one is going to be made."""


def _function(job: Job) -> Any:
    name, url = job.workload.name, job.url
    if job.workload.service is not None:
        return _over_http(job.workload.service, url, job.workload.calls)

    async def simulated(row: Mapping[str, Any]) -> dict[str, Any]:
        result, admitted = await coroutine_call(name, url)(row["id"])
        return {"result": result, "admitted": admitted}

    return simulated


def _over_http(service: Service, url: str, connections: int) -> Any:
    address = address_of(service, url)

    async def over_http(row: Mapping[str, Any]) -> dict[str, Any]:
        import sparkawait as sa

        admitted = RETRIED.pop(row["id"], None) or time.monotonic_ns()
        async with session(connections).get(address(row["id"])) as response:
            if is_too_many(response.status):
                RETRIED[row["id"]] = admitted
                raise sa.RetryAfter(response.headers["Retry-After"])
            return {"result": (await response.json())["value"], "admitted": admitted}

    return over_http


def _transform(job: Job, frame: DataFrame) -> DataFrame:
    import sparkawait as sa

    wait = sa.ordered_wait if job.workload.mode == "ordered" else sa.unordered_wait
    out = wait(with_destination(job, frame), _function(job), schema=SCHEMA, **options(job))
    return out.select("id", "result", "admitted")


def run(job: Job) -> Outcome:
    """Does the job."""
    settings = described(options(job))
    settings["event loop"] = "uvloop, which it takes where it is installed"
    return run_in_spark(job, _transform, settings)


PEER = Peer(
    name="sparkawait_python",
    title="sparkawait, Python function",
    environment="spark",
    can=frozenset({"ordered", "unordered", "http"}),
    rows_per_second=650_000,
    start=11,
    run=run,
    rates={"uniform-10000": 96_000, "http": 10_000, "http-stalled-host": 6_000},
    is_ours=True,
)
