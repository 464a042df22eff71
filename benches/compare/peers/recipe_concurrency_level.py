# SPDX-License-Identifier: Apache-2.0
"""Spark's own: a UDF over Arrow with ``spark.sql.execution.pythonUDF.arrow.concurrency.level``.

Spark makes a pool of that many threads for each batch. It refuses a pool of one, and needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benches.compare.calls import Call, blocking_call
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.spark import run_in_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEVEL = "spark.sql.execution.pythonUDF.arrow.concurrency.level"


def _transform(job: Job, frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    name, url = job.workload.name, job.url

    def one(row: int) -> Call:
        return blocking_call(name, url)(row)

    # As the optimiser may call a deterministic function once for each of its columns.
    function = F.udf(one, "result bigint, admitted bigint", useArrow=True).asNondeterministic()
    return frame.withColumn("call", function("id")).select("id", "call.result", "call.admitted")


def run(job: Job) -> Outcome:
    """Does the job."""
    settings = {"udf": "useArrow=True"}
    calls = job.workload.calls
    level = {LEVEL: str(calls)} if calls > 1 else {}
    return run_in_spark(job, _transform, settings, level)


PEER = Peer(
    name="recipe_concurrency_level",
    title="PySpark, arrow.concurrency.level",
    environment="spark",
    can=frozenset({"ordered", "unordered", "http"}),
    rows_per_second=31_000,
    start=12.5,
    run=run,
    rates={"uniform-1000": 15_000, "stragglers-ordered": 3_900, "http": 1_500},
    max_calls=1_000,
)
