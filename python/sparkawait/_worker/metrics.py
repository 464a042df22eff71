# SPDX-License-Identifier: Apache-2.0
"""The metrics of a task, as it reports them, counters and levels by name; and their sums."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from sparkawait._plan.plan import Chain

__all__ = [
    "COUNTERS",
    "GAUGES",
    "SumsOfTasks",
    "TaskMetrics",
    "by_call",
    "by_operator",
    "complete",
    "merge",
    "metrics_of_call",
    "metrics_of_chain",
    "of_one_task",
]

TaskMetrics = dict[str, Any]
"""Counters by name, and ``call_latency`` as pairs of a bucket's upper bound in seconds and a
count: how long attempts took that were not cancelled, those of native functions included."""

COUNTERS = (
    "admitted",
    "emitted",
    "dropped",
    "failed",
    "attempts",
    "retries",
    "hedged",
    "hedges_won",
    "timeouts",
    "cancelled",
)
"""What every task counts, whatever its options are."""

GAUGES = ("in_flight", "in_flight_limit", "queue_size", "oldest_age", "active_channels")
"""Describe one moment of one task, and mean nothing when added."""

_LATENCY = "call_latency"
_PERCENTILES = "percentiles"
_SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_CHANNELS = "channels"
_MOST_CHANNELS = 64
_COUNTS_OF_CHANNELS = ("calls", "latency", "starved")
_OTHER_CHANNELS = "other_channels"
_OPERATORS = "operators"
_RATE_LIMITS = "rate_limits"
_FAILURES = "failures"


def metrics_of_call(operators: Sequence[Mapping[str, Any]]) -> TaskMetrics:
    """Returns what an operator and its branches have done together.

    Rows came in, were held and left at the operator; all else is the sum of the branches.
    """
    rows, *branches = operators
    if not branches:
        return dict(rows)
    merged: TaskMetrics = {}
    for metrics in branches:
        merged = merge(merged, metrics)
    for name in ("admitted", "emitted", "dropped", "queue_size", "oldest_age"):
        if name in rows:
            merged[name] = rows[name]
    return merged


def metrics_of_chain(operators: Sequence[Mapping[str, Any]]) -> TaskMetrics:
    """Returns what the operators of a chain have done together.

    Rows came in at the first and left at the last; all else is the sum, or the greatest age.
    """
    merged: TaskMetrics = {}
    for metrics in operators:
        merged = merge(merged, metrics)
    for name, metrics in (("admitted", operators[0]), ("emitted", operators[-1])):
        if name in metrics:
            merged[name] = metrics[name]
    if "oldest_age" in merged:
        merged["oldest_age"] = max(metrics["oldest_age"] for metrics in operators)
    return merged


def merge(left: Mapping[str, Any], right: Mapping[str, Any]) -> TaskMetrics:
    """Returns the sums of `left` and `right`, which stay as they are."""
    merged = dict(left)
    if _CHANNELS in left or _CHANNELS in right:
        merged[_CHANNELS], merged[_OTHER_CHANNELS] = _merge_channels(left, right)
    for name, value in right.items():
        if name in {_CHANNELS, _OTHER_CHANNELS}:
            continue
        if name == _LATENCY:
            merged[name] = _merge_buckets(merged.get(name, []), value)
        elif name == _RATE_LIMITS:
            merged[name] = _merge_limits(merged.get(name, {}), value)
        elif name == _FAILURES:
            merged[name] = _merge_counts(merged.get(name, {}), value)
        elif name == _OPERATORS:
            merged[name] = _merge_operators(merged.get(name, {}), value)
        else:
            merged[name] = merged.get(name, 0) + value
    return merged


def complete(metrics: Mapping[str, Any]) -> TaskMetrics:
    """Returns sums with 0 for what no task has counted yet, and percentiles of the latencies."""
    found: TaskMetrics = {"tasks": 0, **dict.fromkeys(COUNTERS, 0), _LATENCY: [], **metrics}
    return {**found, _PERCENTILES: _percentiles_of(found[_LATENCY])}


def _percentiles_of(buckets: Sequence[tuple[float, int]]) -> dict[str, float]:
    """Returns the first bound at which the counts so far reach each share, if there are calls."""
    count = sum(calls for _, calls in buckets)
    found: dict[str, float] = {}
    for name, share in (_SHARES if count else {}).items():
        left = share * count
        for seconds, calls in buckets:
            left -= calls
            if left <= 0:
                found[name] = seconds
                break
    return found


def _merge_operators(
    left: Mapping[str, TaskMetrics], right: Mapping[str, TaskMetrics]
) -> dict[str, TaskMetrics]:
    return {name: merge(left.get(name, {}), right.get(name, {})) for name in {**left, **right}}


def _merge_channels(
    left: Mapping[str, Any], right: Mapping[str, Any]
) -> tuple[dict[str | None, Any], TaskMetrics]:
    """Returns the channels that starved most, and the sum of the others."""
    sums: dict[str | None, dict[str, float]] = {}
    others: dict[str, float] = {}
    for metrics in (left, right):
        _add(others, metrics.get(_OTHER_CHANNELS, {}))
        for name, counts in metrics.get(_CHANNELS, {}).items():
            _add(sums.setdefault(name, {}), counts)
    ranked = sorted(sums, key=lambda name: (-sums[name]["starved"], -sums[name]["calls"]))
    for name in ranked[_MOST_CHANNELS:]:
        _add(others, sums[name])
    return {name: sums[name] for name in ranked[:_MOST_CHANNELS]}, others


def _add(sums: dict[str, float], counts: Mapping[str, float]) -> None:
    for name in _COUNTS_OF_CHANNELS:
        sums[name] = sums.get(name, 0) + counts.get(name, 0)


def _merge_limits(
    left: Mapping[str, Mapping[str, int]], right: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Returns the permits taken of each limit, and among how many tasks it is split."""
    merged: dict[str, dict[str, int]] = {}
    for name in {**left, **right}:
        known = [limits[name] for limits in (left, right) if name in limits]
        merged[name] = {
            "permits": sum(limit["permits"] for limit in known),
            "parts": max(limit["parts"] for limit in known),
        }
    return merged


def _merge_counts(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _merge_buckets(
    left: list[tuple[float, int]], right: list[tuple[float, int]]
) -> list[tuple[float, int]]:
    counts: dict[float, int] = {}
    for seconds, count in (*left, *right):
        counts[seconds] = counts.get(seconds, 0) + count
    return sorted(counts.items())


# -- what is added up: each call of a chain has counts of its own


def of_one_task(metrics: Mapping[str, Any]) -> TaskMetrics:
    """Returns what one task adds to the sums."""
    return {"tasks": 1, **{name: metrics[name] for name in metrics if name not in GAUGES}}


def by_operator(chain: Chain, totals: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns what each operator of a task has counted, by the name of its function."""
    names = [plan.function_name for plan in chain.operators]
    if len(names) == 1:
        return [(names[0], totals)]
    operators = totals.get("operators", {})
    return [(name, operators.get(name, {})) for name in names]


def by_call(chain: Chain, totals: Mapping[str, Any]) -> list[TaskMetrics]:
    """Returns what each call of a task adds to the sums."""
    counted = dict(by_operator(chain, totals))
    found: list[TaskMetrics] = []
    for plan in chain.plans:
        own = {it.function_name: counted[it.function_name] for it in plan.operators}
        each = {name: of_one_task(counts) for name, counts in own.items()}
        shown = {"operators": each} if len(counted) > 1 else {}
        found.append({**of_one_task(metrics_of_call(list(own.values()))), **shown})
    return found


_MOST_UNREAD = 64
"""So many tasks may have ended before their counts are added up, if nobody reads the sums."""


class SumsOfTasks:
    """Sums over tasks of this process; of one that runs, they have what it reported last.

    A task may end wherever the garbage collector runs, in the middle of `read` too. So a task never
    waits for a lock: it leaves its counts behind, and the next reader adds them up.
    """

    def __init__(self) -> None:
        """Has no task yet."""
        self._running: dict[object, TaskMetrics] = {}
        self._ended: deque[tuple[object, TaskMetrics, bool]] = deque()
        self._succeeded: TaskMetrics = {}
        self._failed: TaskMetrics = {}
        self._lock = threading.Lock()
        """Held while counts are added up."""

    def report(self, task: object, counts: TaskMetrics) -> None:
        """Takes what a task that runs has counted so far."""
        self._running[task] = counts

    def end(self, task: object, counts: TaskMetrics, *, has_failed: bool) -> None:
        """Takes what a task has counted, which reports nothing any more."""
        self._ended.append((task, counts, has_failed))
        if len(self._ended) > _MOST_UNREAD and self._lock.acquire(blocking=False):
            try:
                self._add()
            finally:
                self._lock.release()

    def read(self) -> tuple[TaskMetrics, TaskMetrics]:
        """Returns the sums over all tasks that have not failed, and over those that have."""
        with self._lock:
            self._add()
            sums = merge({}, self._succeeded)
            for counts in list(self._running.values()):
                sums = merge(sums, counts)
            return sums, merge({}, self._failed)

    def _add(self) -> None:
        while self._ended:
            task, counts, has_failed = self._ended.popleft()
            # Here and not in `end`, after which it would be in no sum for a moment.
            self._running.pop(task, None)
            if has_failed:
                self._failed = merge(self._failed, counts)
            else:
                self._succeeded = merge(self._succeeded, counts)
