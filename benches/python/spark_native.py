# SPDX-License-Identifier: Apache-2.0
"""What does the operator cost in Spark, against a `mapInArrow` that hands its batches back?

A native function that completes at once, one task, capacity 1 000; rows of 1 and of 4 columns.
Goal: 0.6 of the rows a second of the identity.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from figures import Figure, Settings, alternate
from pyspark.sql import DataFrame, SparkSession
from session import local_spark, map_in_arrow, write_rate

import sparkawait as sa
from sparkawait.testing import simulated

CAPACITY = 1_000


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hands each batch back."""
    yield from batches


def figures(settings: Settings) -> list[Figure]:
    """Measures narrow and wide rows in both modes."""
    rows = settings.rows(10_000_000)
    with local_spark() as spark:
        narrow = spark.range(rows, numPartitions=1)
        return [
            *_figures(settings, "1 column", narrow, rows),
            *_figures(settings, "4 columns", _wide(spark, rows), rows),
        ]


def _wide(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows, numPartitions=1).selectExpr(
        "id", "cast(id as string) name", "id / 3.0D score", "timestamp_micros(id) time"
    )


def _figures(settings: Settings, columns: str, frame: DataFrame, rows: int) -> list[Figure]:
    schema = ", ".join(f"{name} {kind}" for name, kind in frame.dtypes)
    plain = map_in_arrow(frame, identity, schema)
    ordered = sa.ordered_wait(frame, simulated(), max_concurrency=CAPACITY, capacity=CAPACITY)
    unordered = sa.unordered_wait(frame, simulated(), max_concurrency=CAPACITY)
    samples = alternate(
        settings.rounds,
        lambda: write_rate(plain, rows),
        lambda: write_rate(ordered, rows),
        lambda: write_rate(unordered, rows),
    )
    return [
        Figure(
            f"Spark, native function at once, {columns}, {mode}",
            "rows/s",
            taken,
            "identity",
            samples[0],
            goal=0.6,
        )
        for mode, taken in zip(("ordered", "unordered"), samples[1:], strict=True)
    ]
