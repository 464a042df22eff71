# SPDX-License-Identifier: Apache-2.0
"""Finds functions that block the event loop, on which everything else of the process waits.

One daemon thread per loop, which exists only while tasks are open. It asks the loop for a sign
of life and, if none comes, looks at the stack of the loop's thread. Nothing of Python's can end
what blocks a thread; what can be ended is the task.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from time import monotonic
from types import CodeType, FrameType

from sparkawait._worker import address_space
from sparkawait.exceptions import AsyncFunctionError, ErrorKind, add_note

# -- what the thread of an event loop is doing, told by its stack. Any thread may look

_MACHINERY = {"asyncio", "concurrent", "selectors", "sparkawait", "threading", "uvloop"}
"""Packages that run what users wrote; a loop that is in nothing else waits, or works for us."""
CALLBACK = "a callback"
"""Names what no function of a task called: a background task, a handler of signals or logs."""


@dataclass(frozen=True)
class Blocking:
    """Code of a user that a loop is in.

    Attributes:
        name: The function of the task that called it, or `CALLBACK`.
        place: The file and the line of the outermost frame that the user wrote.
        stack: The frames from there on, as a traceback shows them.
    """

    name: str
    place: str
    stack: str

    def __str__(self) -> str:
        """Returns the name and the place."""
        return f"`{self.name}` at {self.place}"


def blocking_of(thread: threading.Thread, entries: Collection[CodeType]) -> Blocking | None:
    """Returns the user's code that `thread` is in; ``None`` if it is in none.

    Args:
        thread: The thread of a loop.
        entries: The codes that call functions of users; their frames have a local
            ``function_name``.
    """
    frames: list[FrameType] = []
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    name, first = CALLBACK, 0
    for index, each in enumerate(frames):
        if each.f_code in entries:
            name, first = str(each.f_locals.get("function_name", "?")), index + 1
    users = frames[first:]
    while users and _package(users[0]) in _MACHINERY:
        users.pop(0)
    if not users:
        return None
    place = f"{users[0].f_code.co_filename}:{users[0].f_lineno}"
    lines = traceback.StackSummary.extract((each, each.f_lineno) for each in users).format()
    return Blocking(name, place, "".join(lines).rstrip())


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


_logger = logging.getLogger("sparkawait")
BLOCKED_SECONDS = 1.0
"""A loop that runs no callback for this long is reported as blocked."""
WAY_OUT = (
    "write a plain `def`, which is called in threads, or `await asyncio.to_thread(..)` for what"
    " blocks, or use an async client"
)


@dataclass(eq=False)
class Watch:
    """A task whose functions run on a loop.

    Attributes:
        entries: The codes that call its functions, see `blocking_of`.
        timeout: Seconds that the loop may be blocked; ``None`` for no bound.
        fail: Fails the task, from any thread; called once at most.
        has_failed: Whether it was called: the loop stood still for longer than `timeout`.
    """

    entries: frozenset[CodeType]
    timeout: float | None
    fail: Callable[[BaseException], None]
    has_failed: bool = False


class Watchdog:
    """Reports each function that blocks `loop`, once by name, and ends tasks that it blocks.

    Args:
        loop: The loop to watch.
        thread: The thread that runs it.
        seconds: How long without a sign of life is too long, and how often one is asked for.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: threading.Thread,
        seconds: float = BLOCKED_SECONDS,
    ) -> None:
        """Starts nothing yet."""
        self._loop = loop
        self._thread = thread
        self._seconds = seconds
        self._lock = threading.Lock()
        self._watches: list[Watch] = []
        self._entries: set[CodeType] = set()
        self._stopped = threading.Event()
        self._reported: set[str] = set()

    def watch(self, watch: Watch) -> None:
        """Looks after one more open task."""
        with self._lock:
            self._entries |= watch.entries
            if not self._watches:
                self._stopped = threading.Event()
                thread = threading.Thread(
                    target=self._run, args=(self._stopped,), name="sparkawait-watchdog", daemon=True
                )
                address_space.start(thread, runs_foreign_code=False)
            self._watches.append(watch)

    def unwatch(self, watch: Watch) -> None:
        """Looks after one open task less, if it did; the thread ends with the last."""
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)
                if not self._watches:
                    self._stopped.set()

    def blocking_in(self, entries: frozenset[CodeType]) -> Blocking | None:
        """Returns the code of a user that the loop is in just now, if any; see `blocking_of`."""
        return blocking_of(self._thread, self._entries | entries)

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.wait(min([self._seconds, *self._timeouts()])):
            alive = threading.Event()
            asked = monotonic()
            try:
                self._loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # the loop is closed
                return
            reported = False
            while not alive.wait(self._patience(monotonic() - asked)):
                if stopped.is_set():
                    return
                silent = monotonic() - asked
                if silent >= self._seconds and not reported:
                    reported = True
                    self._report()
                self._end_tasks(silent)

    def _timeouts(self) -> list[float]:
        with self._lock:
            return [each.timeout for each in self._watches if each.timeout is not None]

    def _patience(self, silent: float) -> float:
        """Returns how long to wait before the next look at a loop that has been `silent`."""
        to_come = (each - silent for each in [self._seconds, *self._timeouts()] if each > silent)
        return min(to_come, default=self._seconds)

    def _report(self) -> None:
        blocking = self.blocking_in(frozenset())
        if blocking is None:
            return  # a user's function is not what the loop is in
        key = blocking.place if blocking.name == CALLBACK else blocking.name
        if key in self._reported:
            return
        self._reported.add(key)
        _logger.warning(
            "async function blocks the event loop for more than %g s, all calls wait for it:"
            " %s at %s; %s\n%s",
            self._seconds,
            blocking.name,
            blocking.place,
            WAY_OUT,
            blocking.stack,
        )

    def _end_tasks(self, silent: float) -> None:
        with self._lock:
            ended = [each for each in self._watches if (each.timeout or silent + 1) <= silent]
            for each in ended:
                self._watches.remove(each)
            if ended and not self._watches:
                self._stopped.set()
        for each in ended:
            each.has_failed = True
            each.fail(_error(each.timeout or 0, self.blocking_in(frozenset())))


def _error(seconds: float, blocking: Blocking | None) -> AsyncFunctionError:
    """Says what blocked a loop for longer than the task permits."""
    what = "something" if blocking is None else str(blocking)
    msg = (
        f"{what} blocked the event loop for {seconds:g} s, its `blocked_loop_timeout`, and"
        f" no other call went on; {WAY_OUT}"
    )
    error = AsyncFunctionError(msg, ErrorKind.LOOP_BLOCKED)
    if blocking is not None:
        add_note(error, f"the stack of the event loop's thread:\n{blocking.stack}")
    return error
