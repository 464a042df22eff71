# SPDX-License-Identifier: Apache-2.0
"""What do two lookups in a row cost in one Python worker, beside one lookup, or in two workers?

Calls of 50 ms, 100 at a time, for 20 s and more, in both orders. Goal: 0.98 of the rows a second of
one such lookup. And a native function that completes at once, twice: at most 0.65 of the CPU
seconds a million rows that two workers take. The rates of two workers are shown, too.
"""

from __future__ import annotations

from cpu import CpuMeter
from figures import Figure, Settings, alternate
from pyspark.sql import DataFrame
from session import local_spark, write_rate

import sparkawait as sa
from sparkawait.testing import simulated

CALLS = 100
DELAY = "50ms"


def figures(settings: Settings) -> list[Figure]:
    """Measures both orders, and the CPU time of functions that cost nothing."""
    with local_spark() as spark:
        waiting_rows = settings.rows(44_000)
        waiting = spark.range(waiting_rows, numPartitions=1)
        at_once_rows = settings.rows(4_000_000)
        at_once = spark.range(at_once_rows, numPartitions=1)
        return [
            *_waiting(settings, waiting, waiting_rows),
            _at_once(settings, at_once, at_once_rows),
        ]


def _two(frame: DataFrame, order: str, delay: str, calls: int, *, chain: bool) -> DataFrame:
    waits = {"ordered": sa.ordered_wait, "unordered": sa.unordered_wait}
    second, _, first = order.partition(" after ")
    inner = waits[first](frame, simulated(delay), max_concurrency=calls)
    function = simulated(delay, column="second")
    return waits[second](inner, function, max_concurrency=calls, chain=chain)


def _waiting(settings: Settings, frame: DataFrame, rows: int) -> list[Figure]:
    one = sa.unordered_wait(frame, simulated(DELAY), max_concurrency=CALLS)
    orders = ("ordered after unordered", "unordered after ordered")
    chained = [_two(frame, order, DELAY, CALLS, chain=True) for order in orders]
    apart = [_two(frame, order, DELAY, CALLS, chain=False) for order in orders]
    base, *rates = alternate(
        min(settings.rounds, 3),
        *(lambda df=df: write_rate(df, rows) for df in (one, *chained, *apart)),
    )
    return [
        Figure(
            f"Spark, two lookups of 50 ms, {order}, {how}",
            "rows/s",
            taken,
            "one lookup",
            base,
            goal=0.98 if how == "chained" else None,
        )
        for (order, how), taken in zip(
            ((order, how) for how in ("chained", "two workers") for order in orders),
            rates,
            strict=True,
        )
    ]


def _at_once(settings: Settings, frame: DataFrame, rows: int) -> Figure:
    meter = CpuMeter()
    order = "unordered after ordered"
    chained = _two(frame, order, "0s", 1_000, chain=True)
    apart = _two(frame, order, "0s", 1_000, chain=False)
    alternate(
        settings.rounds,
        meter.taking("chained", chained, rows),
        meter.taking("two workers", apart, rows),
    )
    return Figure(
        "Spark, native function at once, twice, chained",
        "CPU s/M rows",
        meter.samples("chained"),
        "two workers",
        meter.samples("two workers"),
        goal=0.65,
        at_most=True,
    )
