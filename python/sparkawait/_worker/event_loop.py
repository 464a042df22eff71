# SPDX-License-Identifier: Apache-2.0
"""The asyncio loop on which all functions of a process run: one daemon thread, shared by its tasks.

Started when the first task needs it, never at import, because Spark forks its workers. It stays for
the life of the process, so that connection pools bound to it serve one task after another.
`event_loop_thread` may be called from any thread.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Coroutine, Hashable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from time import monotonic
from types import CodeType, FrameType
from typing import Any, TypeVar

from sparkawait._callables import is_async, place_of
from sparkawait._checks import shown
from sparkawait._worker import address_space
from sparkawait._worker.blocking_calls import DaemonThreads
from sparkawait._worker.replies import RustLines
from sparkawait.exceptions import (
    AsyncFunctionError,
    ConfigurationError,
    ErrorKind,
    OperatorStateError,
    add_note,
)

# -- finds functions that block the event loop, on which everything else of the process waits
#
# One daemon thread per loop, which exists only while tasks are open. It asks the loop for a sign
# of life and, if none comes, looks at the stack of the loop's thread. Nothing of Python's can end
# what blocks a thread; what can be ended is the task.


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


# -- clients that the tasks of a process share, for `FunctionContext.shared`
#
# ```text
#   first task asks --> made --> users 1, 2, .. --> the last has left --> idle for a minute -->
# closed
#                                       ^                                   |
#                                       +------- the next one asks ---------+
# ```
#
# One set for each event loop, since clients are bound to the loop that they were made on; a forked
# child has a loop, and so a set, of its own. Runs on the event loop thread only.


IDLE_SECONDS = 60.0
"""How long a client that no task uses is kept for the next one: more than lies between two
micro-batches, as long as Spark keeps a worker that has nothing to do."""


class SharedClients:
    """Clients by key, each with its users.

    Args:
        loop: The loop that they are used on.
        pool: Where a `close` that is a plain function is called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        """Starts empty."""
        self._loop = loop
        self._pool = pool
        self._clients: dict[Hashable, _Client] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def take(self, name: Hashable, factory: Callable[[], Any], user: Borrower) -> _Client:
        """Returns the client of that name, made by `factory` if there is none."""
        client = self._clients.get(name)
        if client is None:
            client = _Client(name, self._loop, factory)
            self._clients[name] = client
            if client.making is not None:
                client.making.add_done_callback(lambda _: self._forget_failed(client))
        client.stay()
        client.users.add(user)
        return client

    def leave(self, user: Borrower) -> None:
        """Notes that a task has ended; clients without another user are closed after a while."""
        for client in self._clients.values():
            if user in client.users:
                client.users.remove(user)
                if not client.users:
                    client.timer = self._loop.call_later(IDLE_SECONDS, self._expire, client)

    async def close(self) -> None:
        """Closes all of them: the loop is about to end."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.stay()
        closing = [self._close(client) for client in clients.values()]
        await asyncio.gather(*closing, *self._closing)

    def _expire(self, client: _Client) -> None:
        del self._clients[client.name]
        # Kept, because the loop holds tasks weakly.
        closing = self._loop.create_task(self._close(client))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close(self, client: _Client) -> None:
        try:
            made = client.made
            if client.making is not None:
                if not client.making.done():
                    client.making.cancel()
                    return
                made = client.making.result()
            close = getattr(made, "aclose", None) or getattr(made, "close", None)
            if close is None:
                return
            if inspect.iscoroutinefunction(close):
                await close()
                return
            closed = await self._loop.run_in_executor(self._pool, close)
            if inspect.isawaitable(closed):
                await closed
        except Exception:
            _logger.warning("a shared client could not be closed", exc_info=True)

    def _forget_failed(self, client: _Client) -> None:
        """Lets the next task try again, if the client could not be made."""
        made = client.making
        assert made is not None  # noqa: S101 - it is the one that is done
        failed = made.cancelled() or made.exception() is not None
        if failed and self._clients.get(client.name) is client:
            # Whatever has this name from now on is another one, with a time of its own.
            client.stay()
            del self._clients[client.name]


class _Client:
    """A client, or the task that makes it.

    Invariant: while its timer runs, it is in the table, without users.
    """

    __slots__ = ("made", "making", "name", "timer", "users")

    def __init__(
        self, name: Hashable, loop: asyncio.AbstractEventLoop, factory: Callable[[], Any]
    ) -> None:
        self.name = name
        self.users: set[Borrower] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.made: Any = factory()
        self.making: asyncio.Task[Any] | None = None
        if is_async(factory):
            # A task of its own, so that one that asks and is cancelled does not end it for others.
            self.making = loop.create_task(_awaited(self.made))

    def stay(self) -> None:
        """Stops the time after which it would be closed."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


async def _awaited(made: Any) -> Any:
    return await made


class Borrower:
    """A task of Spark, which uses shared clients.

    Args:
        clients: The clients.
        is_on_loop: Tells whether the caller runs on the loop of the clients.
    """

    def __init__(self, clients: SharedClients, is_on_loop: Callable[[], bool]) -> None:
        """Uses none yet."""
        self._clients = clients
        self._is_on_loop = is_on_loop

    def take(self, key: Hashable, factory: Callable[[], Any]) -> Any:
        """Does what `FunctionContext.shared` does."""
        try:
            hash(key)
        except TypeError:
            msg = f"`key` of `shared` must be hashable, a text or a tuple, got {shown(key)}"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID) from None
        if not callable(factory):
            msg = (
                "`factory` of `shared` must be a function that makes the client, got"
                f" `{type(factory).__name__}`; write lambda: .."
            )
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
        if not self._is_on_loop():
            msg = (
                "`shared` was called in a thread of a plain function; call it in `open`, and keep"
                " what it returns"
            )
            raise OperatorStateError(msg, ErrorKind.INPUT_INVALID)
        client = self._clients.take((key, place_of(factory)), factory, self)
        return client.made if client.making is None else asyncio.shield(client.making)

    def give_back(self) -> None:
        """Uses none any more."""
        self._clients.leave(self)


_T = TypeVar("_T")


# -- the loop and its thread


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
        OperatorStateError: On the thread of a loop, in a coroutine, `open`, `close` or `timeout`;
            or where gevent has put its own in place of threads.
    """
    gevent: Any = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        msg = (
            "gevent has put its own in place of this process's threads, and a wait function would"
            " wait for them for ever; write `gevent.monkey.patch_all(thread=False)`"
        )
        raise OperatorStateError(msg, ErrorKind.LOOP_BLOCKED)
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
