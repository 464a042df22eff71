# SPDX-License-Identifier: Apache-2.0
"""Jobs of Spark that end when nobody waits for them any more, and with them their calls.

An interrupt ends what waits on the driver, and Spark's jobs go on: its own cost nothing, calls do.
PySpark means to cancel all jobs at a Ctrl-C. But its handler asks over the connection that waits
for an action just then, and that breaks. A kernel of notebooks takes the handler away, Spark
Connect has none, and other exceptions, such as a time limit, never had one.

```text
  write_once, send, split, preview --> wait_for:     a tag on their jobs, cancelled if nobody waits
                                                     for them any more
  a cell of a notebook, of IPython --> watch:        a tag on the jobs of the cell, cancelled if
                                                     the cell was interrupted
  a script, a shell of Python      --> watch:        a handler of Ctrl-C that cancels the jobs of
                                                     the application, or of the client
```

On the driver. A tag belongs to the thread that starts a job, so other threads and cells keep
theirs, and streaming queries theirs, too. Tags are those of SPARK-43952 (3.5), and on Spark Connect
those of the client.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from sparkawait.spark.reports import OWN_TAG
from sparkawait.spark.session import is_connect

__all__ = ["is_cancelled", "wait_for", "watch"]

_T = TypeVar("_T")
_logger = logging.getLogger("sparkawait")
_PATIENCE = 5.0
"""Seconds in which jobs are looked for; a driver that is gone does not answer."""
_PAUSE = 0.2
"""Seconds between two looks."""


_CANCELLED: deque[str] = deque(maxlen=1_000)
"""Tags of what nobody waits for any more."""


def is_cancelled(tag: str) -> bool:
    """Tells whether jobs with this tag of ours are to end, also those that begin later."""
    return tag in _CANCELLED


def wait_for(spark: SparkSession, action: Callable[[], _T]) -> _T:
    """Returns what an action of Spark comes to; ends its jobs if that is not waited for.

    The action is carried out in a thread of its own, with the tags, the pool and the group of this
    one. So an interrupt hits a thread that only waits. In the middle of a command to the JVM, it
    has Py4J close connections, and PySpark may wait in vain for another.
    """
    tag = _Tag(spark)
    future: Future[_T] = Future()

    def run() -> None:
        tag.put_on()
        # An interrupt before this cancels the action; a later one finds the tag on its jobs.
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)

    _thread_of(spark, run).start()
    try:
        return future.result()
    finally:
        if not future.cancel() and not future.done():
            tag.cancel()


def _thread_of(spark: SparkSession, run: Callable[[], None]) -> threading.Thread:
    """Returns a thread whose jobs have the properties of those of this one."""
    if not is_connect(spark):
        return InheritableThread(target=run, name="sparkawait-action", daemon=True)
    tags = set(spark.getTags())

    def with_tags() -> None:
        for tag in tags:
            spark.addTag(tag)
        run()

    return threading.Thread(target=with_tags, name="sparkawait-action", daemon=True)


class _Tag:
    """A tag on the jobs that this thread starts."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._name = f"{OWN_TAG}{uuid.uuid4().hex}"
        self._is_on = False

    def put_on(self) -> None:
        """Puts it on all jobs that this thread starts from now on."""
        # Where Spark lets nobody do so, jobs go on as they always did.
        with contextlib.suppress(Exception):
            if is_connect(self._spark):
                self._spark.addTag(self._name)
            else:
                self._spark.sparkContext.addJobTag(self._name)
            self._is_on = True

    def take_off(self) -> None:
        """Leaves later jobs of this thread alone."""
        if not self._is_on:
            return
        self._is_on = False
        with contextlib.suppress(Exception):
            if is_connect(self._spark):
                self._spark.removeTag(self._name)
            else:
                self._spark.sparkContext.removeJobTag(self._name)

    def cancel(self) -> int:
        """Cancels the jobs that have it; returns how many there were, as far as Spark tells."""
        if not self._is_on:
            return 0
        _CANCELLED.append(self._name)
        if is_connect(self._spark):
            return _asked(lambda: len(self._spark.interruptTag(self._name)))
        if _left_in_the_middle(self._spark.sparkContext):
            # Its thread in the JVM has the tag, and no other has.
            self._is_on = False
        return _asked(lambda: _cancel_jobs(self._spark, self._name))


def _cancel_jobs(spark: SparkSession, tag: str | None) -> int:
    """Cancels jobs of a classic session: those that have a tag, or all but those of streams."""
    context: Any = spark.sparkContext
    scala = context._jsc.sc()  # noqa: SLF001 - PySpark tells nothing of the tags of a job
    store, count = scala.statusStore(), 0
    of_streams = _runs_of_streams(spark)
    for job_id in context.statusTracker().getActiveJobsIds():
        job = store.job(job_id)
        group = job.jobGroup()
        # A streaming query has the tags of the thread that started it, and goes on.
        is_of_stream = group.isDefined() and str(group.get()) in of_streams
        if (tag is None or job.jobTags().contains(tag)) and not is_of_stream:
            scala.cancelJob(job_id)
            count += 1
    return count


def _left_in_the_middle(context: Any) -> bool:
    """Gives the connection of this thread to the JVM up if an interrupt left it in a command.

    It would take the answer to that for the answer to the next command, and wait for it.
    """
    client = context._gateway._gateway_client  # noqa: SLF001 - Py4J has no way to say so
    get: Any = getattr(client, "get_thread_connection", None)
    connection = None if get is None else get()
    # Between two commands it is in the deque, which holds it.
    if connection is None or connection in client.deque:
        return False
    connection.close(reset=True)
    return True


def _runs_of_streams(spark: SparkSession) -> set[str]:
    """Returns the ids of the runs of all streaming queries of the application."""
    session: Any = spark
    queries = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
    return {str(query.runId()) for query in queries.values()}


def _asked(cancel: Callable[[], int], *, looks_again: bool = True) -> int:
    """Cancels jobs in threads of their own, which have connections of their own to Spark.

    Py4J closes connections at an interrupt, and may take a new one for one of these: it breaks, or
    its answer never comes. Then another is made. What was interrupted may start its job only now,
    so it is looked for once more for a while where there is none.

    Args:
        cancel: Returns how many there were.
        looks_again: Whether a job that begins now can only be one of these.
    """
    answers: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()

    def attempt() -> None:
        try:
            answers.put(cancel())
        except Exception as error:  # noqa: BLE001 - the application may have ended by then
            answers.put(error)

    def look_again() -> None:
        while time.monotonic() < end:
            time.sleep(_PAUSE)
            with contextlib.suppress(Exception):
                if cancel():
                    return

    end = time.monotonic() + _PATIENCE
    error: object = "Spark does not answer"
    while time.monotonic() < end:
        threading.Thread(target=attempt, name="sparkawait-cancel", daemon=True).start()
        try:
            answer = answers.get(timeout=_PATIENCE / 4)
        except queue.Empty:
            continue
        if isinstance(answer, int):
            if answer == 0 and looks_again:
                threading.Thread(target=look_again, name="sparkawait-cancel", daemon=True).start()
            return answer
        error = answer
        time.sleep(_PAUSE)
    _logger.warning("jobs of Spark that nobody waits for were not cancelled: %s", error)
    return 0


class _Cells:
    """Puts a tag on the jobs of each cell, and cancels those of a cell that was interrupted."""

    def __init__(self) -> None:
        self.spark: SparkSession | None = None
        self._tag: _Tag | None = None

    def begin(self, *_: object) -> None:
        """A cell begins, or the first call is written in it."""
        if self.spark is None or self._tag is not None:
            return
        self._tag = _Tag(self.spark)
        self._tag.put_on()

    @property
    def is_running(self) -> bool:
        """Whether a cell runs whose jobs have a tag."""
        return self._tag is not None

    def end(self, result: Any) -> None:
        """A cell has ended; `result` is IPython's."""
        tag, self._tag = self._tag, None
        if tag is None:
            return
        if _is_interrupt(result.error_in_exec):
            _tell(tag.cancel(), " of this cell")
        tag.take_off()


def _tell(count: int, whose: str = "") -> None:
    if count:
        sys.stderr.write(
            f"sparkawait: cancelled {count} {'job' if count == 1 else 'jobs'}{whose}\n"
        )


def _is_interrupt(error: BaseException | None) -> bool:
    """Tells whether it is an interrupt, or came of one.

    What PySpark does at its end may fail then, since Py4J is about to close connections.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


_CELLS = _Cells()
_WATCHED: set[int] = set()
_CANCELLING = threading.Lock()


def watch(spark: SparkSession) -> None:
    """Has jobs end that are interrupted from now on: those of a cell, or of a script.

    Args:
        spark: The session of a call that was written in the cell, or in the script.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    shell = _shell()
    _CELLS.spark = spark
    if shell is not None:
        _CELLS.begin()
        if id(shell) not in _WATCHED:
            _WATCHED.add(id(shell))
            shell.events.register("pre_run_cell", _CELLS.begin)
            shell.events.register("post_run_cell", _CELLS.end)
    handler = signal.getsignal(signal.SIGINT)
    if handler is not _interrupted and _is_in_vain(handler, spark, shell):
        signal.signal(signal.SIGINT, _interrupted)


def _is_in_vain(handler: Any, spark: SparkSession, shell: Any) -> bool:
    """Tells whether a handler of Ctrl-C leaves the jobs alone that this thread waits for.

    That is PySpark's, and, on Spark Connect, Python's own. One of the user's stays.
    """
    if is_connect(spark):
        return shell is None and handler is signal.default_int_handler
    return str(getattr(handler, "__module__", "")).startswith("pyspark.")


def _interrupted(*_: object) -> None:
    """Ends what this thread waits for, and its jobs in Spark.

    Raises:
        KeyboardInterrupt: As each handler of Ctrl-C does.
    """
    spark = _CELLS.spark
    # The end of a cell cancels its jobs. At the second Ctrl-C nothing is waited for.
    if spark is not None and not _CELLS.is_running and not _CANCELLING.locked():
        with _CANCELLING, contextlib.suppress(Exception):
            _tell(_cancel_all(spark))
    raise KeyboardInterrupt


def _cancel_all(spark: Any) -> int:
    """Cancels what runs for a script; a job that begins later may be one that it cleans up by."""
    if is_connect(spark):
        return _asked(lambda: len(spark.interruptAll()), looks_again=False)
    if spark.sparkContext._jsc is None:  # noqa: SLF001 - there is no other sign that it was stopped
        return 0
    _left_in_the_middle(spark.sparkContext)
    return _asked(lambda: _cancel_jobs(spark, None), looks_again=False)


def _shell() -> Any:
    """Returns the shell of IPython that this process runs, if it does; does not import it."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()
