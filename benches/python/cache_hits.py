# SPDX-License-Identifier: Apache-2.0
"""How many rows a second come out of the cache?

One Spark task, 10 000 different keys of 16 bytes with results of 100 bytes, all but the first rows
hits; through Spark, beside the rate at which Spark moves such rows when nothing is looked up, and
without Spark. Goal: 3 M rows/s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from cpu import CpuMeter
from figures import Figure, Settings, alternate, rate
from pyspark.sql import functions
from session import local_spark, map_in_arrow

import sparkawait as sa

KEYS = 10_000
GOAL = 3_000_000.0
CACHE = sa.Cache(key="key")


async def load(row: Mapping[str, Any]) -> dict[str, Any]:
    """Makes a result of 100 bytes."""
    return {"value": row["key"] * 6 + "1234"}


def values_at_hand(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Returns texts of the same size that are made once: what Spark itself needs for the rows."""
    texts = pa.record_batch({"value": pa.array(["x" * 100] * KEYS)})
    for batch in batches:
        yield texts.slice(0, batch.num_rows)


def figures(settings: Settings) -> list[Figure]:
    """Measures hits in Spark, and in the operator alone."""
    rows, rounds = settings.rows(10_000_000), min(settings.rounds, 3)
    (arrow_rates,) = alternate(rounds, lambda: _arrow_rate(rows))
    with local_spark() as spark:
        # Kept by Spark, so that the texts are not made while it is measured.
        key = functions.format_string("key-%012d", functions.col("id") % KEYS)
        keys = spark.range(rows, numPartitions=1).select(key.alias("key")).cache()
        keys.count()
        output = sa.ordered_wait(keys, load, schema="value string", capacity=10_000, cache=CACHE)
        # The first round, which is dropped, fills the cache of the worker.
        fixed = map_in_arrow(keys, values_at_hand, "value string")
        cpu = CpuMeter()
        fixed_rates, spark_rates = alternate(
            rounds,
            cpu.taking("values at hand", fixed, rows),
            cpu.taking("sparkawait", output, rows),
        )
        details = cpu.details("cache hits, Spark")
    return [
        Figure(
            "cache hits, Spark",
            "rows/s",
            spark_rates,
            "values at hand",
            fixed_rates,
            goal=GOAL,
            of_ratio=False,
            details=details,
        ),
        Figure("cache hits, no Spark", "rows/s", arrow_rates, "", [], goal=GOAL, of_ratio=False),
    ]


def _arrow_rate(rows: int) -> float:
    keys = pa.record_batch({"key": [f"key-{number:012d}" for number in range(KEYS)]})

    def work(batches: int) -> None:
        source = (keys for _ in range(batches))
        for _ in sa.arrow.ordered_wait(
            source, load, schema="value string", capacity=10_000, cache=CACHE
        ):
            pass

    work(1)
    return rate(rows, lambda: work(rows // KEYS))
