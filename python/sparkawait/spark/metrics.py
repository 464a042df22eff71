# SPDX-License-Identifier: Apache-2.0
"""The operator's metrics of all tasks, collected on the driver of a classic session.

`Metrics` is made on the driver; the executors only add to the accumulator that it sends along.
Spark throws away what a failed task has added; so its error says it, and the driver reads the
errors.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from pyspark.accumulators import Accumulator, AccumulatorParam

from sparkawait._worker.metrics import merge
from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Metrics",
    "TaskMetrics",
    "accumulator_of",
    "is_connect",
    "merge",
    "of_one_task",
    "text_of_failed_task",
]

_logger = logging.getLogger("sparkawait")

TaskMetrics = dict[str, Any]
"""What a task reports, see `sparkawait._worker.metrics`."""

_GAUGES = ("in_flight", "in_flight_limit", "queue_size", "oldest_age", "active_channels")
"""Describe one moment of one task, and mean nothing when added."""

_OF_ROWS = ("channels", "other_channels")
"""Named by what is in the rows, which is nothing for an error."""

_IN_ERROR = re.compile(r"\[sparkawait\.metrics (\d+) (\{.*\})\]")
_MOST_TASKS = 100_000
_EVENTS_SECONDS = 10
"""How long a snapshot waits for Spark to note the tasks that have ended."""


class Metrics:
    """Adds up the metrics of every task that got this object as its option ``metrics=``.

    The sums are those of tasks that succeeded, each once. What Spark runs again is counted apart:

    | | in the sums | under ``"failed_tasks"`` |
    |---|---|---|
    | a task that succeeds at once | yes | no |
    | one that fails and is run again | the last run | every run before |
    | a stage that is run again, because its output was lost | both runs | no |
    | a copy of a task, which Spark kills because the other one was faster | no | no |
    | a call before the one that fails, without ``chain=True`` in the same Spark task | no | no |

    Metrics of failed tasks, except those of channels, are read from the errors that Spark keeps:
    those of the last ``spark.ui.retainedTasks`` tasks and ``spark.ui.retainedStages`` stages.

    Args:
        spark: A classic session.

    Attributes:
        accumulator: What the tasks add to.

    Raises:
        ConfigurationError: On Spark Connect, which has no accumulators; the metrics of each task
            are in the executors' logs with ``spark.executorEnv.SPARKAWAIT_LOG=INFO``, failed
            tasks included. If `spark` is not a session.

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
        if not hasattr(spark, "sparkContext"):
            msg = f"`spark` must be a SparkSession, got `{type(spark).__name__}`"
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        self._spark = spark
        empty: TaskMetrics = {}
        self.accumulator: Accumulator[TaskMetrics] = spark.sparkContext.accumulator(
            empty, _TaskMetricsParam()
        )

    def snapshot(self) -> TaskMetrics:
        """Returns the sums over all tasks that have succeeded, and their number as ``tasks``.

        Under ``failed_tasks`` there are those of tasks that have failed.
        """
        sums = {"tasks": 0, **merge({}, self.accumulator.value)}
        return {**sums, "failed_tasks": self._of_failed_tasks()}

    def _of_failed_tasks(self) -> TaskMetrics:
        # The thin client of Spark Connect has no Py4J, and no metrics either.
        from py4j.protocol import Py4JError

        sums: TaskMetrics = {"tasks": 0}
        try:
            for error in _errors_of_tasks(self._spark):
                for identifier, metrics in _IN_ERROR.findall(error):
                    if int(identifier) == self.accumulator.aid:
                        sums = merge(sums, _read(metrics))
        except Py4JError as error:
            _logger.warning("the metrics of failed tasks cannot be read from this Spark: %s", error)
        return sums


def text_of_failed_task(accumulator: Accumulator[TaskMetrics], metrics: Mapping[str, Any]) -> str:
    """Returns what the error of a task says of its metrics."""
    told = {name: of for name, of in of_one_task(metrics).items() if name not in _OF_ROWS}
    return f"[sparkawait.metrics {accumulator.aid} {json.dumps(told)}]"


def _read(text: str) -> TaskMetrics:
    metrics = json.loads(text)
    if "call_latency" in metrics:
        metrics["call_latency"] = [(seconds, count) for seconds, count in metrics["call_latency"]]
    return metrics


def _errors_of_tasks(spark: SparkSession) -> Iterator[str]:
    """Yields what Spark has noted of tasks that have failed."""
    context = cast("Any", spark.sparkContext)
    jvm, scala = context._jvm, context._jsc.sc()  # noqa: SLF001
    scala.listenerBus().waitUntilEmpty(_EVENTS_SECONDS * 1000)
    status = jvm.org.apache.spark.status.api.v1.TaskStatus
    nothing, failed = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
    failed.add(status.FAILED)
    numbers = context._gateway.new_array(jvm.double, 0)  # noqa: SLF001
    store = scala.statusStore()
    stages = store.stageList(nothing, False, False, numbers, nothing)  # noqa: FBT003
    for at in range(stages.size()):
        stage = stages.apply(at)
        if not stage.numFailedTasks():
            continue
        which = stage.stageId(), stage.attemptId()
        sorting = jvm.scala.Option.empty()
        tasks = store.taskList(*which, 0, _MOST_TASKS, sorting, True, failed)  # noqa: FBT003
        for number in range(tasks.size()):
            message = tasks.apply(number).errorMessage()
            if message.isDefined():
                yield message.get()


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
