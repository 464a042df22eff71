# SPDX-License-Identifier: Apache-2.0
"""What the peers that are ours share: functions and options."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benches.compare.calls import TABLE
from benches.compare.peer import Job
from benches.compare.workloads import Delays

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkawait.testing import Latency

__all__ = ["described", "native_function", "native_options", "options", "with_destination"]


def options(job: Job) -> dict[str, Any]:
    """Returns the options of the wait functions, for a function in Python."""
    import sparkawait as sa

    workload = job.workload
    given: dict[str, Any] = {
        "capacity": workload.held or workload.slots or workload.calls,
        "max_concurrency": workload.calls,
        "timeout": workload.timeout,
    }
    if workload.service is not None:
        given["retry"] = sa.retry.fixed_delay(1_000, "100ms")
        given["on_timeout"] = _without_result(workload.timeout)
        if workload.service.rate_limit is not None:
            rate = round(workload.service.rate_limit)
            given["rate_limit"] = sa.RateLimit(f"{rate}/s")
        if workload.service.destinations > 1:
            given["channel"] = "destination"
    return given


def native_options(job: Job) -> dict[str, Any]:
    """Returns the options of the wait functions, for a native function."""
    given = options(job)
    if given.pop("on_timeout", None) is not None:
        # A native function has no fallback of Python. The proof knows how many nulls there may be.
        given["on_error"] = "null"
    return given


def described(given: Mapping[str, Any]) -> dict[str, str]:
    """Returns options for people."""
    return {
        name: value.__name__ if callable(value) else str(value) for name, value in given.items()
    }


def native_function(job: Job) -> Any:
    """Returns the native function: columns ``ordinal`` and ``began``, over HTTP ``value``."""
    import sparkawait as sa
    from sparkawait.testing import simulated

    if job.workload.service is None:
        return simulated(_latency(job.workload.delays), timestamps=True)
    # Hosts that rows name may not be of this machine, unless the call says so.
    is_one = job.workload.service.destinations == 1
    server, hosts = (job.url, None) if is_one else ("{server}", ["http://127.0.0.1"])
    connections = job.workload.calls
    return sa.http.get(
        f"{server}/{TABLE}/{{key}}",
        "value bigint",
        allow_hosts=hosts,
        max_requests=connections,
        client=sa.http.Client(proxy=False),
    )


def with_destination(job: Job, frame: DataFrame) -> DataFrame:
    """Adds the column ``destination``, if there are several."""
    service = job.workload.service
    if service is None or service.destinations == 1:
        return frame
    return frame.withColumn("destination", frame["id"] % service.destinations)


def _without_result(seconds: float) -> Any:
    """Returns what a row has that timed out."""

    def timed_out(row: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - any row
        return {"result": None, "admitted": time.monotonic_ns() - round(seconds * 1e9)}

    return timed_out


def _latency(delays: Delays | None) -> Latency | int:
    """Returns a distribution as the product's own test functions take it."""
    from sparkawait import testing

    if delays is None:
        return 0
    tail = {"stragglers": delays.stragglers, "straggler_factor": delays.factor}
    first, second = delays.first / 1e3, delays.second / 1e3
    if delays.kind == "constant":
        return testing.constant(first, **tail)
    if delays.kind == "uniform":
        return testing.uniform(first, second, **tail)
    return testing.log_normal(first, delays.second, **tail)
