# SPDX-License-Identifier: Apache-2.0
"""The worker's connection to the JVM, through which PySpark passes batches.

Results must not lie in its buffer, nor in that of TCP, while calls are awaited. And when a task is
killed, or a ``LIMIT`` has enough rows, the JVM closes its end: a worker that neither reads nor
writes, since all of its calls are in flight, would not notice before the next call ends. So a
thread waits for the hang-up and interrupts the task thread, as Ctrl-C would. To be used on the task
thread.
"""

from __future__ import annotations

import functools
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import BinaryIO, NoReturn, cast

from sparkawait._worker import address_space
from sparkawait._worker.holder import holder

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
