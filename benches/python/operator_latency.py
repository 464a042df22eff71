# SPDX-License-Identifier: Apache-2.0
"""How close does the operator come to Little's bound when each call takes 1 to 20 ms?

The bound is the calls in flight by the mean latency: 1 000 / 10.5 ms = 95 238 rows a second.
Unordered with capacity 1 000; ordered with capacity 10 000, of which 1 000 are calls.
Goal: 0.95 of the bound.
"""

from __future__ import annotations

from figures import Figure, Settings, alternate, rate
from operator_rate import input_batches

import sparkawait.arrow
from sparkawait.testing import simulated, uniform

CALLS = 1_000
BOUND = CALLS / 0.0105


def figures(settings: Settings) -> list[Figure]:
    """Measures both modes."""
    batches = input_batches(settings.rows(1_000_000))
    rows = sum(batch.num_rows for batch in batches)
    function = simulated(uniform("1ms", "20ms"))

    def unordered() -> float:
        out = sparkawait.arrow.unordered_wait(batches, function, max_concurrency=CALLS)
        return rate(rows, lambda: list(out))

    def ordered() -> float:
        out = sparkawait.arrow.ordered_wait(
            batches, function, capacity=10 * CALLS, max_concurrency=CALLS
        )
        return rate(rows, lambda: list(out))

    samples = alternate(min(settings.rounds, 3), unordered, ordered)
    names = ("unordered, capacity 1 000", "ordered, capacity 10 000, 1 000 calls")
    return [
        Figure(f"1-20 ms, {name}", "rows/s", taken, "Little's bound", [BOUND], goal=0.95)
        for name, taken in zip(names, samples, strict=True)
    ]
