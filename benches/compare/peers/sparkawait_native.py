# SPDX-License-Identifier: Apache-2.0
"""sparkawait in Spark with a native function: no Python code runs for a row.

A simulated native function draws its delays from the same distribution, but by a generator of its
own. `sa.http` does not say when a call began: there are no latencies then, and the first row counts
as admitted when Spark makes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benches.compare.calls import servers
from benches.compare.ours import described, native_function, native_options, with_destination
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.spark import nano_time, run_in_spark
from benches.compare.workloads import KEYS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _transform(job: Job, frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    import sparkawait as sa

    wait = sa.ordered_wait if job.workload.mode == "ordered" else sa.unordered_wait
    if job.workload.service is None:
        out = wait(frame, native_function(job), **native_options(job))
        result = 3 * F.col("ordinal") + 1
        return out.select("id", result.alias("result"), F.col("began").alias("admitted"))
    made = F.when(F.col("id") == 0, nano_time())
    keyed = frame.select("id", made.alias("admitted"), (F.col("id") % KEYS).alias("key"))
    keyed = with_destination(job, keyed)
    if job.workload.service.destinations > 1:
        answering, silent = map(F.lit, servers(job.url))
        server = F.when(F.col("destination") == 0, silent).otherwise(answering)
        keyed = keyed.withColumn("server", server)
    out = wait(keyed, native_function(job), **native_options(job))
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
    rows_per_second=3_700_000,
    start=11,
    run=run,
    rates={"http": 13_500, "http-stalled-host": 14_000},
    is_ours=True,
)
