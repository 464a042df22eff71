# SPDX-License-Identifier: Apache-2.0
"""How many rows a second does the operator take when calls cost nothing, driven from Python?

4 columns, a native function that completes at once, timeouts armed, capacity 1 000, one task, no
Spark. The baseline copies the same batches with a kernel of Arrow, as any operator has to.
Goal: 5 million rows a second.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from figures import Figure, Settings, alternate, rate

import sparkawait.arrow
from sparkawait.testing import simulated

ROWS_PER_BATCH = 10_000
"""As Spark makes them."""
CAPACITY = 1_000


def input_batches(rows: int) -> list[pa.RecordBatch]:
    """Returns `rows` rows of 4 columns: int64, utf8, float64 and timestamp."""
    numbers = np.arange(ROWS_PER_BATCH)
    batch = pa.record_batch(
        {
            "id": pa.array(numbers),
            "name": pa.array([f"value {number}" for number in numbers]),
            "score": pa.array(numbers / 3),
            "time": pa.array(numbers, pa.timestamp("us", "UTC")),
        }
    )
    return [batch] * (rows // ROWS_PER_BATCH)


def figures(settings: Settings) -> list[Figure]:
    """Measures ordered and unordered mode."""
    batches = input_batches(settings.rows(10_000_000))
    rows = len(batches) * ROWS_PER_BATCH
    indices = pa.array(np.arange(ROWS_PER_BATCH))

    def copy() -> float:
        return rate(rows, lambda: _drain(batch.take(indices) for batch in batches))

    def ordered() -> float:
        out = sparkawait.arrow.ordered_wait(
            batches, simulated(), max_concurrency=CAPACITY, capacity=CAPACITY
        )
        return rate(rows, lambda: _drain(out))

    def unordered() -> float:
        out = sparkawait.arrow.unordered_wait(
            batches, simulated(), max_concurrency=CAPACITY, capacity=CAPACITY
        )
        return rate(rows, lambda: _drain(out))

    samples = alternate(settings.rounds, copy, ordered, unordered)
    return [
        Figure(
            f"operator over Arrow batches, {name}",
            "rows/s",
            taken,
            "a copy of the batches",
            samples[0],
            goal=5e6,
            of_ratio=False,
        )
        for name, taken in zip(("ordered", "unordered"), samples[1:], strict=True)
    ]


def _drain(batches: Iterable[pa.RecordBatch]) -> None:
    for _ in batches:
        pass
