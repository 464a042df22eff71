# SPDX-License-Identifier: Apache-2.0
"""The job: flights in, flights with weather and aircraft out. Runs on the driver."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

import sparkawait as sa
from sparkawait.demo.settings import Mode
from sparkawait.functions import AsyncFunction
from sparkawait.native_function import NativeFunction
from sparkawait.spark import Metrics

__all__ = ["enrich"]

HELD_PER_CALL = 50
"""In the ordered mode, rows held for each call in flight. A straggler keeps those behind it from
leaving; with room to hold them, it does not keep further calls from being made."""


def enrich(
    flights: DataFrame,
    mode: Mode,
    lookups: Sequence[AsyncFunction | NativeFunction],
    max_concurrency: int,
    metrics: Metrics | None = None,
    *,
    carry_over: sa.CarryOver | None = None,
) -> DataFrame:
    """Returns `flights` with the weather and the aircraft of each.

    Args:
        flights: The flights.
        mode: Whether rows leave in the order in which they came.
        lookups: What is called for every flight, one after the other, in one Python worker.
        max_concurrency: Calls in flight per task and lookup.
        metrics: Takes the metrics of all tasks.
        carry_over: How rows of a stream outlive their micro-batch, if they do.
    """
    wait = sa.ordered_wait if mode == "ordered" else sa.unordered_wait
    for number, lookup in enumerate(lookups):
        flights = wait(
            flights,
            lookup,
            chain=number > 0,
            max_concurrency=max_concurrency,
            capacity=HELD_PER_CALL * max_concurrency if mode == "ordered" else None,
            timeout="10 min",
            attempt_timeout="30s",
            retry=sa.retry.exponential_backoff(5, "50ms", "2s"),
            metrics=metrics,
            carry_over=carry_over if number == 0 else None,
        )
    return flights
