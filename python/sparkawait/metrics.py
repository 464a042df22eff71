# SPDX-License-Identifier: Apache-2.0
"""Where calls add up what they have counted, for the option ``metrics=``.

Made by the user, and read from any thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from uuid import uuid4

from sparkawait._checks import refuse
from sparkawait._worker.metrics import SumsOfTasks, TaskMetrics, complete

__all__ = ["Metrics", "counted_in", "fed_by", "sums_of"]


class Metrics:
    """Adds up the metrics of every task that got this object as its option ``metrics=``.

    It counts tasks of Spark and those of `sparkawait.arrow`, where a task is one output. The sums
    over all calls of an application are in ``sparkawait.job(spark).metrics``.

    They are those of tasks that succeeded or were stopped by who read their output, each once. A
    task that runs in this process, or tells the driver of its calls while it runs (see
    `sparkawait.job`), counts as of a second ago. What Spark runs again is counted apart:

    | task | in the sums | under ``"failed_tasks"`` |
    |---|---|---|
    | a task that succeeds at once | yes | no |
    | one that fails and is run again | the last run | every run before |
    | a stage that is run again, because its output was lost | both runs | no |
    | a copy of a task, which Spark kills because the other one was faster | if it tells | no |
    | an earlier call in the Spark task of the one that fails, not in a chain | if it tells | no |

    Failed tasks that could not tell are read from the errors that Spark keeps: of the last
    ``spark.ui.retainedTasks`` tasks and ``spark.ui.retainedStages`` stages, without channels.

    Calls over DataFrames of Spark Connect take none: tasks do not reach its clients. There each
    task logs its counts with ``spark.executorEnv.SPARKAWAIT_LOG=INFO``, failed tasks included.

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
        >>> sa.ordered_wait(df, look_up, metrics=metrics).count()  # doctest: +SKIP
    """

    def __init__(self) -> None:
        """Has counted nothing yet."""
        self._name = uuid4().hex
        self._sums = SumsOfTasks()
        self._sources: list[weakref.WeakMethod[Callable[[], None]]] = []

    def snapshot(self) -> TaskMetrics:
        """Returns the sums over all tasks that have not failed, and their number as ``tasks``.

        Under ``failed_tasks`` there are those of tasks that have failed. What every task counts is
        there before the first one has ended, as 0.
        """
        for known in self._sources:
            source = known()
            if source is not None:
                source()
        sums, failed = self._sums.read()
        return {**complete(sums), "failed_tasks": complete(failed)}


def sums_of(metrics: object) -> SumsOfTasks | None:
    """Returns what tasks of this process add their metrics to, for the option ``metrics=``.

    Raises:
        ConfigurationError: If `metrics` is something else.
    """
    found = counted_in(metrics)
    return None if found is None else found._sums  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def fed_by(metrics: Metrics, source: Callable[[], None]) -> tuple[str, SumsOfTasks]:
    """Returns what the reports of tasks call an object that counts them, and its sums.

    Args:
        metrics: The object.
        source: Called when somebody reads it, and adds what it has not added yet.
    """
    sources = metrics._sources  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if all(known() != source for known in sources):
        sources.append(weakref.WeakMethod(source))
    return metrics._name, metrics._sums  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def counted_in(metrics: object) -> Metrics | None:
    """Returns what the user counts calls by, for the option ``metrics=``.

    Raises:
        ConfigurationError: If `metrics` is something else.
    """
    if metrics is not None and not isinstance(metrics, Metrics):
        refuse(f"`metrics` must be a sparkawait.Metrics, got `{type(metrics).__name__}`")
    return metrics
