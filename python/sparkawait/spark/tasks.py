# SPDX-License-Identifier: Apache-2.0
"""What runs in the executor: one operator over the record batches of one partition.

Made on the driver, pickled, and called once per task on the task thread.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

import sparkawait.arrow
from sparkawait._checks import refuse
from sparkawait._plan.plan import Chain
from sparkawait._worker import address_space
from sparkawait._worker.holder import holder
from sparkawait._worker.metrics import by_operator
from sparkawait._worker.replies import write_to_standard_error
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.outcomes import CarryOver
from sparkawait.spark.reports import NO_REPORTS, Reports
from sparkawait.spark.shipment import Shipment, told_to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# -- the worker's connection to the JVM, through which PySpark passes batches
#
# Results must not lie in its buffer, nor in that of TCP, while calls are awaited. And when a task
# is
# killed, or a ``LIMIT`` has enough rows, the JVM closes its end: a worker that neither reads nor
# writes, since all of its calls are in flight, would not notice before the next call ends. So a
# thread waits for the hang-up and interrupts the task thread, as Ctrl-C would. To be used on the
# task
# thread.


_logger = logging.getLogger("sparkawait")
_WORKER_MODULE = "pyspark.worker"
# What poll reports without being asked; and, on Linux, that the peer closed its end of a TCP
# connection, which else is seen by reading only.
_HANG_UP = getattr(select, "POLLRDHUP", 0)


class Connection:
    """The stream to the JVM, or nothing where there is none."""

    def __init__(self, stream: BinaryIO | None) -> None:
        """Wraps `stream`."""
        self._stream = stream
        self._send_at_once()

    @staticmethod
    def of_this_worker() -> Connection:
        """Finds the stream, which the worker passes to nobody, among the callers' variables."""
        frame: FrameType | None = sys._getframe()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            # Not by `__name__`: without Spark's daemon the worker is the main module.
            module = getattr(frame.f_globals.get("__spec__"), "name", None)
            if module == _WORKER_MODULE and "outfile" in frame.f_locals:
                return Connection(cast("BinaryIO", frame.f_locals["outfile"]))
            frame = frame.f_back
        _say_that_there_is_none()
        return Connection(None)

    def flush(self) -> None:
        """Sends what PySpark has written, which else waits for more to fill a buffer."""
        if self._stream is not None:
            self._stream.flush()

    @contextmanager
    def interrupted_by_hang_up(self) -> Generator[None, None, None]:
        """Raises KeyboardInterrupt in the body once the JVM has closed the connection.

        Does nothing without a connection that can be watched, or if the caller is not on the main
        thread.
        """
        descriptor = self._descriptor()
        is_main = threading.current_thread() is threading.main_thread()
        if descriptor is None or not is_main or not hasattr(select, "poll"):
            yield
            return
        wake_reader, wake_writer = os.pipe()
        watcher = threading.Thread(
            target=_watch,
            args=(descriptor, wake_reader),
            name="sparkawait-connection",
            daemon=True,
        )
        try:
            address_space.start(watcher, runs_foreign_code=False)
        except BaseException:
            os.close(wake_reader)
            os.close(wake_writer)
            raise
        try:
            yield
        finally:
            # The reader's end is closed by the thread, which may be polling it.
            os.close(wake_writer)

    def end_behind_tasks(self) -> None:
        """Has the worker end when nobody needs the tasks that it holds any more.

        PySpark ends a worker as soon as Spark has hung up: because a query was stopped within a
        micro-batch, or the worker was idle. A query that is started again goes on with the tasks.
        Does nothing where there is no worker.
        """
        if self._stream is not None:
            _end_behind_tasks()

    def has_hung_up(self) -> bool:
        """Tells whether the JVM has closed the connection, as far as that can be seen."""
        descriptor = self._descriptor()
        if descriptor is None or not hasattr(select, "poll"):
            return False
        poll = select.poll()
        poll.register(descriptor, _HANG_UP)
        return bool(poll.poll(0))

    def _send_at_once(self) -> None:
        """Has TCP send what is flushed, also before the JVM has acknowledged what came before.

        Else one is waited for that the JVM delays, since it has nothing to say: 40 ms on Linux.
        """
        descriptor = self._descriptor()
        if descriptor is None:
            return
        is_blocking = os.get_blocking(descriptor)
        copy = os.dup(descriptor)
        try:
            connection = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)  # no socket
            return
        # It shares its mode with the stream, and a default timeout changes it.
        os.set_blocking(descriptor, is_blocking)
        with connection, suppress(OSError):  # one that knows no delay
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _descriptor(self) -> int | None:
        if self._stream is None:
            return None
        try:
            return self._stream.fileno()
        except (OSError, ValueError):  # without Spark's daemon, it hides its socket
            return None


@functools.cache
def _end_behind_tasks() -> None:
    end = os._exit

    def end_later(status: int) -> NoReturn:
        # A process that this one has forked holds none.
        holder().outlive_their_use()
        end(status)

    # PySpark ends the processes that its daemon forks in this way, and runs nothing before.
    os._exit = end_later


@functools.cache
def _say_that_there_is_none() -> None:
    _logger.warning(
        "this version of PySpark keeps its connection elsewhere: results may wait for later ones"
        " in its buffer, and calls of a killed task end with the next batch"
    )


def _watch(descriptor: int, wake_reader: int) -> None:
    poll = select.poll()
    poll.register(descriptor, _HANG_UP)
    poll.register(wake_reader, select.POLLIN)
    try:
        ready = {ready for ready, _ in poll.poll()}
    finally:
        os.close(wake_reader)
    if wake_reader not in ready:
        # A signal rather than `interrupt_main`, because it ends a blocking write as well.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


# -- the task


HEARTBEAT_SECONDS = 0.25
"""A batch without rows is sent after so long without output.

Spark's task thread notices that its task was killed when a batch arrives; without one it sits in a
read until Spark ends the Python worker, ``spark.python.task.killTimeout`` (2 s) and more later.
"""

JVM_SECONDS = 0.0001
"""What a batch costs on the other side of the connection, however few rows it has."""


class PartitionTask(Shipment):
    """The function that is given to ``mapInArrow``.

    Args:
        chain: The call, or the calls of a chain.
        names: Names to give to the input columns, further ones are left out; ``None`` if they
            have the right ones.
        result_types: Types to cast columns to that the last call returned, by name.
        reports: How the driver learns of its calls.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        names: Sequence[str] | None = None,
        result_types: Mapping[str, pa.DataType] | None = None,
        reports: Reports = NO_REPORTS,
    ) -> None:
        """Starts nothing: this is the driver."""
        # What `explain()` shows.
        self.__name__ = chain.name
        self._chain = chain
        self._names = names
        self._result_types = result_types or {}
        self._reports = reports

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the output of the partition whose rows `batches` are."""
        output = self.output(batches)
        if not self._result_types:
            return output
        return (with_types(batch, self._result_types) for batch in output)

    def output(
        self, batches: Iterator[pa.RecordBatch], totals: dict[str, Any] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields what the chain puts out, as it is; `totals` gets what it has counted."""
        if self._names is not None:
            names = self._names
            batches = (renamed(batch, names) for batch in batches)
        return run_task(
            self._chain, batches, self._reports, heartbeat=HEARTBEAT_SECONDS, totals=totals
        )


def renamed(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Returns the first columns of `batch` under other names."""
    if not names:  # still has its rows
        buffers: list[Any] = [None]
        nothing: Any = pa.Array.from_buffers(pa.struct([]), batch.num_rows, buffers)
        return pa.RecordBatch.from_struct_array(nothing)
    return pa.RecordBatch.from_arrays(batch.columns[: len(names)], names=list(names))


def with_types(batch: pa.RecordBatch, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """Returns `batch` with some of its columns, by name, cast to other types."""
    fields, arrays = list(batch.schema), list(batch.columns)
    for index, field in enumerate(fields):
        wanted = types.get(field.name)
        if wanted is not None and wanted != field.type:
            fields[index] = field.with_type(wanted)
            arrays[index] = arrays[index].cast(wanted)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def run_task(
    chain: Chain,
    batches: Iterator[pa.RecordBatch],
    reports: Reports = NO_REPORTS,
    *,
    heartbeat: float | None = None,
    totals: dict[str, Any] | None = None,
    on_end: Callable[[int], None] = lambda _left_out: None,
) -> Iterator[pa.RecordBatch]:
    """Runs `chain` over `batches` in a Spark task; `totals` gets what it has counted, at the end.

    `on_end` is called as that of `sparkawait.arrow.run`.

    Closed early, or interrupted because Spark has hung up, it cancels every call in flight.
    """
    write_to_standard_error()
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    report = reports.of_task(chain)
    report.begin()
    ended = "stopped"
    connection = Connection.of_this_worker()
    output = sparkawait.arrow.run(
        chain,
        batches,
        partition=partition,
        stage=0 if context is None else context.stageId(),
        attempt=0 if context is None else context.attemptNumber(),
        heartbeat=heartbeat,
        consumer_seconds=JVM_SECONDS,
        on_metrics=report.update,
        on_end=on_end,
    )
    failure: Exception | None = None
    try:
        with connection.interrupted_by_hang_up(), closing(output), told_to_spark():
            for batch in output:
                yield batch
                connection.flush()
        ended = "succeeded"
    except Exception as error:
        # Spark has hung up, as after a `limit`; exceptions of functions are never bare.
        ended = "stopped" if isinstance(error, ConnectionError) else "failed"
        failure = error
        raise
    finally:
        report.end(ended, failure if ended == "failed" else None)
        if totals is not None:
            totals |= report.totals
        for name, counts in by_operator(chain, report.totals):
            # Channels are named by what is in the rows, which is nothing for a log.
            logged = json.dumps({key: counts[key] for key in counts if key != "channels"})
            _logger.info("%s, %s, %s: %s", name, _place(context), ended, logged)


def _place(context: TaskContext | None) -> str:
    """Returns the task and its run."""
    if context is None:
        return "partition 0"
    stage, partition = context.stageId(), context.partitionId()
    return f"stage {stage}, partition {partition}, attempt {context.attemptNumber()}"


# -- what a wait function returned, as the next one of a chain finds it.
#
# A DataFrame says nothing of how it was made that Spark Connect would tell, too; so the step is
# kept with the object that the user got. What is made of that, by ``select`` say, is another object
# and has none. To be called on the driver.

_ATTRIBUTE = "_sparkawait_step"


@dataclass(frozen=True)
class Carry:
    """How the rows of a query outlive their micro-batch.

    Attributes:
        carry_over: What the user said.
        by: The columns whose rows go to one shard; none for any.
    """

    carry_over: CarryOver
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Made:
    """The operators whose output a DataFrame is, and what they get.

    Attributes:
        source: The input of the first operator, with the hidden columns of all behind its own.
        chain: The calls.
        reports: How the driver learns of the calls.
        schema: What the last operator puts out.
        zone: The time zone of the session, which its types have.
        result_types: Types to cast columns to that the last call returned, by name.
        carry: How rows outlive their micro-batch, if they do.
    """

    source: DataFrame
    chain: Chain
    reports: Reports
    schema: StructType
    zone: str
    result_types: Mapping[str, pa.DataType]
    carry: Carry | None = None


def remember(df: DataFrame, step: Made) -> DataFrame:
    """Returns `df`, which now knows how it was made."""
    vars(df)[_ATTRIBUTE] = step
    return df


def step_of(df: DataFrame, zone: str) -> Made:
    """Returns how `df` was made.

    Args:
        df: What the user gave.
        zone: The time zone that the session has now.

    Raises:
        ConfigurationError: If it is not what a wait function returned, or the session's time zone
            was changed since then.
    """
    step: Any = vars(df).get(_ATTRIBUTE)
    if not isinstance(step, Made):
        msg = (
            "`chain` needs the DataFrame that a wait function returned, untouched; this one was"
            " made of it by something else, or of something else. Leave `chain` out, or select and"
            " filter after the last call"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    if step.zone != zone:
        msg = (
            f"`chain` needs one session time zone for all calls, got {step.zone} and then {zone};"
            " set it before the first of them"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    return step


def check_not_persisted(df: DataFrame) -> None:
    """Checks that `df`, which a chain computes by itself, is not kept: its calls were paid for.

    Raises:
        ConfigurationError: If it is.
    """
    if df.isStreaming:
        return
    level = df.storageLevel
    if level.useMemory or level.useDisk:
        refuse(
            "`chain` makes the calls of `df` once more, although it is persisted; leave `chain`"
            " out to read what is kept, or call `df.unpersist()`",
            ErrorKind.INPUT_INVALID,
        )
