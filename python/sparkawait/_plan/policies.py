# SPDX-License-Identifier: Apache-2.0
"""What bounds the calls of a task beside their number, as `_core.Task` takes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sparkawait.adaptive import Adaptive
from sparkawait.batch import Batch
from sparkawait.rate_limit import Terms
from sparkawait.wait_options import WaitOptions

__all__ = ["policy_arguments"]


def policy_arguments(
    options: WaitOptions,
    limits: Sequence[Terms],
    application: str,
    batch: Batch | None,
    rows_per_call: int,
) -> dict[str, Any] | None:
    """Returns the arguments; ``None`` if nothing is bounded.

    Args:
        options: Those of the call, checked.
        limits: What its limits in time come to.
        application: Names the Spark application; empty without Spark.
        batch: How rows are put together into requests, for limits that count these.
        rows_per_call: How many rows a call takes at most.
    """
    breaker = options.circuit_breaker
    calls = options.max_concurrency
    adaptive = calls if isinstance(calls, Adaptive) else None
    if not (limits or breaker or adaptive or options.adaptive_rate):
        return None
    requests = None
    if batch is not None:
        limits = [
            it._replace(per_request=limit.per == "request")
            for limit, it in zip(options.rate_limit, limits, strict=True)
        ]
        if any(it.per_request for it in limits):
            requests = rows_per_call, batch.linger_seconds
    return {
        "rate_limits": list(limits),
        "requests": requests,
        "application": application,
        "adaptive_limit": None if adaptive is None else adaptive.resolve(rows_per_call),
        "is_rate_adaptive": options.adaptive_rate,
        "pause": None if breaker is None else breaker.resolve(),
        "seed": int.from_bytes(os.urandom(8), "little"),  # of probes, which are spread
    }
