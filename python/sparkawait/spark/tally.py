# SPDX-License-Identifier: Apache-2.0
"""What the tasks of an application tell of its calls, added up: of all, and of each function.

Used from any thread, in the process of the user.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator

from sparkawait._worker.metrics import SumsOfTasks, TaskMetrics, complete, merge
from sparkawait.metrics import Metrics, fed_by
from sparkawait.spark.job_limits import Counts, JobLimits
from sparkawait.spark.progress import Actions
from sparkawait.spark.reports import Report, Reports

__all__ = ["Tally"]

_MOST_ENDED = 100_000
"""Tasks that have ended; a report of theirs may still be on its way."""
_MOST_NAMES = 1_000
"""Functions whose counts are kept apart."""


class Tally:
    """Takes the reports of all tasks of an application.

    Attributes:
        reports: How tasks reach it.
        actions: What runs.
        limits: Those of the calls.
    """

    reports: Reports
    actions: Actions

    def __init__(self) -> None:
        """Has heard of no task."""
        self._lock = threading.Lock()
        self._taking = threading.RLock()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._of_functions: dict[str, SumsOfTasks] = {}
        self._counted_in: weakref.WeakValueDictionary[str, SumsOfTasks] = (
            weakref.WeakValueDictionary()
        )
        self.limits = JobLimits(self._counts)

    def catch_up(self) -> None:
        """Takes what tasks have told by now."""

    def counts_in(self, metrics: Metrics) -> str:
        """Returns what reports call an object that counts calls."""
        name, sums = fed_by(metrics, self.catch_up)
        self._counted_in[name] = sums
        return name

    def take(self, report: Report) -> bool:
        """Takes a report; returns whether it is of a task that had not ended."""
        # One after the other, or what a task said before its end might come to its action after
        # that, and count twice. Who logs a warning of it may ask for the sums, in the same thread.
        with self._taking:
            is_new = self._count(report)
            if is_new:
                self.actions.take(report)
            return is_new

    def _count(self, report: Report) -> bool:
        task, end = report["task"], report["end"]
        with self._lock:
            if task in self._ended:
                return False
            if end is not None:
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
        found: dict[str, Counts] = {}
        for name, sums in functions.items():
            counts, failed = sums.read()
            limits = merge(counts, failed).get("rate_limits", {})
            permits = {label: it["permits"] for label, it in limits.items()}
            found[name] = Counts(permits, *self.actions.levels(name))
        return found

    def _sums_of(self, name: str, by: str | None) -> Iterator[SumsOfTasks]:
        if len(self._of_functions) < _MOST_NAMES or name in self._of_functions:
            yield self._of_functions.setdefault(name, SumsOfTasks())
        counted = None if by is None else self._counted_in.get(by)
        if counted is not None:
            yield counted
