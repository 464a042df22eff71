# SPDX-License-Identifier: Apache-2.0
"""What a task of Spark tells the driver of its calls: when it begins, each second, and at its end.

```text
  the server in the driver    at any time, whatever the task comes to: on one host a socket, on a
                              cluster the one that has the limits of the job, if it was started;
                              or a Redis, where a client of Spark Connect listens
  the accumulator             the end of a task that succeeds
  the error of a task         the end of one that fails, where there is no server: Spark keeps
                              nothing else of it
  the log of the worker       the end of one, where its session keeps that for a client of Spark
                              Connect
```

A report names its task and has all that it has counted so far, so the driver may get one twice.
Made on the driver, pickled, and used on the task thread of an executor.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import uuid4

from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from sparkawait._checks import warn_once
from sparkawait._plan.plan import Chain
from sparkawait._worker.metrics import TaskMetrics, by_call, by_operator
from sparkawait.exceptions import ConfigurationError
from sparkawait.secrets import Secret
from sparkawait.spark.messages import RefusedError, publish
from sparkawait.spark.shipment import add_to_what_is_said

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

__all__ = [
    "LOGGER",
    "NO_REPORTS",
    "OWN_TAG",
    "Arriving",
    "Report",
    "Reports",
    "TaskReport",
    "in_errors",
    "read",
]

_logger = logging.getLogger("sparkawait")
_EXECUTION = "spark.sql.execution.id"
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"
"""Of a streaming query: the job group of each of its runs has a name of its own."""
_TAGS = "spark.job.tags"
OWN_TAG = "sparkawait-"
"""How our tags of jobs begin."""
_CHANNELS = ("channels", "other_channels")
"""Named by what is in the rows, which is nothing for an error and no text for JSON."""
_LATENCY = "call_latency"
_PATIENCE = 0.5
"""Seconds that a report may take. The next one has all that is in one that was lost."""
_PATIENCE_AT_THE_END = 2.0
"""The same of the last one. Spark waits so long for a worker whose task it has killed."""
_SILENCE = 30.0
"""Seconds without a try after one that has not reached the driver."""
_SILENT_UNTIL: dict[str | Secret, float] = {}
"""Until when this process sends nothing to an address."""
_MOST_WARNINGS = 20
_MOST_OF_A_WARNING = 500
_MOST_TEXT = 60_000
"""Bytes of a report; the server hangs up on who says more than 64 KiB at once."""
LOGGER = "sparkawait.metrics"
"""Logs what tasks count whose session keeps it for its client."""
_KEEPS_LOGS = "PYSPARK_SPARK_SESSION_UUID"
"""Has the session whose worker this is, if Spark keeps what that logs."""
_IN_ERROR = re.compile(r"\[sparkawait\.metrics (\w+) (\{.*\})\]")


class Report(TypedDict):
    """What a task tells.

    Attributes:
        task: Names the run of these calls in a task; no other one has the same.
        number: Which one of its reports this is, from 1.
        stage: Its stage.
        partition: Its partition.
        attempt: How often it was run before.
        action: The execution of Spark SQL that it belongs to; nothing for an action on an RDD.
        query: The streaming query that it belongs to, if it does.
        batch: Names its micro-batch among those of all runs of the query.
        tags: Our own tags of its job.
        calls: For each call of its chain the function's name, the object that counts it, if there
            is one, and the counts.
        bounds: From how many failed rows of a function on, and above which share of its rows, its
            job is to end; of functions with a bound.
        totals: What the calls have counted together, levels included.
        rows: Rows that have left the last call, or an earlier one for good.
        warnings: What has been logged meanwhile at level WARNING or above, by the worker.
        end: How it has ended: ``"succeeded"``, ``"failed"``, ``"stopped"``, or not yet.
    """

    task: str
    number: int
    stage: int
    partition: int
    attempt: int
    action: str
    query: str
    batch: str
    tags: list[str]
    calls: list[tuple[str, str | None, TaskMetrics]]
    bounds: dict[str, tuple[int, float]]
    totals: TaskMetrics
    rows: int
    warnings: list[str]
    end: str | None


class Reports:
    """How the tasks of some calls reach the driver.

    Args:
        accumulator: That of the application; ``None`` on Spark Connect, which has none.
        address: The driver's server, with its secret, if there is one; or a Redis.
        counted_by: Which `sparkawait.Metrics` counts each call.
        mark: Tells reports in errors and logs from what else may be there.
        channel: Where they are published at a Redis that others use, too.
    """

    def __init__(
        self,
        accumulator: Accumulator[list[Report]] | None,
        address: str | Secret | None,
        counted_by: Sequence[str | None] = (),
        mark: str = "",
        channel: str | None = None,
    ) -> None:
        """Tells nothing yet."""
        self.mark, self.channel = mark, channel
        self.accumulator = accumulator
        self.address = address
        self.counted_by = tuple(counted_by)

    def then(self, counted_by: str | None) -> Reports:
        """Returns those of a chain that has one more call."""
        counted = (*self.counted_by, counted_by)
        return Reports(self.accumulator, self.address, counted, self.mark, self.channel)

    def of_task(self, chain: Chain) -> TaskReport:
        """Returns the reports of the task that this thread runs."""
        return TaskReport(self, chain, TaskContext.get())


NO_REPORTS = Reports(None, None)
"""Those of tasks that have no driver, or none that is listening."""


class TaskReport:
    """Tells the driver of one task.

    Attributes:
        totals: What it has counted, as it was told last.
    """

    def __init__(self, reports: Reports, chain: Chain, context: TaskContext | None) -> None:
        """Has told nothing."""
        self.totals: TaskMetrics = {}
        self._task, self._told = uuid4().hex, 0
        self._warned = 0 if context is None else _warnings().count
        self._reports, self._chain, self._context = reports, chain, context

    def begin(self) -> None:
        """Tells that the task begins."""
        self._send(None)

    def update(self, totals: Mapping[str, Any]) -> None:
        """Tells what the task has counted so far."""
        self.totals.update(totals)
        self._send(None)

    def end(self, how: str, error: Exception | None = None) -> None:
        """Tells what the task has counted, which ends.

        Args:
            how: How it ends.
            error: What it fails with, which takes the report along if there is no other way.
        """
        if self._context is None:
            return
        accumulator = self._reports.accumulator
        if (how != "succeeded" or accumulator is None) and self._send(how):
            return
        if accumulator is None:
            self._log(self._context, how)
            return
        if error is None:
            # Spark waits for it before the action ends, so it is there when one looks.
            accumulator.add([self._report(self._context, how, with_channels=True)])
        else:
            text = json.dumps(self._report(self._context, how))
            add_to_what_is_said(error, f"[sparkawait.metrics {self._reports.mark} {text}]")

    def _send(self, end: str | None) -> bool:
        """Sends a report; returns whether the driver has it. At an end, it says that it does."""
        address = self._reports.address
        if address is None or self._context is None:
            return False
        # Last words are told nowhere else, and it is one try.
        if end is None and monotonic() < _SILENT_UNTIL.get(address, 0):
            return False
        report = self._report(self._context, end)
        text = json.dumps(report)
        if len(text) > _MOST_TEXT:
            text = json.dumps({**report, "warnings": []})
        if len(text) > _MOST_TEXT:
            _logger.info("a report is too long for the driver: %d bytes", len(text))
            return False
        patience = _PATIENCE if end is None else _PATIENCE_AT_THE_END
        try:
            own = "reports" if end is None else "ends"
            publish(address, self._reports.channel or own, text, patience)
        except ConfigurationError as error:
            # It costs no row.
            warn_once("reports of tasks do not reach who counts them: %s", str(error))
            _SILENT_UNTIL[address] = monotonic() + _SILENCE
            return False
        except OSError as error:
            # Not at level WARNING: where the driver cannot be reached, its limits say so.
            _logger.info("a report has not reached the driver: %s", error)
            # A port that a firewall drops would hold up the rows of the task each second. One that
            # answers does not.
            if not isinstance(error, RefusedError):
                _SILENT_UNTIL[address] = monotonic() + _SILENCE
            return False
        return True

    def _log(self, context: TaskContext, end: str) -> None:
        """Logs the last report for a client of Spark Connect, if the session keeps what is logged.

        What a worker has logged that is killed, Spark does not keep.
        """
        if _KEEPS_LOGS not in os.environ:
            return
        report = json.dumps(self._report(context, end))
        text = f"[sparkawait.metrics {self._reports.mark} {report}]"
        record = logging.LogRecord(LOGGER, logging.INFO, "", 0, text, None, None)
        # Nobody else is to see it, and it is below the level of most loggers.
        logging.getLogger().handle(record)

    def _report(
        self, context: TaskContext, end: str | None, *, with_channels: bool = False
    ) -> Report:
        self._told += 1
        totals, counts = self.totals, by_call(self._chain, self.totals)
        if not with_channels:
            totals = {name: of for name, of in totals.items() if name not in _CHANNELS}
            counts = [
                {name: of for name, of in each.items() if name not in _CHANNELS} for each in counts
            ]
        names = [plan.function_name for plan in self._chain.plans]
        tags = (context.getLocalProperty(_TAGS) or "").split(",")
        by = self._reports.counted_by or (None,) * len(names)
        terms = ((it.function_name, it.options.on_error) for it in self._chain.operators)
        return Report(
            task=self._task,
            number=self._told,
            stage=context.stageId(),
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
            action=context.getLocalProperty(_EXECUTION) or "",
            query=context.getLocalProperty(_QUERY) or "",
            batch=" ".join(context.getLocalProperty(it) or "" for it in (_RUN, _BATCH)),
            tags=[it for it in tags if it.startswith(OWN_TAG)],
            calls=list(zip(names, by, counts, strict=True)),
            bounds={name: it.terms_of_job for name, it in terms if it.terms_of_job is not None},
            totals=totals,
            rows=_left(self._chain, self.totals),
            warnings=_warnings().since(self._warned),
            end=end,
        )


def _left(chain: Chain, totals: Mapping[str, Any]) -> int:
    """Returns how many rows have left a chain: each once, however many of its calls have failed."""
    counted, left = dict(by_operator(chain, totals)), 0
    for plan in chain.plans:
        counts = counted[plan.function_name]
        is_last = plan is chain.plans[-1]
        # A row whose failure is kept goes on to the next call.
        is_kept = not is_last and plan.options.on_error.action in {"capture", "null"}
        names = ("dropped", *(() if is_kept else ("failed",)), *(("emitted",) if is_last else ()))
        left += sum(counts.get(name, 0) for name in names)
    return left


class _Warnings(logging.Filter):
    """Remembers the last warnings of this process, as a filter that lets all lines pass.

    Attributes:
        count: How many there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._last: deque[tuple[int, str]] = deque(maxlen=_MOST_WARNINGS)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            self.count += 1
            self._last.append((self.count, record.getMessage()[:_MOST_OF_A_WARNING]))
        return True

    def since(self, count: int) -> list[str]:
        return [text for number, text in list(self._last) if number > count]


@functools.cache
def _warnings() -> _Warnings:
    found = _Warnings()
    # No handler: a logger that has one is set up by somebody else.
    _logger.addFilter(found)
    return found


def read(text: str | bytes) -> Report:
    """Returns a report that was sent as text."""
    report: Report = json.loads(text)
    report["calls"] = [(name, by, _with_pairs(counts)) for name, by, counts in report["calls"]]
    report["totals"] = _with_pairs(report["totals"])
    return report


def _with_pairs(counts: TaskMetrics) -> TaskMetrics:
    """Returns counts of JSON, which has no tuples, as the task had them."""
    read = dict(counts)
    if _LATENCY in read:
        read[_LATENCY] = [(seconds, count) for seconds, count in read[_LATENCY]]
    if "operators" in read:
        read["operators"] = {name: _with_pairs(of) for name, of in read["operators"].items()}
    return read


def in_errors(errors: Iterator[str], mark: str) -> Iterator[Report]:
    """Yields the reports with this mark in the errors of tasks."""
    for error in errors:
        for found, text in _IN_ERROR.findall(error):
            if found == mark:
                yield read(text)


class Arriving(AccumulatorParam[list[Report]]):
    """Hands on what tasks add to the accumulator; tasks get one that only collects.

    Args:
        take: Takes a report, on the driver.
    """

    def __init__(self, take: Callable[[Report], None] | None = None) -> None:
        """Has nothing."""
        self._take = take

    def __reduce__(self) -> tuple[Any, ...]:
        """Leaves the driver's part on the driver."""
        return (Arriving, ())

    def zero(self, value: list[Report]) -> list[Report]:  # noqa: ARG002 - Spark's signature
        """Returns no report."""
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802
        """Takes the reports `value2`."""
        if self._take is None:
            return [*value1, *value2]
        for report in value2:
            try:
                self._take(report)
            except Exception:  # Spark would fail a task whose calls have all been made
                _logger.exception("a report was not taken")
        return []
