# SPDX-License-Identifier: Apache-2.0
"""The operator's metrics of all tasks, collected on the driver of a classic session.

`Metrics` is made on the driver; the executors only add to the accumulator that it sends along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import Accumulator, AccumulatorParam

from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Metrics", "TaskMetrics", "accumulator_of", "is_connect", "merge", "of_one_task"]

TaskMetrics = dict[str, Any]
"""Counters by name, and ``call_latency`` as pairs of a bucket's upper bound in seconds and a
count: how long attempts took that were not cancelled, those of native functions included."""

_LATENCY = "call_latency"
_CHANNELS = "channels"
_MOST_CHANNELS = 64
_COUNTS_OF_CHANNELS = ("calls", "latency", "starved")
_OTHER_CHANNELS = "other_channels"
_GAUGES = ("in_flight", "queue_size", "oldest_age", "active_channels")
"""Describe one moment of one task, and mean nothing when added."""


class Metrics:
    """Adds up the metrics of every task that got this object as its option ``metrics=``.

    Tasks report when they succeed. A stage that Spark runs again, because its output was lost,
    is counted again.

    Args:
        spark: A classic session.

    Attributes:
        accumulator: What the tasks add to.

    Raises:
        ConfigurationError: On Spark Connect, which has no accumulators; the metrics of each task
            are in the executors' logs with ``spark.executorEnv.SPARKAWAIT_LOG=INFO``.

    Examples:
        >>> metrics = Metrics(spark)  # doctest: +SKIP
        >>> ordered_wait(df, lookup, metrics=metrics).count()  # doctest: +SKIP
        >>> metrics.snapshot()["attempts"]  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession) -> None:
        """Registers an accumulator."""
        if is_connect(spark):
            msg = "`Metrics` needs a classic session; Spark Connect has no accumulators"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
        empty: TaskMetrics = {}
        self.accumulator: Accumulator[TaskMetrics] = spark.sparkContext.accumulator(
            empty, _TaskMetricsParam()
        )

    def snapshot(self) -> TaskMetrics:
        """Returns the sums over all tasks that have ended, and their number as ``tasks``."""
        return {"tasks": 0, **merge({}, self.accumulator.value)}


class _TaskMetricsParam(AccumulatorParam[TaskMetrics]):
    def zero(self, value: TaskMetrics) -> TaskMetrics:  # noqa: ARG002 - Spark's signature
        return {}

    def addInPlace(self, value1: TaskMetrics, value2: TaskMetrics) -> TaskMetrics:  # noqa: N802
        return merge(value1, value2)


def accumulator_of(metrics: object) -> Accumulator[TaskMetrics] | None:
    """Returns what tasks add their metrics to, for the option ``metrics=``.

    Raises:
        ConfigurationError: If `metrics` is something else.
    """
    if metrics is None:
        return None
    if not isinstance(metrics, Metrics):
        msg = f"`metrics` must be a sparkawait.Metrics, got `{type(metrics).__name__}`"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    return metrics.accumulator


def of_one_task(metrics: Mapping[str, Any]) -> TaskMetrics:
    """Returns what one task adds to the sums."""
    return {"tasks": 1, **{name: metrics[name] for name in metrics if name not in _GAUGES}}


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
        else:
            merged[name] = merged.get(name, 0) + value
    return merged


def _merge_buckets(
    left: list[tuple[float, int]], right: list[tuple[float, int]]
) -> list[tuple[float, int]]:
    counts: dict[float, int] = {}
    for seconds, count in (*left, *right):
        counts[seconds] = counts.get(seconds, 0) + count
    return sorted(counts.items())


def is_connect(thing: object) -> bool:
    """Tells whether a session or DataFrame belongs to Spark Connect, without importing gRPC."""
    return type(thing).__module__.startswith("pyspark.sql.connect")
