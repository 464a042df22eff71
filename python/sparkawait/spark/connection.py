# SPDX-License-Identifier: Apache-2.0
"""Notices that Spark no longer wants the output of a task.

When a task is killed, or a ``LIMIT`` has enough rows, the JVM closes its end of the worker's
socket. A worker that neither reads nor writes, since all of its calls are in flight, would not
notice before the next call ends. So a thread waits for the hang-up and interrupts the task thread,
as Ctrl-C would. To be used on the task thread.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interrupted_by_hang_up"]

_WORKER_MODULE = "pyspark.worker"
# What poll reports without being asked; and, on Linux, that the peer closed its end of a TCP
# connection, which else is seen by reading only.
_HANG_UP = getattr(select, "POLLRDHUP", 0)


@contextmanager
def interrupted_by_hang_up() -> Iterator[None]:
    """Raises KeyboardInterrupt in the body once Spark has closed the worker's connection.

    Does nothing where there is no such connection, or the caller is not on the main thread.
    """
    descriptor = _connection(sys._getframe())  # noqa: SLF001 - the worker passes it to nobody
    is_main = threading.current_thread() is threading.main_thread()
    if descriptor is None or not is_main or not hasattr(select, "poll"):
        yield
        return
    wake_reader, wake_writer = os.pipe()
    thread = threading.Thread(
        target=_watch, args=(descriptor, wake_reader), name="sparkawait-connection", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        # The reader's end is closed by the thread, which may be polling it.
        os.close(wake_writer)


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


def _connection(frame: FrameType | None) -> int | None:
    """Finds the descriptor of the stream to the JVM, an argument of the worker's main function."""
    while frame is not None:
        if frame.f_globals.get("__name__") == _WORKER_MODULE and "outfile" in frame.f_locals:
            try:
                return int(frame.f_locals["outfile"].fileno())
            except (AttributeError, OSError, ValueError):
                return None
        frame = frame.f_back
    return None
