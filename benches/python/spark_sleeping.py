# SPDX-License-Identifier: Apache-2.0
"""How close does a Python coroutine that sleeps 1 to 20 ms come to Little's bound in Spark?

One task, unordered, capacity 1 000: the bound is 1 000 / 10.5 ms = 95 238 rows a second.
Goals: 0.85 of the bound, and 1.8 times the usual recipe with as many calls in flight.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from figures import Figure, Settings, alternate
from recipe import recipe
from session import local_spark, map_in_arrow, write_rate

import sparkawait as sa

CALLS = 1_000
BOUND = CALLS / 0.0105


async def double_later(row: Mapping[str, Any]) -> dict[str, Any]:
    """Waits as for a service nearby."""
    await asyncio.sleep(random.uniform(0.001, 0.020))
    return {"doubled": row["id"] * 2}


def figures(settings: Settings) -> list[Figure]:
    """Measures one mode, against bound and recipe."""
    rows = settings.rows(300_000)
    columns = pa.schema([("id", pa.int64()), ("doubled", pa.int64())])
    with local_spark() as spark:
        frame = spark.range(rows, numPartitions=1)
        usual = map_in_arrow(
            frame, recipe(double_later, columns, CALLS), "id bigint, doubled bigint"
        )
        ours = sa.unordered_wait(
            frame, double_later, schema="doubled bigint", max_concurrency=CALLS
        )
        usual_rates, our_rates = alternate(
            min(settings.rounds, 3), lambda: write_rate(usual, rows), lambda: write_rate(ours, rows)
        )
    name = "Spark, coroutine of 1-20 ms"
    return [
        Figure(name, "rows/s", our_rates, "Little's bound", [BOUND], goal=0.85),
        Figure(name, "rows/s", our_rates, "recipe", usual_rates, goal=1.8),
    ]
