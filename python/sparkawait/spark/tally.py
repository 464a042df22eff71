# SPDX-License-Identifier: Apache-2.0
"""What the tasks of an application tell of its calls, added up: of all, and of each function.

Used from any thread, in the process of the user.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from sparkawait._worker.metrics import SumsOfTasks, TaskMetrics, complete, merge
from sparkawait.metrics import Metrics, fed_by
from sparkawait.spark.job_limits import Counts, JobLimits
from sparkawait.spark.progress import Actions
from sparkawait.spark.reports import Report, Reports, read
from sparkawait.spark.screens import AskedOfSpark

__all__ = ["Tally", "weakly"]

_logger = logging.getLogger("sparkawait")
_One = TypeVar("_One")
_MOST_ENDED = 100_000
"""Tasks that have ended; a report of theirs may still be on its way."""
_MOST_NAMES = 1_000
"""Functions whose counts are kept apart."""


class Tally:
    """Takes the reports of all tasks of an application.

    Args:
        spark: What is known of it otherwise.
        is_on_one_host: Whether its workers are on this host.

    Attributes:
        reports: How tasks reach it.
        actions: What runs.
        limits: Those of the calls.
    """

    reports: Reports

    def __init__(self, spark: AskedOfSpark, *, is_on_one_host: bool) -> None:
        """Has heard of no task."""
        self._lock = threading.Lock()
        self._taking = threading.RLock()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._of_functions: dict[str, SumsOfTasks] = {}
        self._counted_in: weakref.WeakValueDictionary[str, SumsOfTasks] = (
            weakref.WeakValueDictionary()
        )
        self._running: dict[str, int] = {}
        """The number of the last report of each task that runs."""
        # Of streams, by query and micro-batch.
        self._of_streams: dict[str, dict[str, dict[str, Report]]] = {}
        self.limits = JobLimits(self._counts)
        self.actions = Actions(spark, weakly(self.lose), is_on_one_host=is_on_one_host)

    def catch_up(self) -> None:
        """Takes what tasks have told by now."""

    def counts_in(self, metrics: Metrics) -> str:
        """Returns what reports call an object that counts calls."""
        name, sums = fed_by(metrics, self.catch_up)
        self._counted_in[name] = sums
        return name

    def take(self, report: Report) -> bool:
        """Takes a report; returns whether it says something new of a task that had not ended."""
        # One after the other, or what a task said before its end might come to its action after
        # that, and count twice. Who logs a warning of it may ask for the sums, in the same thread.
        with self._taking:
            is_new = self._count(report)
            if is_new and report["query"]:
                self._take_of_stream(report)
            elif is_new:
                self.actions.take(report)
            return is_new

    def lose(self, report: Report) -> None:
        """Takes the last report of a task that has ended without a word."""
        self.take({**report, "end": "failed"})

    def take_text(self, text: str) -> None:
        """Takes a report that has come as text."""
        try:
            self.take(read(text))
        except Exception as error:  # noqa: BLE001 - of another version, or nobody's
            _logger.warning("a report was not understood: %s", type(error).__name__)

    def listen_to(self, messages: Iterable[_One], hear: Callable[[_One], object]) -> None:
        """Has a method of it hear messages, in a thread, as long as somebody has this object."""
        arguments = (weakref.WeakMethod(hear), messages)
        name = "sparkawait-reports"
        threading.Thread(target=_hear_on, args=arguments, name=name, daemon=True).start()

    def _take_of_stream(self, report: Report) -> None:
        """Ends what an earlier micro-batch has left: a worker that was killed says no more."""
        batches = self._of_streams.setdefault(report["query"], {})
        tasks = batches.setdefault(report["batch"], {})
        if report["end"] is None:
            tasks[report["task"]] = report
        else:
            tasks.pop(report["task"], None)
        # Stages have numbers, and one batch of a query follows the other.
        for batch, others in list(batches.items()):
            if batch != report["batch"]:
                for other in list(others.values()):
                    if other["stage"] < report["stage"]:
                        self.lose(other)
            if not others:
                batches.pop(batch, None)
        if not batches:
            self._of_streams.pop(report["query"], None)

    def _count(self, report: Report) -> bool:
        task, end = report["task"], report["end"]
        with self._lock:
            # One that nobody waited for any more may come behind the next one.
            if task in self._ended or (
                end is None and report["number"] <= self._running.get(task, 0)
            ):
                return False
            if end is None:
                self._running[task] = report["number"]
            else:
                self._running.pop(task, None)
                self._ended[task] = None
                if len(self._ended) > _MOST_ENDED:
                    self._ended.popitem(last=False)
            for position, (name, by, counts) in enumerate(report["calls"]):
                key = (task, position)
                for sums in self._sums_of(name, by):
                    if end is None:
                        sums.report(key, counts)
                    else:
                        sums.end(key, counts, has_failed=end == "failed")
        return True

    def sums(self) -> TaskMetrics:
        """Returns the sums over all tasks, and those of each function."""
        self.catch_up()
        with self._lock:
            functions = dict(self._of_functions)
        total: TaskMetrics = {}
        of_failed: TaskMetrics = {}
        told: dict[str, TaskMetrics] = {}
        for name, sums in functions.items():
            counts, failed = sums.read()
            total, of_failed = merge(total, counts), merge(of_failed, failed)
            told[name] = {**complete(counts), "failed_tasks": complete(failed)}
        return {**complete(total), "failed_tasks": complete(of_failed), "functions": told}

    def _counts(self) -> dict[str, Counts]:
        """Returns what each function has taken of its limits, and what its tasks do now."""
        self.catch_up()
        with self._lock:
            functions = dict(self._of_functions)
        of_each: dict[str, TaskMetrics] = {}
        for name, sums in functions.items():
            counts = merge(*sums.read())
            operators = counts.get("operators", {})
            # Of functions side by side each has counts of its own; those of one call are all of it.
            each = operators if set(operators) - {name} else {name: counts}
            for operator, of in each.items():
                of_each[operator] = merge(of_each.get(operator, {}), of)
        found: dict[str, Counts] = {}
        for name, counts in of_each.items():
            limits = counts.get("rate_limits", {})
            permits = {label: it["permits"] for label, it in limits.items()}
            found[name] = Counts(permits, *self.actions.levels(name))
        return found

    def _sums_of(self, name: str, by: str | None) -> Iterator[SumsOfTasks]:
        if len(self._of_functions) < _MOST_NAMES or name in self._of_functions:
            yield self._of_functions.setdefault(name, SumsOfTasks())
        counted = None if by is None else self._counted_in.get(by)
        if counted is not None:
            yield counted


def weakly(method: Callable[[Report], object]) -> Callable[[Report], None]:
    """Returns what calls a method as long as somebody else has its object."""
    known = weakref.WeakMethod(method)

    def call(report: Report) -> None:
        found = known()
        if found is not None:
            found(report)

    return call


def _hear_on(known: weakref.WeakMethod[Callable[[_One], object]], messages: Iterable[_One]) -> None:
    for message in messages:
        hear = known()
        if hear is None:
            return
        hear(message)
        del hear
