# SPDX-License-Identifier: Apache-2.0
"""The operator's metrics of all tasks, collected on the driver of a classic session.

`Metrics` is made on the driver; the executors only add to the accumulator that it sends along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import Accumulator, AccumulatorParam

from sparkawait._worker.metrics import merge
from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Metrics", "TaskMetrics", "accumulator_of", "is_connect", "merge", "of_one_task"]

TaskMetrics = dict[str, Any]
"""What a task reports, see `sparkawait._worker.metrics`."""

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
    return {"tasks": 1, **_counts(metrics)}


def _counts(metrics: Mapping[str, Any]) -> TaskMetrics:
    return {name: metrics[name] for name in metrics if name not in _GAUGES}


def is_connect(thing: object) -> bool:
    """Tells whether a session or DataFrame belongs to Spark Connect, without importing gRPC."""
    return type(thing).__module__.startswith("pyspark.sql.connect")
