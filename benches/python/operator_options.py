# SPDX-License-Identifier: Apache-2.0
"""What do channels and watermarks cost the operator, beside calls that cost nothing?

2 columns, a native function that completes at once, unordered, timeouts armed, capacity 1 000, no
Spark. Every row has a later event time than the one before it.
Goals, of the rate without: 0.97 with one channel, 0.85 with 1 000, 0.7 with a watermark after every
row. With ten times the channels that were expected, exclusive credits stay unused in some channels
while others wait: that is what `sa.Channel(count=..)` is for, and has no goal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from figures import Figure, Settings, alternate, rate

import sparkawait as sa
import sparkawait.arrow
from sparkawait.testing import simulated

ROWS_PER_BATCH = 10_000
CAPACITY = 1_000
EVERY_ROW = sa.WatermarkStrategy.for_bounded_out_of_orderness("time", 0, every=1)


def figures(settings: Settings) -> list[Figure]:
    """Measures each option beside the operator without."""
    rows = settings.rows(5_000_000)
    inputs = {channels: _input(rows, channels) for channels in (1, 1_000)}

    def taking(distinct: int, **options: Any) -> Callable[[], float]:
        def drain() -> None:
            source = inputs[distinct]
            for _ in sparkawait.arrow.unordered_wait(
                source, simulated(), max_concurrency=CAPACITY, **options
            ):
                pass

        return lambda: rate(rows, drain)

    def expecting(channels: int) -> dict[str, Any]:
        return {"channel": sa.Channel("channel", count=channels, max_per_channel=CAPACITY)}

    plain, one, many, crowd, marked = alternate(
        settings.rounds,
        taking(1),
        taking(1, **expecting(1)),
        taking(1_000, **expecting(1_000)),
        taking(1_000, **expecting(100)),
        taking(1, watermark=EVERY_ROW),
    )
    measured = (
        ("one channel", one, 0.97),
        ("1 000 channels", many, 0.85),
        ("1 000 channels, 100 expected", crowd, None),
        ("a watermark after every row", marked, 0.7),
    )
    return [
        Figure(f"operator, {name}", "rows/s", rates, "without", plain, goal=goal)
        for name, rates, goal in measured
    ]


def _input(rows: int, channels: int) -> list[pa.RecordBatch]:
    starts = range(0, rows, ROWS_PER_BATCH)
    numbers = (np.arange(start, start + ROWS_PER_BATCH) for start in starts)
    return [
        pa.record_batch(
            {"channel": pa.array(ids % channels), "time": pa.array(ids, pa.timestamp("us", "UTC"))}
        )
        for ids in numbers
    ]
