# SPDX-License-Identifier: Apache-2.0
"""Where calls add up what they have counted, for the option ``metrics=``.

Made by the user, and read from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkawait._checks import refuse
from sparkawait._worker.metrics import SumsOfTasks, TaskMetrics, complete, merge
from sparkawait.exceptions import ErrorKind

if TYPE_CHECKING:
    from sparkawait.spark.metrics import Accumulator, SparkSession, SumsOfSpark

__all__ = ["Metrics", "accumulator_of", "sums_of"]


class Metrics:
    """Adds up the metrics of every task that got this object as its option ``metrics=``.

    Without a session it counts in this process, for the wait functions of `sparkawait.arrow`; a
    task is one output. With a session it counts in all tasks of Spark, too.

    The sums are those of tasks that succeeded or were stopped by who read their output, each once;
    a task that runs in this process is among them with what it had counted a second ago at most.
    What Spark runs again is counted apart:

    | task | in the sums | under ``"failed_tasks"`` |
    |---|---|---|
    | a task that succeeds at once | yes | no |
    | one that fails and is run again | the last run | every run before |
    | a stage that is run again, because its output was lost | both runs | no |
    | a copy of a task, which Spark kills because the other one was faster | no | no |
    | a call before the one that fails, without ``chain=True`` in the same Spark task | no | no |

    Metrics of Spark tasks that failed, except those of channels, are read from the errors that
    Spark keeps: those of the last ``spark.ui.retainedTasks`` tasks and ``spark.ui.retainedStages``
    stages.

    Args:
        spark: A classic session, for calls over DataFrames. Leave it out for `sparkawait.arrow`.

    Raises:
        ConfigurationError: On Spark Connect, which has no accumulators; the metrics of each task
            are in the executors' logs with ``spark.executorEnv.SPARKAWAIT_LOG=INFO``, failed
            tasks included. If `spark` is not a session.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait as sa
        >>> @sa.async_function("square long")
        ... async def square(row):
        ...     return {"square": row["id"] ** 2}
        >>> metrics = sa.Metrics()
        >>> for ids in ([3, 7], [11]):
        ...     table = sa.arrow.ordered_wait(
        ...         pa.table({"id": ids}), square, metrics=metrics
        ...     ).to_table()
        >>> counts = metrics.snapshot()
        >>> counts["tasks"], counts["attempts"]
        (2, 3)
        >>> metrics = sa.Metrics(spark)  # doctest: +SKIP
        >>> sa.ordered_wait(df, lookup, metrics=metrics).count()  # doctest: +SKIP
        >>> metrics.snapshot()["attempts"]  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        """Has counted nothing yet; with a session, registers an accumulator."""
        self._of_process = SumsOfTasks()
        self._of_spark = None if spark is None else _sums_of_session(spark)

    def snapshot(self) -> TaskMetrics:
        """Returns the sums over all tasks that have not failed, and their number as ``tasks``.

        Under ``failed_tasks`` there are those of tasks that have failed. What every task counts is
        there before the first one has ended, as 0.
        """
        sums, failed = self._of_process.read()
        if self._of_spark is not None:
            of_spark, failed_there = self._of_spark.read()
            sums, failed = merge(sums, of_spark), merge(failed, failed_there)
        return {**complete(sums), "failed_tasks": complete(failed)}


def sums_of(metrics: object) -> SumsOfTasks | None:
    """Returns what tasks of this process add their metrics to, for the option ``metrics=``.

    Raises:
        ConfigurationError: If `metrics` is something else.
    """
    found = _checked(metrics)
    return None if found is None else found._of_process  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def accumulator_of(metrics: object) -> Accumulator[TaskMetrics] | None:
    """Returns what tasks of Spark add their metrics to, for the option ``metrics=``.

    Raises:
        ConfigurationError: If `metrics` is something else, or knows no session.
    """
    found = _checked(metrics)
    if found is None:
        return None
    sums = found._of_spark  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if sums is None:
        refuse(
            "`metrics` was made without a session, so it counts in this process only, and Spark's"
            " tasks run in others; give it the session: sparkawait.Metrics(spark)"
        )
    return sums.accumulator


def _sums_of_session(spark: SparkSession) -> SumsOfSpark:
    try:
        from sparkawait.spark.metrics import SumsOfSpark
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        refuse(
            f"`spark` must be a SparkSession, got `{type(spark).__name__}`, and PySpark is not"
            " installed; leave it out to count in this process",
            ErrorKind.INPUT_INVALID,
        )
    return SumsOfSpark(spark)


def _checked(metrics: object) -> Metrics | None:
    if metrics is not None and not isinstance(metrics, Metrics):
        refuse(f"`metrics` must be a sparkawait.Metrics, got `{type(metrics).__name__}`")
    return metrics
