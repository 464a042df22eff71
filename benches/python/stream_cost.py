# SPDX-License-Identifier: Apache-2.0
"""What does ``carry_over`` cost, beside the same stream without it, where calls take no time?

Two partitions, micro-batches one after another of 400 000 rows, whose calls end at once in Rust;
CPU time of Spark and its Python workers, so that what else runs on the machine counts little. A
micro-batch of few rows costs what each one does; the rest is by the row. Goal: at most 4 us of a
core for a row more than without ``carry_over``, with the default vehicle.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cpu import client_seconds
from figures import Figure, Settings, alternate
from pyspark.sql import SparkSession
from session import local_spark

import sparkawait as sa
from sparkawait.testing import simulated

CORES = 2
ROWS = 400_000
FEW = 1_000
"""Rows of a micro-batch that costs next to nothing but what each one does."""
CAPACITY = 1_000
WARM_UP_BATCHES = 2
"""Not counted: workers start in them."""
PATIENCE_SECONDS = 600
STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
GOAL_MICROSECONDS = 4
CARRIED = {
    'emit="next_batch"': sa.CarryOver(emit="next_batch"),
    'emit="at_once"': sa.CarryOver(emit="at_once"),
    'vehicle="transform_with_state"': sa.CarryOver(vehicle="transform_with_state"),
}


def figures(settings: Settings) -> list[Figure]:
    """Measures micro-batches of many and of few rows, without and with ``carry_over``."""
    rows, batches = settings.rows(ROWS), 2 if settings.quick else 8
    with local_spark(CORES) as spark, TemporaryDirectory() as folder:
        spark.conf.set("spark.sql.shuffle.partitions", str(CORES))
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")

        def measure(rows: int, carry_over: sa.CarryOver | None) -> Callable[[], float]:
            return lambda: _batch_seconds(spark, Path(folder), rows, batches, carry_over)

        plain, few_plain, *carried = alternate(
            settings.rounds,
            *(measure(count, it) for it in (None, *CARRIED.values()) for count in (rows, FEW)),
        )
    by_row = _by_row(plain, few_plain, rows)
    found: list[Figure] = []
    for which, many, few in zip(CARRIED, carried[::2], carried[1::2], strict=True):
        own = _by_row(many, few, rows)
        more = [mine - other for mine, other in zip(own, by_row, strict=True)]
        name = f"Stream, carry_over, {which}"
        found += [
            Figure(
                f"{name}, core time a row more than without",
                "us",
                more,
                "",
                [],
                goal=GOAL_MICROSECONDS if "emit" in which else None,
                of_ratio=False,
                at_most=True,
                details={"us a row": {"with carry_over": own, "without carry_over": by_row}},
            ),
            Figure(f"{name}, core time a row", "us", own, "without", by_row, goal=None),
            Figure(
                f"{name}, core time of a micro-batch of {FEW} rows",
                "s",
                few,
                "without",
                few_plain,
                goal=None,
            ),
        ]
    return found


def _by_row(many: list[float], few: list[float], rows: int) -> list[float]:
    """Returns microseconds a row, of micro-batches of so many rows and of few."""
    return [(it - fixed) / (rows - FEW) * 1e6 for it, fixed in zip(many, few, strict=True)]


def _batch_seconds(
    spark: SparkSession, folder: Path, rows: int, batches: int, carry_over: sa.CarryOver | None
) -> float:
    """Returns the seconds of a core that a micro-batch takes."""
    stream = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", CORES)
        .load()
        .select("value")
    )
    if carry_over is not None and carry_over.vehicle == "transform_with_state":
        spark.conf.set(STORE, ROCKS)
    out = sa.unordered_wait(stream, simulated(), max_concurrency=CAPACITY, carry_over=carry_over)
    with TemporaryDirectory(dir=folder) as checkpoint:
        writer = out.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            first = _ended(query, WARM_UP_BATCHES)
            before = client_seconds()
            last = _ended(query, first + batches)
            return (client_seconds() - before) / (last - first)
        finally:
            query.stop()
            spark.conf.unset(STORE)


def _ended(query: Any, batches: int) -> int:
    """Waits until so many micro-batches have ended; returns how many have."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        progress = query.recentProgress
        with_rows = sum(it["numInputRows"] > 0 for it in progress)
        if with_rows >= batches:
            return with_rows
        if query.exception() is not None:
            raise query.exception()
        if time.monotonic() > deadline:
            message = f"{len(progress)} micro-batches in {PATIENCE_SECONDS} s"
            raise TimeoutError(message)
        time.sleep(0.02)
