# SPDX-License-Identifier: Apache-2.0
"""The owner of an application's calls, on the driver: what they have done, and their end.

```text
  tasks --> reports --> Owner: one for each application --> Metrics of a call
                          |                            `--> Actions: what runs, and what it came to
                          `--> Job: what users ask
```

Made by the first call that is written. Used from any thread; reports come from a thread of its own,
and from that of Spark which adds up accumulators.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from pyspark.sql import SparkSession

from sparkawait._worker.metrics import SumsOfTasks, TaskMetrics, complete, merge
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.metrics import Metrics, counted_in, fed_by
from sparkawait.spark.progress import Actions, Progress
from sparkawait.spark.reports import NO_REPORTS, Arriving, Report, Reports, in_errors, read
from sparkawait.spark.session import Session, is_connect

__all__ = ["Job", "job", "reports_of"]

_logger = logging.getLogger("sparkawait")
_MOST_BYTES = 1 << 22
"""Of a report; a task has some kilobytes to tell."""
_PATIENCE = 1.0
"""Seconds in which a task sends a report that it has begun to send."""
_BACKLOG = 1024
_MOST_TASKS = 100_000
_EVENTS_SECONDS = 10
"""How long it is waited for Spark to note the tasks that have ended."""
_MOST_ENDED = 100_000
"""Tasks that have ended; a report of theirs may still be on its way."""
_MOST_NAMES = 1_000
"""Functions whose counts are kept apart."""


class Job:
    """What the calls of an application do, and how to end them.

    Made by `sparkawait.job`.
    """

    def __init__(self, owner: Owner) -> None:
        """Has an owner to ask."""
        self._owner = owner

    @property
    def metrics(self) -> TaskMetrics:
        """The sums over all calls since the first one, as those of `sparkawait.Metrics`.

        Under ``functions`` there are those of each function, by its name. On one host a task that
        runs is among them with what it had counted a second ago at most; on a cluster when it ends.
        """
        return self._owner.sums()

    @property
    def progress(self) -> list[Progress]:
        """What each action does that runs now: empty if no task of a call runs."""
        return self._owner.actions.progress()

    def stop(self) -> int:
        """Cancels the jobs of Spark that make calls now; returns how many there were.

        No further call begins as soon as the tasks have heard of it. Streaming queries go on: stop
        them by `sparkawait.drain`, or by ``query.stop()``. On a cluster, a job is known once the
        first of its tasks has ended.
        """
        return self._owner.actions.stop()

    def __repr__(self) -> str:
        """Says what runs, a line for each action."""
        running = self.progress
        return "\n".join(map(str, running)) if running else "sparkawait: no calls"


def job(spark: SparkSession) -> Job:
    """Returns the owner of all calls of an application: their numbers, and how to end them.

    Args:
        spark: A classic session; all sessions of an application have the same owner.

    Raises:
        ConfigurationError: On Spark Connect, whose tasks cannot reach its clients:
            ``spark.interruptAll()`` ends the actions of a session, and each task logs its counts.
            If `spark` is not a session.

    Examples:
        >>> job = sa.job(spark)  # doctest: +SKIP
        >>> sa.unordered_wait(df, look_up).write.parquet("/data/found")  # doctest: +SKIP
        >>> job.metrics["attempts"], job.metrics["functions"]["look_up"]["failed"]  # doctest: +SKIP
        (50000, 13)
        >>> job.stop()  # from another thread, or in another cell  # doctest: +SKIP
        1
    """
    if is_connect(spark):
        msg = (
            "`job` needs a classic session: tasks of Spark Connect do not reach the client;"
            " `spark.interruptAll()` ends the actions of a session, and each task logs its counts"
            " with spark.executorEnv.SPARKAWAIT_LOG=INFO"
        )
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    if not hasattr(spark, "sparkContext"):
        msg = f"`spark` must be a SparkSession, got `{type(spark).__name__}`"
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    return Job(_owner_of(spark))


def reports_of(
    spark: SparkSession | None, metrics: object, before: Reports | None = None
) -> Reports:
    """Returns how the tasks of a call reach the driver.

    Args:
        spark: The session that the call is written in.
        metrics: What the user counts them by, of the option ``metrics=``.
        before: How those of the chain do that it joins.

    Raises:
        ConfigurationError: If `metrics` is something else, or the session is of Spark Connect.
    """
    counted = counted_in(metrics)
    if spark is None or is_connect(spark):
        if counted is not None:
            msg = (
                "`metrics` needs a classic session; Spark Connect has no accumulators. Each task"
                " logs its counts with spark.executorEnv.SPARKAWAIT_LOG=INFO"
            )
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
        return (before or NO_REPORTS).then(None)
    owner = _owner_of(spark)
    return (before or owner.reports).then(None if counted is None else owner.counts_in(counted))


_OWNERS: weakref.WeakKeyDictionary[Any, Owner] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def _owner_of(spark: SparkSession) -> Owner:
    context = spark.sparkContext
    with _LOCK:
        owner = _OWNERS.get(context)
        if owner is None:
            owner = _OWNERS[context] = Owner(spark)
        return owner


class Owner:
    """Takes the reports of all tasks of an application.

    Attributes:
        reports: How tasks reach it.
        actions: What runs.

    Args:
        spark: A session of the application.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Registers an accumulator, and listens where all tasks run on this host."""
        self._lock = threading.Lock()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._read_of_errors: set[str] = set()
        self._of_functions: dict[str, SumsOfTasks] = {}
        self._counted_in: weakref.WeakValueDictionary[str, SumsOfTasks] = (
            weakref.WeakValueDictionary()
        )
        self._context = weakref.ref(spark.sparkContext)
        take = weakref.WeakMethod(self.take)

        def taken(report: Report) -> None:
            to_owner = take()
            if to_owner is not None:
                to_owner(report)

        accumulator = spark.sparkContext.accumulator(cast("list[Report]", []), Arriving(taken))
        address = _listen(self, taken) if Session(spark).is_on_one_host else None
        self.actions = Actions(spark, taken, is_on_one_host=address is not None)
        self.reports = Reports(accumulator, address, mark=uuid4().hex)

    def counts_in(self, metrics: Metrics) -> str:
        """Returns what reports call an object that counts calls."""
        name, sums = fed_by(metrics, self.look_at_errors)
        self._counted_in[name] = sums
        return name

    def take(self, report: Report) -> None:
        """Takes a report; one of a task that has ended is known."""
        task, end = report["task"], report["end"]
        with self._lock:
            if task in self._ended:
                return
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
        self.actions.take(report)

    def sums(self) -> TaskMetrics:
        """Returns the sums over all tasks, and those of each function."""
        self.look_at_errors()
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

    def look_at_errors(self) -> None:
        """Takes the reports of tasks that failed where they could send none."""
        if self.reports.address is not None or self.reports.accumulator is None:
            return
        # Not before, since nobody has Py4J who has no classic session.
        from py4j.protocol import Py4JError

        context = self._context()
        if context is None:
            return
        try:
            for report in in_errors(_errors_of_tasks(context), self.reports.mark):
                if report["task"] not in self._read_of_errors:
                    self._read_of_errors.add(report["task"])
                    self.take(report)
        except Py4JError as error:
            _logger.warning("the metrics of failed tasks cannot be read from this Spark: %s", error)

    def _sums_of(self, name: str, by: str | None) -> Iterator[SumsOfTasks]:
        if len(self._of_functions) < _MOST_NAMES or name in self._of_functions:
            yield self._of_functions.setdefault(name, SumsOfTasks())
        counted = None if by is None else self._counted_in.get(by)
        if counted is not None:
            yield counted


def _listen(owner: Owner, take: Any) -> str | None:
    """Takes reports at a socket as long as the owner lives; returns its path.

    Nobody else can open the folder. Where there can be no socket, tasks report at their end.
    """
    folder = Path(tempfile.mkdtemp(prefix="sparkawait-"))
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(str(folder / "reports"))
        server.listen(_BACKLOG)
    except OSError as error:  # a path may be too long
        _logger.debug("tasks report at their end: %s", error)
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
        return None
    weakref.finalize(owner, _close, server, folder)
    threading.Thread(
        target=_serve, args=(server, take), name="sparkawait-reports", daemon=True
    ).start()
    return str(folder / "reports")


def _close(server: socket.socket, folder: Path) -> None:
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)  # wakes who accepts
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


def _serve(server: socket.socket, take: Any) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            try:
                connection.settimeout(_PATIENCE)
                take(read(_all_of(connection)))
                connection.sendall(b"\n")
            except Exception as error:  # noqa: BLE001 - a task may end in the middle of a report
                _logger.debug("a report was not understood: %s", type(error).__name__)


def _all_of(connection: socket.socket) -> bytes:
    found = bytearray()
    while len(found) <= _MOST_BYTES and (piece := connection.recv(1 << 16)):
        found += piece
    return bytes(found)


def _errors_of_tasks(context: Any) -> Iterator[str]:
    """Yields what Spark has noted of tasks that have failed."""
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
