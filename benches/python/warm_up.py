# SPDX-License-Identifier: Apache-2.0
"""What does it cost a job of a minute that its first task begins with few calls?

Calls of 1 to 20 ms, 1 000 at a time, one task, no Spark; with `warm_up=True` of `Tuning`, the
default, against `warm_up=False`. Each run has a function that the process has not seen, so it is
its first task.
Goal: at least 0.995 of the rows a second.
"""

from __future__ import annotations

from collections import deque
from itertools import count

from figures import Figure, Settings, alternate, rate
from operator_rate import input_batches

import sparkawait.arrow
from sparkawait.testing import simulated, uniform

CALLS = 1_000
ROWS = 5_700_000
"""Of a minute, at 1 000 calls by 10.5 ms."""


def figures(settings: Settings) -> list[Figure]:
    """Measures both in turn."""
    batches = input_batches(settings.rows(ROWS))
    rows = sum(batch.num_rows for batch in batches)
    # Functions are told apart by what they do, so each takes a nanosecond more.
    latest = (uniform(0.001, 0.02 + number * 1e-9) for number in count())

    def run(*, warm_up: bool) -> float:
        function = simulated(next(latest))
        out = sparkawait.arrow.unordered_wait(
            batches, function, max_concurrency=CALLS, tuning=sparkawait.Tuning(warm_up=warm_up)
        )
        return rate(rows, lambda: deque(out, maxlen=0))

    samples = alternate(
        min(settings.rounds, 3), lambda: run(warm_up=True), lambda: run(warm_up=False)
    )
    name = "a job of a minute that begins with few calls"
    return [Figure(name, "rows/s", samples[0], "all at once", samples[1], goal=0.995)]
