# SPDX-License-Identifier: Apache-2.0
"""The job: flights in, flights with weather and aircraft out. Runs on the driver."""

from __future__ import annotations

from pyspark.sql import DataFrame

import sparkawait as sa
from sparkawait.demo.functions import FlightLookup, native_lookups
from sparkawait.demo.settings import Function, Mode
from sparkawait.spark import Metrics

__all__ = ["enrich"]

HELD_PER_CALL = 50
"""In the ordered mode, rows held for each call in flight. A straggler keeps those behind it from
leaving; with room to hold them, it does not keep further calls from being made."""


def enrich(
    flights: DataFrame,
    mode: Mode,
    url: str,
    capacity: int,
    metrics: Metrics | None = None,
    *,
    function: Function = "http",
) -> DataFrame:
    """Returns `flights` with the weather and the aircraft of each.

    Args:
        flights: The flights.
        mode: Whether rows leave in the order in which they came.
        url: The service.
        capacity: Calls in flight per task and lookup.
        metrics: Takes the metrics of all tasks.
        function: What makes the calls.
    """
    wait = sa.ordered_wait if mode == "ordered" else sa.unordered_wait
    lookups = [FlightLookup(url)] if function == "python" else native_lookups(url)
    for lookup in lookups:
        flights = wait(
            flights,
            lookup,
            capacity=HELD_PER_CALL * capacity if mode == "ordered" else capacity,
            max_concurrency=capacity,
            timeout="10 min",
            attempt_timeout="30s",
            retry=sa.retry.exponential_backoff(5, "50ms", "2s"),
            metrics=metrics,
        )
    return flights
