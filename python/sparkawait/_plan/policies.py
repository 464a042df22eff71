# SPDX-License-Identifier: Apache-2.0
"""What bounds the calls of a task beside their number, as `_core.Task` takes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sparkawait.functions import Batch
from sparkawait.rate_limit import Terms
from sparkawait.wait_options import WaitOptions

__all__ = ["policy_arguments"]


def policy_arguments(
    options: WaitOptions,
    limits: Sequence[Terms],
    application: str,
    batch: Batch | None,
    capacity: int,
) -> dict[str, Any] | None:
    """Returns the arguments; ``None`` if nothing is bounded.

    Args:
        options: Those of the call, checked.
        limits: What its limits in time come to.
        application: Names the Spark application; empty without Spark.
        batch: How rows are put together into requests, for limits that count these.
        capacity: How many rows are held at most.
    """
    budget, breaker = options.retry_budget, options.circuit_breaker
    if not (limits or budget or breaker or options.adaptive_rate):
        return None
    requests = None
    if batch is not None:
        limits = [
            it._replace(per_request=limit.per == "request")
            for limit, it in zip(options.rate_limit, limits, strict=True)
        ]
        if any(it.per_request for it in limits):
            requests = min(batch.max_rows, capacity), batch.linger_seconds
    return {
        "rate_limits": list(limits),
        "requests": requests,
        "application": application,
        "is_rate_adaptive": options.adaptive_rate,
        "retry_budget": None if budget is None else budget.resolve(),
        "pause": None if breaker is None else breaker.resolve(),
        "seed": int.from_bytes(os.urandom(8), "little"),  # of probes, which are spread
    }
