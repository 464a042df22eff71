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

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, cast
from uuid import uuid4

from pyspark.sql import SparkSession

from sparkawait._plan.plan import Plan, limits_of
from sparkawait._worker.metrics import SumsOfTasks, TaskMetrics, complete, merge
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.metrics import Metrics, counted_in, fed_by
from sparkawait.spark.job_limits import Counts, JobLimits
from sparkawait.spark.limit_server import RunningServer, server_here
from sparkawait.spark.progress import Actions, Progress
from sparkawait.spark.reports import NO_REPORTS, Arriving, Report, Reports, in_errors, read
from sparkawait.spark.session import Session, is_connect

__all__ = ["Job", "job", "reports_of"]

_logger = logging.getLogger("sparkawait")
_PATIENCE = 1.0
"""Seconds after which the thread that takes reports looks whether anybody wants them."""
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

        Under ``functions`` there are those of each function, by its name. A task that runs is among
        them with what it had counted a second ago at most. On a cluster that is so for tasks that
        begin after `sparkawait.job` was called, or after the first limit of the job; others count
        when they end.
        """
        return self._owner.sums()

    @property
    def limits(self) -> JobLimits:
        """What the limits of the calls are, and what is taken of them, by name.

        ``job.limits.set("openai", "300/min")`` changes one while the job runs: all tasks follow
        within half a second.
        """
        return self._owner.limits

    @property
    def progress(self) -> list[Progress]:
        """What each action does that runs now: empty if no task of a call runs."""
        self._owner.catch_up()
        return self._owner.actions.progress()

    def stop(self) -> int:
        """Cancels the jobs of Spark that make calls now; returns how many there were.

        No further call begins as soon as the tasks have heard of it. Streaming queries go on: stop
        them by `sparkawait.drain`, or by ``query.stop()``. A job that waits for its first task is
        not counted; it ends as soon as it begins to make calls. Tasks that began on a cluster
        before `sparkawait.job` was called are known once one has ended.
        """
        self._owner.catch_up()
        return self._owner.actions.stop()

    def __repr__(self) -> str:
        """Says what runs, a line for each action."""
        running = self.progress
        return "\n".join(map(str, running)) if running else "sparkawait: no calls"


def job(spark: SparkSession) -> Job:
    """Returns the owner of all calls of an application: their numbers, and how to end them.

    Call it first. On a cluster it starts the server that also has the limits of the job, at the
    address ``spark.driver.bindAddress`` and the port ``spark.sparkawait.port``, or any that is
    free.

    Args:
        spark: A classic session; all sessions of an application have the same owner.

    Raises:
        ConfigurationError: On Spark Connect, whose tasks cannot reach its clients:
            ``spark.interruptAll()`` ends the actions of a session, and each task logs its counts.
            If `spark` is not a session, or the port that was chosen cannot be used.

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
    owner = _owner_of(spark)
    owner.listen(Session(spark), starts=True)
    return Job(owner)


def reports_of(
    session: Session, plan: Plan, metrics: object, before: Reports | None = None
) -> Reports:
    """Returns how the tasks of a call reach the driver.

    Args:
        session: The session that the call is written in.
        plan: The call.
        metrics: What the user counts them by, of the option ``metrics=``.
        before: How those of the chain do that it joins.

    Raises:
        ConfigurationError: If `metrics` is something else, or the session is of Spark Connect.
    """
    counted = None if metrics is None else counted_in(metrics)
    spark = session.spark
    if spark is None or session.is_connect:
        if counted is not None:
            msg = (
                "`metrics` needs a classic session; Spark Connect has no accumulators. Each task"
                " logs its counts with spark.executorEnv.SPARKAWAIT_LOG=INFO"
            )
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
        return (before or NO_REPORTS).then(None)
    owner = _owner_of(spark)
    owner.listen(session, starts=False)
    owner.know(plan)
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
        limits: Those of the calls.

    Args:
        spark: A session of the application.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Registers an accumulator, and listens nowhere yet."""
        self._lock = threading.Lock()
        self._taking = threading.RLock()
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
        session = Session(spark)
        self._is_on_one_host = session.is_on_one_host
        self.actions = Actions(spark, taken, is_on_one_host=self._is_on_one_host)
        self.reports = Reports(accumulator, None, mark=uuid4().hex)
        self.limits = JobLimits(self._counts)
        self._running: RunningServer | None = None
        self._starting, self._reading = threading.Lock(), threading.Lock()

    def listen(self, session: Session, *, starts: bool) -> None:
        """Takes reports at the server of the application, if there is one.

        Args:
            session: A session of the application.
            starts: Whether to start the server on a cluster; on one host, where it opens no port,
                it is started in any case.
        """
        with self._starting:
            if self._running is not None:
                return
            is_local = self._is_on_one_host
            try:
                found = server_here(session, is_local=is_local, starts=starts or is_local)
            except (ImportError, OSError, ConfigurationError) as error:
                # A build without it, or no folder for a socket. A port was chosen.
                if isinstance(error, ConfigurationError) and not is_local:
                    raise
                _logger.debug("tasks report at their end: %s", error)
                return
            if found is None:
                return
            self._running, self.reports.address = found, found.address
        threading.Thread(
            target=_read_on,
            args=(weakref.ref(self), found),
            name="sparkawait-reports",
            daemon=True,
        ).start()

    def take_published(self) -> None:
        """Takes the reports that have come to the server."""
        if self._running is None:
            return
        # Who looks at the sums has those that another thread has just begun to take.
        with self._reading:
            for text in self._running.server.take_published():
                try:
                    self.take(read(text))
                except Exception as error:  # noqa: BLE001 - of another version, or nobody's
                    _logger.warning("a report was not understood: %s", type(error).__name__)

    def know(self, plan: Plan) -> None:
        """Learns of a call that is written."""
        for each in plan.operators:
            if limits_of(each.options):
                self.limits.know(each)

    def counts_in(self, metrics: Metrics) -> str:
        """Returns what reports call an object that counts calls."""
        name, sums = fed_by(metrics, self.catch_up)
        self._counted_in[name] = sums
        return name

    def take(self, report: Report) -> None:
        """Takes a report; one of a task that has ended is known."""
        # One after the other, or what a task said before its end might come to its action after
        # that, and count twice. Who logs a warning of it may ask for the sums, in the same thread.
        with self._taking:
            if self._count(report):
                self.actions.take(report)

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

    def catch_up(self) -> None:
        """Takes the reports that have come, and those of tasks that failed and could send none."""
        self.take_published()
        # On one host nothing is between a task and the server.
        is_told = self._is_on_one_host and self.reports.address is not None
        if is_told or self.reports.accumulator is None:
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


def _read_on(owner: weakref.ref[Owner], running: RunningServer) -> None:
    """Has an owner take the reports that come, as long as it lives."""
    while owner() is not None:
        if running.server.wait_published(_PATIENCE):
            found = owner()
            if found is not None:
                found.take_published()
            del found


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
