# SPDX-License-Identifier: Apache-2.0
"""How many rows a second does a task take whose limits in time are never reached?

2 columns, a native function that completes at once, unordered, timeouts armed, capacity 1 000, one
task, no Spark. Limits so high that only what it costs to ask is measured.
Goal: 2 million rows a second with a limit and an adaptive limit of one destination. The others show
what it costs to look up what each row costs, in a column or by a function of Python, and to settle
it by a column of the results.
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
RATE = "1_000_000_000_000_000/s"


def figures(settings: Settings) -> list[Figure]:
    """Measures each kind of limit beside none."""
    rows = settings.rows(5_000_000)
    numbers = np.arange(ROWS_PER_BATCH)
    batch = pa.record_batch({"host": pa.array(numbers * 0), "tokens": pa.array(numbers % 100)})
    batches = [batch] * (rows // ROWS_PER_BATCH)

    def taking(**options: Any) -> Callable[[], float]:
        def drain() -> None:
            for _ in sparkawait.arrow.unordered_wait(
                batches, simulated(), **{"max_concurrency": CAPACITY, **options}
            ):
                pass

        return lambda: rate(len(batches) * ROWS_PER_BATCH, drain)

    def limited(**terms: Any) -> dict[str, Any]:
        return {"rate_limit": sa.RateLimit(RATE, **terms)}

    adaptive = sa.Adaptive(1, CAPACITY, initial=CAPACITY)
    samples = alternate(
        settings.rounds,
        taking(),
        taking(**limited()),
        taking(max_concurrency=adaptive, **limited()),
        taking(**limited(scope="host")),
        taking(**limited(cost="tokens")),
        taking(**limited(cost=100, result_cost="ordinal")),
        taking(**limited(cost=lambda row: row.tokens)),
    )
    measured = (
        ("a limit", 2e6),
        ("a limit and an adaptive one", 2e6),
        ("a limit of the host", None),
        ("a cost in a column", None),
        ("a cost in the results", None),
        ("a cost by a function", None),
    )
    return [
        Figure(f"task, {name}", "rows/s", taken, "without", samples[0], goal=goal, of_ratio=False)
        for (name, goal), taken in zip(measured, samples[1:], strict=True)
    ]
