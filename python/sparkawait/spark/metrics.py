# SPDX-License-Identifier: Apache-2.0
"""The metrics of Spark's tasks, collected on the driver of a classic session.

`SumsOfSpark` is made on the driver; the executors only add to the accumulator that it sends along.
Spark throws away what a failed task has added; so its error says it, and the driver reads the
errors.
"""

from __future__ import annotations

import json
import logging
import re
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from pyspark import accumulators

# `sparkawait.Metrics` has these types from here. In `__all__`, the site would read PySpark.
from pyspark.accumulators import Accumulator as Accumulator  # noqa: PLC0414
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession as SparkSession  # noqa: PLC0414

from sparkawait._worker.metrics import TaskMetrics, merge
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.spark.session import is_connect

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SumsOfSpark", "text_of_failed_task"]

_logger = logging.getLogger("sparkawait")

_OF_ROWS = ("channels", "other_channels")
"""Named by what is in the rows, which is nothing for an error."""

_IN_ERROR = re.compile(r"\[sparkawait\.metrics (\d+) (\{.*\})\]")
_MOST_TASKS = 100_000
_EVENTS_SECONDS = 10
"""How long a snapshot waits for Spark to note the tasks that have ended."""


class SumsOfSpark:
    """The sums over the tasks of a session.

    Attributes:
        accumulator: What the tasks add to.

    Args:
        spark: A classic session.

    Raises:
        ConfigurationError: If it is one of Spark Connect, or not a session.
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
        # PySpark keeps all that were ever made, and each micro-batch may make one.
        weakref.finalize(self, _give_up, self.accumulator.aid)

    def read(self) -> tuple[TaskMetrics, TaskMetrics]:
        """Returns the sums over all tasks that have not failed, and over those that have."""
        return self.accumulator.value, self._of_failed_tasks()

    def _of_failed_tasks(self) -> TaskMetrics:
        # The thin client of Spark Connect has no Py4J, and no metrics either.
        from py4j.protocol import Py4JError

        sums: TaskMetrics = {}
        try:
            for error in _errors_of_tasks(self._spark):
                for identifier, metrics in _IN_ERROR.findall(error):
                    if int(identifier) == self.accumulator.aid:
                        sums = merge(sums, _read(metrics))
        except Py4JError as error:
            _logger.warning("the metrics of failed tasks cannot be read from this Spark: %s", error)
        return sums


def _give_up(identifier: int) -> None:
    """Drops the sums of an accumulator that nobody can read any more.

    Its place stays: a task that ends late adds to it, and that must not fail.
    """
    registry: dict[int, Any] = accumulators._accumulatorRegistry  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    registry[identifier] = _NOBODYS


class _Nobodys:
    """Takes what is added, and keeps nothing."""

    def __iadd__(self, _update: object) -> Self:
        return self


_NOBODYS = _Nobodys()


def text_of_failed_task(accumulator: Accumulator[TaskMetrics], metrics: Mapping[str, Any]) -> str:
    """Returns what the error of a task says of its metrics."""
    told = {name: of for name, of in metrics.items() if name not in _OF_ROWS}
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
