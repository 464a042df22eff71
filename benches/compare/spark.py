# SPDX-License-Identifier: Apache-2.0
"""What the peers that run in Spark share: one core, one task, and an action that proves the output.

Rows are looked at where they come back into the JVM: that is where Spark has them. The time is read
there by `System.nanoTime`, which is the clock of Python's `time.monotonic_ns`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from benches.compare.observe import PERCENTILES, TIMED_ROWS
from benches.compare.peer import Job, Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["OUTPUT", "Transform", "nano_time", "run_in_spark"]

Transform = Callable[["DataFrame"], "DataFrame"]
"""From a frame with `id` to one with the columns of `OUTPUT`."""

OUTPUT = "id bigint, result bigint, admitted bigint"
"""The input column, and what `benches.compare.calls` gives."""

_ACCURACY = 10_000


def run_in_spark(
    job: Job,
    transform: Callable[[Job, DataFrame], DataFrame],
    settings: dict[str, str],
    configuration: dict[str, str] | None = None,
) -> Outcome:
    """Carries a job out in a local Spark.

    Args:
        job: The job.
        transform: Adds the columns of `OUTPUT` to a frame with the one column ``id``.
        settings: For the report.
        configuration: Further configuration of Spark, also for the report.
    """
    configuration = configuration or {}
    spark = _session(configuration)
    if job.warm_up_rows:
        _act(spark, job.warm_up, transform)
    row, ended = _act(spark, job, transform)
    return Outcome(
        first_ns=row["first"],
        last_ns=ended,
        rows=row["rows"],
        id_sum=row["ids"],
        result_sum=row["results"] or 0,
        missing=row["missing"],
        misplaced=row["misplaced"] or 0,
        latency_ms=_latencies(row["latencies"]),
        settings={"master": "local[1]", **settings, **configuration},
        versions={name: version(name) for name in ("pyspark", "pyarrow")} | {"python": _python()},
    )


def nano_time() -> Column:
    """Returns the time at which a row passes, as an expression."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.reflect(F.lit("java.lang.System"), F.lit("nanoTime")).cast("bigint")


def _act(
    spark: SparkSession, job: Job, transform: Callable[[Job, DataFrame], DataFrame]
) -> tuple[Any, int]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    out = transform(job, spark.range(job.rows, numPartitions=1))
    every = max(1, job.rows // TIMED_ROWS)
    segment = 1 if job.workload.mode == "ordered" else job.workload.watermark_every
    # In one partition these are the places of the rows.
    place = F.monotonically_increasing_id()
    misplaced = F.lit(0) if segment is None else _segment(place, segment) != _segment("id", segment)
    seen = out.withColumns(
        {
            "misplaced": misplaced.cast("bigint"),
            "latency": F.when(F.col("id") % every == 0, nano_time()) - F.col("admitted"),
        }
    )
    shares = list(PERCENTILES.values())
    totals = seen.agg(
        F.count("*").alias("rows"),
        F.sum("id").alias("ids"),
        F.sum("result").alias("results"),
        F.count_if(F.col("result").isNull()).alias("missing"),
        F.sum("misplaced").alias("misplaced"),
        F.min("admitted").alias("first"),
        F.percentile_approx("latency", shares, _ACCURACY).alias("latencies"),
    )
    row = totals.collect()[0]
    return row, time.monotonic_ns()


def _segment(place: Any, rows: int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.floor((F.col(place) if isinstance(place, str) else place) / rows)


def _latencies(nanoseconds: list[int] | None) -> dict[str, float] | None:
    if nanoseconds is None:
        return None
    return {name: value / 1e6 for name, value in zip(PERCENTILES, nanoseconds, strict=True)}


def _session(configuration: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("sparkawait benches")
    fixed = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in (fixed | configuration).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))
