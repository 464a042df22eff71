# SPDX-License-Identifier: Apache-2.0
"""What does a Python coroutine that returns at once cost in Spark, against the usual recipe?

One task, capacity 1 000. Goal: at least twice the rows a second of the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from figures import Figure, Settings, alternate
from recipe import recipe
from session import local_spark, map_in_arrow, write_rate

import sparkawait as sa

CALLS = 1_000


async def double(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns without waiting for anything."""
    return {"doubled": row["id"] * 2}


def figures(settings: Settings) -> list[Figure]:
    """Measures both output orders against one recipe."""
    # The recipe gets fewer rows, so that both run for seconds and starting a job does not count.
    rows, fewer = settings.rows(3_000_000), settings.rows(300_000)
    columns = pa.schema([("id", pa.int64()), ("doubled", pa.int64())])
    with local_spark() as spark:
        frame = spark.range(rows, numPartitions=1)
        short = spark.range(fewer, numPartitions=1)
        usual = map_in_arrow(short, recipe(double, columns, CALLS), "id bigint, doubled bigint")
        ordered = sa.ordered_wait(frame, double, schema="doubled bigint", max_concurrency=CALLS)
        unordered = sa.unordered_wait(frame, double, schema="doubled bigint", max_concurrency=CALLS)
        samples = alternate(
            settings.rounds,
            lambda: write_rate(usual, fewer),
            lambda: write_rate(ordered, rows),
            lambda: write_rate(unordered, rows),
        )
    return [
        Figure(f"Spark, coroutine at once, {name}", "rows/s", taken, "recipe", samples[0], goal=2.0)
        for name, taken in zip(("ordered", "unordered"), samples[1:], strict=True)
    ]
