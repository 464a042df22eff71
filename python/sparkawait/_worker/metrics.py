# SPDX-License-Identifier: Apache-2.0
"""The metrics of a task, as it reports them: counters and levels by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Metrics = dict[str, Any]
"""Counters by name, and ``call_latency`` as pairs of a bucket's upper bound in seconds and a
count: how long attempts took that were not cancelled, those of native functions included."""

_LATENCY = "call_latency"
_CHANNELS = "channels"
_MOST_CHANNELS = 64
_COUNTS_OF_CHANNELS = ("calls", "latency", "starved")
_OTHER_CHANNELS = "other_channels"
_OPERATORS = "operators"
_RATE_LIMITS = "rate_limits"


def metrics_of_call(operators: Sequence[Mapping[str, Any]]) -> Metrics:
    """Returns what an operator and its branches have done together.

    Rows came in, were held and left at the operator; all else is the sum of the branches.
    """
    rows, *branches = operators
    if not branches:
        return dict(rows)
    merged: Metrics = {}
    for metrics in branches:
        merged = merge(merged, metrics)
    for name in ("admitted", "emitted", "dropped", "queue_size", "oldest_age"):
        if name in rows:
            merged[name] = rows[name]
    return merged


def metrics_of_chain(operators: Sequence[Mapping[str, Any]]) -> Metrics:
    """Returns what the operators of a chain have done together.

    Rows came in at the first and left at the last; all else is the sum, or the greatest age.
    """
    merged: Metrics = {}
    for metrics in operators:
        merged = merge(merged, metrics)
    for name, metrics in (("admitted", operators[0]), ("emitted", operators[-1])):
        if name in metrics:
            merged[name] = metrics[name]
    if "oldest_age" in merged:
        merged["oldest_age"] = max(metrics["oldest_age"] for metrics in operators)
    return merged


def merge(left: Mapping[str, Any], right: Mapping[str, Any]) -> Metrics:
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
        elif name == _OPERATORS:
            merged[name] = _merge_operators(merged.get(name, {}), value)
        else:
            merged[name] = merged.get(name, 0) + value
    return merged


def _merge_operators(
    left: Mapping[str, Metrics], right: Mapping[str, Metrics]
) -> dict[str, Metrics]:
    return {name: merge(left.get(name, {}), right.get(name, {})) for name in {**left, **right}}


def _merge_channels(
    left: Mapping[str, Any], right: Mapping[str, Any]
) -> tuple[dict[str | None, Any], Metrics]:
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


def _merge_buckets(
    left: list[tuple[float, int]], right: list[tuple[float, int]]
) -> list[tuple[float, int]]:
    counts: dict[float, int] = {}
    for seconds, count in (*left, *right):
        counts[seconds] = counts.get(seconds, 0) + count
    return sorted(counts.items())
