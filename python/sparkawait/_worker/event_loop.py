# SPDX-License-Identifier: Apache-2.0
"""The asyncio loop on which all functions of a process run: one daemon thread, shared by its tasks.

Started when the first task needs it, never at import, because Spark forks its workers. It stays for
the life of the process, so that connection pools bound to it serve one task after another.
`event_loop_thread` may be called from any thread.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from sparkawait._worker import address_space
from sparkawait._worker.blocking_calls import DaemonThreads
from sparkawait._worker.remarks import RustLines
from sparkawait._worker.shared_clients import SharedClients
from sparkawait._worker.watchdog import Watchdog
from sparkawait.exceptions import ErrorKind, OperatorStateError

_T = TypeVar("_T")
_logger = logging.getLogger("sparkawait")
_STOP_SECONDS = 1.0
"""How long the exit of the interpreter waits for the thread."""
_CLOSE_SECONDS = 0.5
"""How much of that shared clients get to close."""
_RETIRE_SECONDS = 5.0
"""How long a thread that was abandoned waits for what runs on its loop once that is free again."""


_BLOCKING_CALLS = 256
"""Threads of `asyncio.to_thread` at most, for all functions of the process; they start as needed.

asyncio's own pool has 32 at most, and 6 on two cores: calls of blocking clients would wait for one
another in silence.
"""
_FEW_CALLS = 8


class EventLoopThread:
    """A loop and the daemon thread that runs it, with uvloop when it is installed.

    Attributes:
        loop: The loop.
        pool: Threads for what blocks.
        clients: What functions share.
        thread: The thread.
        watchdog: Looks whether the loop is alive.
    """

    def __init__(self) -> None:
        """Starts the thread."""
        self.loop = _new_event_loop()
        # Where the address space is bounded, there may be no room for so many stacks.
        is_bounded = address_space.bound_mb() is not None
        self.pool = DaemonThreads(_FEW_CALLS if is_bounded else _BLOCKING_CALLS)
        self.loop.set_default_executor(self.pool)
        self.clients = SharedClients(self.loop, self.pool)
        self._rust_lines = RustLines(self.loop)
        self.thread = threading.Thread(target=self._run, name="sparkawait-loop", daemon=True)
        address_space.start(self.thread)
        self.watchdog = Watchdog(self.loop, self.thread)
        self._lock = threading.Lock()
        self._tasks = 0
        self._is_abandoned = False

    def submit(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Runs `coroutine` on the loop, soon.

        Args:
            coroutine: A coroutine of ours, which lets no exception pass that would end the loop.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def is_current(self) -> bool:
        """Tells whether the caller runs on the loop's thread, where waiting would dead-lock."""
        return threading.current_thread() is self.thread

    def responds(self, seconds: float) -> bool:
        """Tells whether the loop runs a callback within `seconds`."""
        alive = threading.Event()
        self.loop.call_soon_threadsafe(alive.set)
        return alive.wait(seconds)

    def enter(self) -> None:
        """Counts a task that runs functions on the loop."""
        with self._lock:
            self._tasks += 1

    def leave(self) -> None:
        """Counts one task less; an abandoned thread ends after its last."""
        with self._lock:
            self._tasks -= 1
            ends = self._is_abandoned and self._tasks == 0
        if ends:
            self.submit(self._retire())

    def abandon(self) -> None:
        """Gives up a thread whose loop is blocked: later tasks of the process get another one.

        What blocks a thread cannot be ended. This one ends when the loop is free again and its last
        task has left; it is a daemon, so that the process does not wait for it.
        """
        with self._lock:
            self._is_abandoned = True
        with _lock:
            if _threads.get(os.getpid()) is self:
                del _threads[os.getpid()]

    def stop(self) -> None:
        """Closes shared clients and ends the thread. For the exit of the interpreter, and tests."""
        if self.thread.is_alive():
            self.submit(self._close_and_end())
        self.thread.join(_STOP_SECONDS)
        self._rust_lines.deliver()

    async def _retire(self) -> None:
        """Ends the loop after what runs on it, above all the functions' `close`, or some time."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            await asyncio.wait(rest, timeout=_RETIRE_SECONDS)
        await self._close_and_end()

    async def _close_and_end(self) -> None:
        closing = asyncio.ensure_future(self.clients.close())
        await asyncio.wait([closing], timeout=_CLOSE_SECONDS)
        self._end()

    def _run(self) -> None:
        _here.is_loop = True
        asyncio.set_event_loop(self.loop)
        self._ending = False
        while not self._ending:
            try:
                self.loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                # Raised by a callback or background task of the user's; other tasks need the loop.
                _logger.exception("exception in a callback on the event loop, which goes on")
        if self._is_abandoned:
            self.loop.close()

    def _end(self) -> None:
        self._ending = True
        self.loop.stop()


_here = threading.local()
"""Has an attribute ``is_loop`` in the threads that run loops."""
_threads: dict[int, EventLoopThread] = {}
"""By process id. A forked child keeps its parent's entry and never touches it: closing that loop
would take file descriptors out of the epoll set that both share."""
_lock = threading.Lock()


def event_loop_thread() -> EventLoopThread:
    """Returns the thread of this process, started if need be."""
    thread = _threads.get(os.getpid())
    if thread is None:
        with _lock:
            thread = _threads.get(os.getpid())
            if thread is None:
                thread = _threads[os.getpid()] = EventLoopThread()
    return thread


def check_may_wait() -> None:
    """Checks that the caller may wait for functions: their loop must not wait for itself.

    Raises:
        OperatorStateError: On the thread of a loop, in a coroutine, `open`, `close` or `timeout`.
    """
    if getattr(_here, "is_loop", False):
        msg = (
            "a wait function was used on the event loop that runs the functions, in a coroutine,"
            " `open`, `close` or `timeout`, and would wait for that loop for ever; use it in a"
            " thread: `await asyncio.to_thread(lambda: list(sparkawait.arrow.ordered_wait(..)))`"
        )
        raise OperatorStateError(msg, ErrorKind.LOOP_BLOCKED)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _renew_lock() -> None:
    """Replaces the lock in a forked child, where its holder does not exist."""
    global _lock  # noqa: PLW0603 - one lock per process
    _lock = threading.Lock()


def _stop() -> None:
    thread = _threads.get(os.getpid())
    if thread is not None:
        thread.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
atexit.register(_stop)
