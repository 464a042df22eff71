# SPDX-License-Identifier: Apache-2.0
"""Calls of a plain function, each in a thread, awaited like those of an ``async def``.

```text
  loop      call --> line                                    outcomes of a burst --> their futures
                      |                                        ^
  threads             +--> worker: one call after another -----+
                           wakes the next one if calls wait
```

A thread cannot be ended from outside: one whose call was given up, because its row has timed out,
is *held* until the call returns. `BlockingCalls` is used on the event loop thread; its workers
alone run in others.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from sparkawait._worker import address_space
from sparkawait.exceptions import AsyncFunctionError, AsyncIOError, ErrorKind
from sparkawait.functions import FunctionContext

# -- threads for code that blocks, which the process does not wait for when it ends.
#
# One pool for each event loop: `asyncio.to_thread` and plain functions of users take its threads.
# The pool of the standard library would have the process wait at its exit for a call that never
# returns. Any thread may use it.

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Work = Callable[[], None]


class DaemonThreads(ThreadPoolExecutor):
    """Starts a thread when work comes and none is idle; idle ones stay for what comes later.

    A `ThreadPoolExecutor` by its type, since asyncio takes no other.

    Args:
        most: Threads at most for what `submit` is given; what goes beyond waits. Those of `execute`
            come on top: its users bound them.
    """

    def __init__(self, most: int) -> None:
        """Starts no thread."""
        super().__init__(most)
        self._most = most
        self._lock = threading.Lock()
        self._works: SimpleQueue[_Work | None] = SimpleQueue()
        """What idle threads are to do next: never more of it than there are idle threads."""
        self._idle = 0
        """Threads that wait for work, and have not been promised any."""
        self._started = 0
        self._submitted = 0
        """How much of what `submit` was given is being done."""
        self._waiting: deque[_Work] = deque()
        self._is_shut_down = False

    def execute(self, work: _Work) -> None:
        """Does `work`, which lets no exception pass, in a thread, at once.

        Raises:
            AsyncIOError: If no thread is idle, and the system lets no other be started.
        """
        with self._lock:
            is_idle = self._idle > 0
            self._idle -= is_idle
            self._started += not is_idle
            name = f"sparkawait-blocking-{self._started}"
        if is_idle:
            self._works.put(work)
            return
        address_space.start(
            threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        )

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Calls `fn` in a thread, as soon as one may.

        Raises:
            RuntimeError: After `shutdown`.
            AsyncIOError: As `execute`.
        """
        future: Future[_T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    future.set_exception(error)
                else:
                    future.set_result(result)

        with self._lock:
            if self._is_shut_down:
                msg = "the event loop of this thread pool is closed"
                raise RuntimeError(msg)
            if self._submitted == self._most:
                self._waiting.append(work)
                return future
            self._submitted += 1
        try:
            self.execute(partial(self._work_off, work))
        except BaseException:
            with self._lock:
                self._submitted -= 1
            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - as in the standard library
        """Ends idle threads, and the others after what they are doing; waits for none of them."""
        with self._lock:
            self._is_shut_down = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._works.put(None)

    def _work_off(self, work: _Work | None) -> None:
        """Does `work`, and then what waits for one of the threads of `submit`."""
        while work is not None:
            work()
            with self._lock:
                work = self._waiting.popleft() if self._waiting else None
                self._submitted -= work is None

    def _run(self, work: _Work | None) -> None:
        while work is not None:
            work()
            work = None  # nothing of it is kept alive by an idle thread
            with self._lock:
                if self._is_shut_down:
                    return
                self._idle += 1
            work = self._works.get()


# -- the calls

_logger = logging.getLogger("sparkawait")
RETURN_SECONDS = 1.0
"""How long calls get to return when the task ends; threads of those that do not are left behind.
Also how long a call may go on after it was given up before the log says so."""
HANG_SECONDS = 30.0
"""After so long without a thread that came back, all of them being held, the task fails."""
HELD = "held_threads"
"""Names the metric."""


class BlockingCalls:
    """Calls a plain function in threads, at most `limit` calls at a time.

    A worker is a thread of the pool that takes one call after another while there are any. Each
    wakes another before its own call, so that calls which return at once keep one thread busy and
    calls that block get a thread each.

    Args:
        function: What is called, with one argument.
        name: What messages call it.
        limit: Threads at most.
        loop: Where calls are awaited.
        pool: Where threads come from.
        context: Takes the metric of held threads.
        fail: Fails the task.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        name: str,
        limit: int,
        *,
        loop: asyncio.AbstractEventLoop,
        pool: DaemonThreads,
        context: FunctionContext,
        fail: Callable[[BaseException], None],
    ) -> None:
        """Starts no thread."""
        self._function = function
        self._name = name
        self._limit = limit
        self._pool = pool
        self._context = context
        self._fail = fail
        self._loop = loop
        self._lock = threading.Lock()
        self._line: deque[_Call] = deque()
        """Calls that no worker has taken."""
        self._running: set[_Call] = set()
        self._workers = 0
        self._is_waking = False
        """Whether a worker is on its way that will look for a call."""
        self._outcomes: deque[_Call] = deque()
        """Calls that have returned, until the loop has looked."""
        self._is_told = False
        """Whether the loop is going to look."""
        self._held: set[_Call] = set()
        """Calls that were given up while they ran, and have not returned."""
        self._came_back = 0.0
        """When the last of the threads was free."""
        self._said = 0
        """Held threads that the log was told of."""
        self._timer: asyncio.TimerHandle | None = None
        self._all_back: asyncio.Future[None] | None = None

    async def __call__(self, argument: object) -> Any:
        """Calls the function in a thread, in a copy of the current context.

        Returns:
            What it returned.

        Raises:
            AsyncIOError: If no thread can be started.
        """
        call = _Call(argument, copy_context(), self._loop.create_future())
        with self._lock:
            self._line.append(call)
            wakes = self._wakes()
        if wakes:
            try:
                self._wake()
            except AsyncIOError:
                call.is_wanted = False
                raise
        try:
            return await call.future
        except asyncio.CancelledError:
            self._give_up(call)
            raise

    async def close(self, seconds: float) -> None:
        """Waits until all calls have returned, which nobody waits for any more.

        Args:
            seconds: How long, at most. Threads that do not come back are left behind.
        """
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._line.clear()
        if self._held:
            self._all_back = self._loop.create_future()
            await asyncio.wait([self._all_back], timeout=seconds)
        if self._held:
            _logger.warning(
                "calls of `%s` did not return, and their threads are left behind: %s",
                self._name,
                self._ages(),
            )

    def _give_up(self, call: _Call) -> None:
        with self._lock:
            call.is_wanted = False
            runs = call in self._running
        # One that has been answered is found there until its thread takes the next.
        if runs and call.future.cancelled():
            call.given_up = monotonic()
            self._held.add(call)
            self._context.add_metric(HELD)
            self._watch()

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(RETURN_SECONDS, self._look)

    def _look(self) -> None:
        """Says how many threads are held, each time that these are twice as many; ends a task."""
        self._timer = None
        now = monotonic()
        if not self._held:
            self._said = 0
            return
        for_long = sum(now - call.given_up >= RETURN_SECONDS for call in self._held)
        if for_long >= max(2 * self._said, 1):
            self._said = for_long
            _logger.warning(
                "%d of the %d threads of `%s` are held by calls that nobody waits for any more, as"
                " after a timeout: %s; give the client a timeout of its own, shorter than that of"
                " the row",
                for_long,
                self._limit,
                self._name,
                self._ages(),
            )
        since = max([self._came_back, *(call.given_up for call in self._held)])
        if len(self._held) >= self._limit and self._waits() and now - since >= HANG_SECONDS:
            self._fail(self._all_hang())
        else:
            self._watch()

    def _waits(self) -> bool:
        with self._lock:
            return any(call.is_wanted for call in self._line)

    def _all_hang(self) -> AsyncFunctionError:
        return AsyncFunctionError(
            f"all {self._limit} threads of `{self._name}` are held by calls that do not return,"
            f" and no row can be called for any more: {self._ages()}; give the client a timeout of"
            " its own, shorter than `timeout` of the row",
            ErrorKind.THREADS_HUNG,
        )

    def _ages(self) -> str:
        now = monotonic()
        ages = sorted((now - call.began for call in list(self._held)), reverse=True)
        shown = ", ".join(f"{age:.1f} s" for age in ages[:5])
        return f"called {shown} ago" + f" and {len(ages) - 5} more" * (len(ages) > 5)  # noqa: PLR2004

    # --- threads

    def _wakes(self) -> bool:
        """Counts one more worker, if calls wait for it and none is on its way; under the lock."""
        if not self._line or self._is_waking or self._workers >= self._limit:
            return False
        self._is_waking = True
        self._workers += 1
        return True

    def _wake(self) -> None:
        try:
            self._pool.execute(self._work)
        except AsyncIOError as error:
            with self._lock:
                self._is_waking = False
                self._workers -= 1
                fewer, self._limit = self._workers, max(self._workers, 1)
            if not fewer:
                raise
            # The calls wait for these.
            _logger.warning("`%s` has %d threads and gets no more: %s", self._name, fewer, error)

    def _work(self) -> None:
        """Makes calls until none waits."""
        is_first, done = True, None
        while True:
            with self._lock:
                if is_first:
                    is_first = self._is_waking = False
                if done is not None:
                    self._running.discard(done)
                    done = None
                call = self._next()
                if call is None:
                    self._workers -= 1
                    return
                wakes = self._wakes()
            if wakes:
                self._wake()
            call.outcome = _made(call.context, self._function, call.argument, self._name)
            self._tell(call)
            done = call

    def _next(self) -> _Call | None:
        while self._line:
            call = self._line.popleft()
            if call.is_wanted:
                call.began = monotonic()
                self._running.add(call)
                return call
        return None

    def _tell(self, call: _Call) -> None:
        self._outcomes.append(call)
        # The loop forgets that it is told before it looks, so that no outcome is left behind.
        if not self._is_told:
            self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:  # the loop is closed
                return

    def _take(self) -> None:
        self._is_told = False
        while self._outcomes:
            call = self._outcomes.popleft()
            call.answer()
            if call in self._held:
                self._came_back = monotonic()
                self._held.discard(call)
                self._context.add_metric(HELD, -1)
        if self._all_back is not None and not self._held and not self._all_back.done():
            self._all_back.set_result(None)


class _Call:
    """One call."""

    __slots__ = ("argument", "began", "context", "future", "given_up", "is_wanted", "outcome")

    def __init__(self, argument: object, context: Context, future: asyncio.Future[Any]) -> None:
        self.argument = argument
        self.context = context
        self.future = future
        self.is_wanted = True
        self.began = self.given_up = 0.0
        self.outcome: tuple[object, BaseException | None] = (None, None)

    def answer(self) -> None:
        """Hands the outcome to the coroutine that waits; on the loop."""
        (result, error), self.outcome = self.outcome, (None, None)
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


def _made(
    context: Context, function: Callable[[Any], Any], argument: object, name: str
) -> tuple[object, BaseException | None]:
    """Calls the function, and returns its result or what it raised.

    The frame is part of what is raised, and so knows nothing that this is kept in.
    """
    try:
        result = context.run(function, argument)
    except StopIteration as error:
        # What no coroutine lets pass, and asyncio has no place for.
        instead = RuntimeError(f"`{name}` raised StopIteration")
        instead.__cause__ = error
        return None, instead
    except BaseException as error:  # noqa: BLE001 - it is the outcome of the row
        return None, error
    if inspect.iscoroutine(result):
        result.close()
        msg = (
            f"`{name}` is a plain function, which is called in a thread, and returned a coroutine;"
            " define it with `async def`"
        )
        return None, TypeError(msg)
    return result, None
