# SPDX-License-Identifier: Apache-2.0
"""sparkawait in Spark with a native function: no Python code runs for a row.

A simulated native function draws its delays from the same distribution, but by a generator of its
own. `sa.http` does not say when a call began: there are no latencies then, and the first row counts
as admitted when Spark makes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benches.compare.calls import TABLE, servers
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.peers.sparkawait_python import described, options, with_destination
from benches.compare.spark import nano_time, run_in_spark
from benches.compare.workloads import KEYS, Delays

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkawait.testing import Latency


def latency(delays: Delays | None) -> Latency | int:
    """Returns a distribution as the product's own test functions take it."""
    from sparkawait import testing

    if delays is None:
        return 0
    tail = {"stragglers": delays.stragglers, "straggler_factor": delays.factor}
    first, second = delays.first / 1e3, delays.second / 1e3
    if delays.kind == "constant":
        return testing.constant(first, **tail)
    if delays.kind == "uniform":
        return testing.uniform(first, second, **tail)
    return testing.log_normal(first, delays.second, **tail)


def function(job: Job) -> Any:
    """Returns the native function, and what its results are called."""
    import sparkawait as sa
    from sparkawait.testing import simulated

    if job.workload.service is None:
        return simulated(latency(job.workload.delays), timestamps=True)
    server = job.url if job.workload.service.destinations == 1 else "{server}"
    connections = job.workload.calls
    return sa.http.get(
        f"{server}/{TABLE}/{{key}}", "value bigint", connections=connections, proxy=False
    )


def native_options(job: Job) -> dict[str, Any]:
    """Returns the options of the wait functions."""
    given = options(job)
    if given.pop("on_timeout", None) is not None:
        # A native function has no fallback of Python. The proof knows how many nulls there may be.
        given["on_error"] = "null"
    return given


def _transform(job: Job, frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    import sparkawait as sa

    wait = sa.ordered_wait if job.workload.mode == "ordered" else sa.unordered_wait
    if job.workload.service is None:
        out = wait(frame, function(job), **native_options(job))
        result = 3 * F.col("ordinal") + 1
        return out.select("id", result.alias("result"), F.col("began").alias("admitted"))
    made = F.when(F.col("id") == 0, nano_time())
    keyed = frame.select("id", made.alias("admitted"), (F.col("id") % KEYS).alias("key"))
    if job.workload.service.destinations > 1:
        keyed = with_destination(job, keyed)
        answering, silent = map(F.lit, servers(job.url))
        server = F.when(F.col("destination") == 0, silent).otherwise(answering)
        keyed = keyed.withColumn("server", server)
    out = wait(keyed, function(job), **native_options(job))
    return out.select("id", F.col("value").alias("result"), "admitted")


def run(job: Job) -> Outcome:
    """Does the job."""
    settings = described(native_options(job))
    outcome = run_in_spark(job, _transform, settings)
    return outcome if job.workload.service is None else replace(outcome, latency_ms=None)


PEER = Peer(
    name="sparkawait_native",
    title="sparkawait, native function",
    environment="spark",
    can=frozenset({"ordered", "unordered", "http"}),
    rows_per_second=6_000_000,
    rates={"http-stalled-host": 20_000},
    run=run,
    is_ours=True,
)
