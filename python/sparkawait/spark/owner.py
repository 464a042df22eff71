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
from collections.abc import Iterator
from typing import Any, cast
from uuid import uuid4

from pyspark.sql import SparkSession

from sparkawait._plan.plan import Plan, limits_of
from sparkawait._worker.metrics import TaskMetrics
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.metrics import counted_in
from sparkawait.secrets import Secret
from sparkawait.spark.job_limits import JobLimits
from sparkawait.spark.limit_server import RunningServer, server_here
from sparkawait.spark.progress import Progress
from sparkawait.spark.remote import remote_owner, remote_owner_of
from sparkawait.spark.reports import NO_REPORTS, Arriving, Report, Reports, in_errors
from sparkawait.spark.screens import Spark
from sparkawait.spark.session import Session, is_connect
from sparkawait.spark.tally import Tally, weakly

__all__ = ["Job", "job", "reports_of"]

_logger = logging.getLogger("sparkawait")
_PATIENCE = 1.0
"""Seconds after which the thread that takes reports looks whether anybody wants them."""
_MOST_TASKS = 100_000
_EVENTS_SECONDS = 10
"""How long it is waited for Spark to note the tasks that have ended."""


class Job:
    """What the calls of an application do, and how to end them.

    Made by `sparkawait.job`.
    """

    def __init__(self, owner: Tally) -> None:
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
        before `sparkawait.job` was called are known once one has ended. On Spark Connect it ends
        all actions of the session.
        """
        self._owner.catch_up()
        return self._owner.actions.stop()

    def __repr__(self) -> str:
        """Says what runs, a line for each action."""
        running = self.progress
        return "\n".join(map(str, running)) if running else "sparkawait: no calls now"


def job(spark: SparkSession, *, server: str | Secret | None = None) -> Job:
    """Returns the owner of all calls of an application: their numbers, and how to end them.

    Call it first. On a cluster it starts the server that also has the limits of the job, at the
    address ``spark.driver.bindAddress`` and the port ``spark.sparkawait.port``, or any that is
    free.

    On Spark Connect it knows the calls that are written after it. Without a `server` they count
    when their tasks have ended, where the session keeps what workers log
    (``spark.sql.pyspark.worker.logging.enabled``, Spark 4.1). ``metrics["at_least"]`` tells whether
    there may have been more calls: always without a `server`, as killed workers leave no log.

    Args:
        spark: A session; all classic sessions of an application have the same owner.
        server: On Spark Connect, a Redis that the executors and this process reach, for live
            numbers: ``redis://..`` or ``rediss://..``. The address travels with the function; with
            ``server=sa.secret("REPORTS_URL")`` workers and this process look it up.

    Raises:
        ConfigurationError: If `spark` is not a session, the port that was chosen cannot be used, or
            the `server` does not answer. A classic session takes no `server`.

    Examples:
        >>> job = sa.job(spark)  # doctest: +SKIP
        >>> sa.unordered_wait(df, look_up).write.parquet("/data/found")  # doctest: +SKIP
        >>> job.metrics["attempts"], job.metrics["functions"]["look_up"]["failed"]  # doctest: +SKIP
        (50000, 13)
        >>> job.stop()  # from another thread, or in another cell  # doctest: +SKIP
        1
    """
    if is_connect(spark):
        return Job(remote_owner(spark, server))
    if not hasattr(spark, "sparkContext"):
        msg = f"`spark` must be a SparkSession, got `{type(spark).__name__}`"
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    if server is not None:
        msg = "`server` of `job` is for Spark Connect: tasks of a classic session reach the driver"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
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
        remote = None if spark is None else remote_owner_of(spark)
        if remote is not None:
            _tell_of_limits(plan, remote.limits)
        return (before or (NO_REPORTS if remote is None else remote.reports)).then(None)
    owner = _owner_of(spark)
    owner.listen(session, starts=False)
    _tell_of_limits(plan, owner.limits)
    return (before or owner.reports).then(None if counted is None else owner.counts_in(counted))


def _tell_of_limits(plan: Plan, limits: JobLimits) -> None:
    """Tells of the limits of a call that is written."""
    for each in plan.operators:
        if limits_of(each.options):
            limits.know(each)


_OWNERS: weakref.WeakKeyDictionary[Any, Owner] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def _owner_of(spark: SparkSession) -> Owner:
    context = spark.sparkContext
    with _LOCK:
        owner = _OWNERS.get(context)
        if owner is None:
            owner = _OWNERS[context] = Owner(spark)
        return owner


class Owner(Tally):
    """Takes the reports of all tasks of an application, whose driver is this process.

    Args:
        spark: A session of the application.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Registers an accumulator, and listens nowhere yet."""
        self._is_on_one_host = Session(spark).is_on_one_host
        super().__init__(Spark(spark), is_on_one_host=self._is_on_one_host)
        self._in_errors: set[str] = set()
        self._context = weakref.ref(spark.sparkContext)
        arriving = Arriving(weakly(self.take))
        accumulator = spark.sparkContext.accumulator(cast("list[Report]", []), arriving)
        self.reports = Reports(accumulator, None, mark=uuid4().hex)
        self._server: RunningServer | None = None
        self._starting, self._reading = threading.Lock(), threading.Lock()

    def listen(self, session: Session, *, starts: bool) -> None:
        """Takes reports at the server of the application, if there is one.

        Args:
            session: A session of the application.
            starts: Whether to start the server on a cluster; on one host, where it opens no port,
                it is started in any case.
        """
        with self._starting:
            if self._server is not None:
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
            self._server, self.reports.address = found, found.address
        self.listen_to(_looks_at(found), self._take_published)

    def _take_published(self, running: RunningServer) -> None:
        """Takes the reports that have come to the server."""
        # Who looks at the sums has those that another thread has just begun to take.
        with self._reading:
            for text in running.server.take_published():
                self.take_text(text)

    def catch_up(self) -> None:
        """Takes the reports that have come, and those of tasks that failed and could send none."""
        if self._server is not None:
            self._take_published(self._server)
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
            found = list(in_errors(_errors_of_tasks(context), self.reports.mark))
            for report in found:
                if report["task"] not in self._in_errors:
                    self.take(report)
            # What Spark has forgotten does not come again.
            self._in_errors = {report["task"] for report in found}
        except Py4JError as error:
            _logger.warning("the metrics of failed tasks cannot be read from this Spark: %s", error)


def _looks_at(running: RunningServer) -> Iterator[RunningServer]:
    """Yields the server whenever something has come, and now and then."""
    while True:
        running.server.wait_published(_PATIENCE)
        yield running


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
