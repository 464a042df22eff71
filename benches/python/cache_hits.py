# SPDX-License-Identifier: Apache-2.0
"""How many rows a second come out of the cache?

One Spark task, 10 000 different keys of 16 bytes with results of 100 bytes, all but the first rows
hits; through Spark, and without it. Goal: 3 M rows/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from figures import Figure, Settings, alternate, rate
from pyspark.sql import functions
from session import local_spark, write_rate

import sparkawait as sa

KEYS = 10_000
GOAL = 3_000_000.0
CACHE = sa.Cache(key="key")


async def load(row: Mapping[str, Any]) -> dict[str, Any]:
    """Makes a result of 100 bytes."""
    return {"value": row["key"] * 6 + "1234"}


def figures(settings: Settings) -> list[Figure]:
    """Measures hits in Spark, and in the operator alone."""
    rows, rounds = settings.rows(10_000_000), min(settings.rounds, 3)
    (arrow_rates,) = alternate(rounds, lambda: _arrow_rate(rows))
    with local_spark() as spark:
        # Kept by Spark, so that the texts are not made while it is measured.
        key = functions.format_string("key-%012d", functions.col("id") % KEYS)
        keys = spark.range(rows, numPartitions=1).select(key.alias("key")).cache()
        keys.count()
        output = sa.ordered_wait(
            keys, load, schema="value string", capacity=10_000, cache=CACHE, output="replace"
        )
        # The first round, which is dropped, fills the cache of the worker.
        (spark_rates,) = alternate(rounds, lambda: write_rate(output, rows))
    return [
        Figure("cache hits, Spark", "rows/s", spark_rates, "", [], goal=GOAL, of_ratio=False),
        Figure("cache hits, no Spark", "rows/s", arrow_rates, "", [], goal=GOAL, of_ratio=False),
    ]


def _arrow_rate(rows: int) -> float:
    keys = pa.record_batch({"key": [f"key-{number:012d}" for number in range(KEYS)]})

    def work(batches: int) -> None:
        source = (keys for _ in range(batches))
        for _ in sa.arrow.ordered_wait(
            source, load, schema="value string", capacity=10_000, cache=CACHE, output="replace"
        ):
            pass

    work(1)
    return rate(rows, lambda: work(rows // KEYS))
