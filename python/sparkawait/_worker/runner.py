# SPDX-License-Identifier: Apache-2.0
"""The Python side of a task: takes calls from the operator's port and runs the user's function.

Everything here runs on the event loop thread. How calls are made is left to the two subclasses, in
`coroutines` and `batching`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from math import ceil
from time import monotonic
from types import CodeType, coroutine
from typing import Any, ClassVar, TypeVar, cast

from sparkawait._core import Port, Row
from sparkawait._plan.plan import Plan
from sparkawait._worker.blocking_calls import RETURN_SECONDS, BlockingCalls
from sparkawait._worker.replies import Replies
from sparkawait.functions import AsyncFunction, FunctionContext

__all__ = ["PhaseExpiredError", "Runner", "within"]

# -- the bound in time of `open` and `close`. Runs on the event loop thread

_T = TypeVar("_T")


class PhaseExpiredError(Exception):
    """A phase of a function took longer than it may, and was cancelled."""


async def within(seconds: float | None, awaitable: Awaitable[_T]) -> _T:
    """Awaits in the caller's own task, so that context variables that are set are the caller's.

    Args:
        seconds: After these the caller's task is cancelled; ``None`` for never.
        awaitable: What is awaited. One that goes on when it is cancelled is waited for.

    Raises:
        PhaseExpiredError: If it was cancelled because of its time.
    """
    task = asyncio.current_task()
    if seconds is None or task is None:
        return await awaitable
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        return await awaitable
    except asyncio.CancelledError:
        if expired:
            raise PhaseExpiredError from None
        raise
    finally:
        timer.cancel()


_logger = logging.getLogger("sparkawait")
CANCEL_SECONDS = 0.5
"""How long calls get to end after they were cancelled; those that do not are left behind."""


@dataclass(frozen=True)
class Parts:
    """What a runner is made of.

    Attributes:
        plan: The call.
        port: The connection to the operator.
        loop: The running loop.
        context: What the function's `open` is told.
        blocking: What calls a plain function; ``None`` for an ``async def``.
    """

    plan: Plan
    port: Port
    loop: asyncio.AbstractEventLoop
    context: FunctionContext
    blocking: BlockingCalls | None = None


class Runner(ABC):
    """Runs one task's function.

    ```text
      open() --> reading calls --> close()
         |                           ^
         +-- raised: no row is read -+        close of the function runs once on either way
    ```

    Attributes:
        entries: The codes that call the user's methods, for the watchdog; their frames have a local
            ``function_name``.
        invoke: What is called for rows.
        replies: Takes the outcomes of the calls.
    """

    entries: ClassVar[frozenset[CodeType]]

    def __init__(self, parts: Parts) -> None:
        """Reads nothing yet."""
        plan, context = parts.plan, parts.context
        self._function = cast("AsyncFunction", plan.function)
        self._blocking = parts.blocking
        self.invoke = parts.blocking or plan.what_is_called()
        self.function_name = plan.function_name
        self._on_timeout = _timeout_handler(plan)
        self.port = parts.port
        self.loop = parts.loop
        self._function_context = context
        self.replies = Replies(plan, parts.port, parts.loop)
        if plan.options.rate_limit.known:
            remarks = self.replies.remarks
            context.on_settle, context.on_limits = remarks.settle, remarks.read_limits
        self.context = copy_context()
        self._reading = False
        self._closed = False
        self._opening: asyncio.Task[Any] | None = None

    async def open(self, seconds: float | None = None) -> BaseException | None:
        """Opens the function and starts to read calls.

        Args:
            seconds: How long the function's `open` may take; it is cancelled then.

        Returns:
            What the function's `open` raised, whatever it was; no row is read then. Returned rather
            than raised, since some exceptions would end the loop on their way.
        """
        # Read by the watchdog.
        function_name = f"{self.function_name}.open"  # noqa: F841  # pyright: ignore[reportUnusedVariable]
        self._opening = asyncio.current_task()
        try:
            opened = self._function.open(self._function_context)
            if inspect.isawaitable(opened):
                await within(seconds, opened)
        except BaseException as error:  # noqa: BLE001 - returned
            return error
        finally:
            self._opening = None
        if self._closed:
            return None
        # Calls see the context variables that `open` set.
        self.context = copy_context()
        self.loop.add_reader(self.port.fileno(), self._on_readable)
        self._reading = True
        return None

    async def close(self, grace: float) -> BaseException | None:
        """Cancels the calls in flight and closes the function. Further calls do nothing.

        Args:
            grace: Seconds that the function's `close` may take.

        Returns:
            What the function's `close` raised.
        """
        if self._closed:
            return None
        # Read by the watchdog.
        function_name = f"{self.function_name}.close"  # noqa: F841  # pyright: ignore[reportUnusedVariable]
        self._closed = True
        self._stop_reading()
        tasks = [*self._stop()]
        if self._opening is not None:
            # An `open` that was given up cleans up before the function is closed.
            self._opening.cancel()
            tasks.append(self._opening)
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
            if pending:
                _logger.warning(
                    "calls did not end when cancelled, and are left behind: %d of %s",
                    len(pending),
                    self.function_name,
                )
        if self._blocking is not None:
            await self._blocking.close(min(RETURN_SECONDS, grace))
        try:
            closed = self._function.close()
            if inspect.isawaitable(closed):
                await within(grace, closed)
        except BaseException as error:  # noqa: BLE001 - returned
            return error
        return None

    @abstractmethod
    def _start(self, calls: list[Row]) -> None:
        """Starts a call for each row."""

    @abstractmethod
    def _cancel(self, ids: set[int]) -> None:
        """Cancels these attempts; those that have ended are ignored."""

    @abstractmethod
    def _stop(self) -> Iterable[asyncio.Task[None]]:
        """Cancels all calls and returns the tasks that have to end."""

    def _on_readable(self) -> None:
        taken = self._take()
        if taken is None:
            self._stop_reading()
            self._stop()
            return
        calls, cancelled, timed_out = taken
        if cancelled:
            self._cancel(set(cancelled))
        if calls:
            self._start(calls)
        for row in timed_out:
            self._answer_timeout(row)

    def _take(self) -> tuple[list[Any], list[int], list[Row]] | None:
        """Takes what waits at the port: calls, cancelled attempts, and rows that timed out."""
        return self.port.take()

    def _answer_timeout(self, row: Row) -> None:
        # Read by the watchdog.
        function_name = f"{self.function_name}.on_timeout"  # noqa: F841  # pyright: ignore[reportUnusedVariable]
        try:
            # In a copy, so that other rows do not see what it sets.
            result = self.context.copy().run(self._on_timeout, row)
        except BaseException as error:  # noqa: BLE001 - the failure of the row
            self.replies.fail(row, error, final=True)
        else:
            self.replies.finish_last(row, result)

    @classmethod
    def entries_with(cls, calling: CodeType) -> frozenset[CodeType]:
        """Returns `calling`, the code that calls the function, and those of the other methods."""
        answering = cls._answer_timeout.__code__
        return frozenset({calling, cls.open.__code__, cls.close.__code__, answering})

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.loop.remove_reader(self.port.fileno())


def _timeout_handler(plan: Plan) -> Callable[[Row], Any]:
    fallback = plan.options.on_timeout
    if fallback is None:
        return cast("AsyncFunction", plan.function).on_timeout
    if callable(fallback):
        return cast("Callable[[Row], Any]", fallback)
    return lambda _row: fallback


# -- calls of `async_invoke`, one coroutine per row
#
# Rows are worked off by *workers*: asyncio tasks that call the function for one row after another.
# A call that never suspends so costs no task, no future and no turn of the loop; one that does
# still
# runs in a real task, which is what timeouts, task groups and client libraries need.
# Runs on the event loop thread only.


ROWS_PER_TURN = 256
"""Rows that a worker finishes before it gives the loop a turn. Fewer cost throughput, more make
finished rows wait."""
WORKERS_PER_TURN = 4
"""Workers that take so many rows and run in one turn of the loop."""
SECONDS_PER_TURN = 0.005
"""The same in time, for functions that compute; looked at every 16 rows."""


class CoroutineRunner(Runner):
    """Calls `async_invoke` for every row.

    ```text
      pending rows --> worker (suspended in row 3)
                       worker (suspended in row 7)
           pump: as long as rows are pending, each turn of the loop wakes or makes
                 as many workers as the rows are expected to need
    ```

    Invariant: while rows are pending, the pump is scheduled.
    """

    def __init__(self, parts: Parts) -> None:
        """Starts without workers."""
        super().__init__(parts)
        self.pending: deque[Row] = deque()
        """Rows whose call has not started, oldest first."""
        self.workers: set[Worker] = set()
        """All workers, parked ones included."""
        self.parked: list[Worker] = []
        """Workers that wait for rows."""
        self.busy = 0
        """Workers that found a row since the pump ran last."""
        self._pumping = False
        self._offered = 0
        """Rows that were pending after the pump ran last, and those that came since."""
        self._rows_per_worker = 16.0
        """Rows that a worker took before it suspended, as seen last; a guess at first, which makes
        few workers in vain for a function that never suspends."""

    def _start(self, calls: list[Row]) -> None:
        self.pending.extend(calls)
        if self._pumping:
            self._offered += len(calls)
        else:
            self._pumping = True
            self._wake()

    def _pump(self) -> None:
        if self.busy:
            taken = self._offered - len(self.pending)
            self._rows_per_worker = max(1.0, taken / self.busy)
        if self.pending:
            self._wake()
        else:
            self._pumping = False

    def _wake(self) -> None:
        self.busy = 0
        self._offered = len(self.pending)
        # Only calls that all suspend have to start in the same turn; others would fill it.
        suspends = self._rows_per_worker < 2  # noqa: PLR2004 - more than every other call
        rows = self._offered if suspends else min(self._offered, WORKERS_PER_TURN * ROWS_PER_TURN)
        for _ in range(ceil(rows / self._rows_per_worker)):
            if self.parked:
                self.parked.pop().wake()
            else:
                self.workers.add(Worker(self))
        # Behind the first steps of these workers, in the same turn.
        self.loop.call_soon(self._pump, context=self.context)

    def _cancel(self, ids: set[int]) -> None:
        for worker in list(self.workers):
            if worker.row is not None and worker.row.__sparkawait_attempt__ in ids:
                worker.cancel()
        kept = [row for row in self.pending if row.__sparkawait_attempt__ not in ids]
        self.pending.clear()
        self.pending.extend(kept)

    def _stop(self) -> Iterable[asyncio.Task[None]]:
        self.pending.clear()
        for worker in self.workers:
            worker.cancel()
        return [worker.task for worker in self.workers]


class Worker:
    """A task that calls the function for one pending row after another, and parks when none is.

    A worker whose call was cancelled, or changed context variables, is not used again: a cancelled
    task stays marked, and the next row must not see another row's variables.
    """

    __slots__ = ("_cancelled", "_parked", "_runner", "row", "task")

    def __init__(self, runner: CoroutineRunner) -> None:
        """Starts the task, in the context of the caller."""
        self._runner = runner
        self._cancelled = False
        self._parked: asyncio.Future[None] | None = None
        self.row: Row | None = None
        """The row that is being called for; ``None`` between two."""
        # Named, because the default name is formatted again for every task.
        self.task = asyncio.Task(self._run(), loop=runner.loop, name="sparkawait-worker")

    def wake(self) -> None:
        """Ends the wait of a parked worker."""
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)

    def cancel(self) -> None:
        """Cancels the call; its outcome is no longer wanted."""
        self._cancelled = True
        self.task.cancel()

    async def _run(self) -> None:  # noqa: C901, PLR0912 - one frame per call in flight, not two
        """Calls the function for every pending row it can get, until it must not go on."""
        # Locals, as this is the loop that every row goes through.
        runner = self._runner
        # Read by the watchdog.
        function_name = runner.function_name  # noqa: F841  # pyright: ignore[reportUnusedVariable]
        pending, invoke, replies = runner.pending, runner.invoke, runner.replies
        rows, results, context = replies.rows, replies.results, runner.context
        try:
            while True:
                if pending:
                    runner.busy += 1
                count, turn_ends = 0, monotonic() + SECONDS_PER_TURN
                while pending:
                    self.row = row = pending.popleft()
                    try:
                        result = await invoke(row)
                    except BaseException as error:  # noqa: BLE001 - it is the outcome of the row
                        self.row = None
                        if self._cancelled:
                            return
                        replies.fail(row, error)
                        if isinstance(error, GeneratorExit):
                            return
                    else:
                        self.row = None
                        if self._cancelled:
                            return
                        if not rows:
                            replies.schedule()
                        rows.append(row)
                        results.append(result)
                    # Cheap: unchanged contexts share their contents, which compare by identity.
                    if copy_context() != context:
                        return
                    count += 1
                    if not count & 15 and (count >= ROWS_PER_TURN or monotonic() > turn_ends):
                        await _turn()
                        count, turn_ends = 0, monotonic() + SECONDS_PER_TURN
                row = result = None  # not kept alive by a parked worker
                self._parked = runner.loop.create_future()
                runner.parked.append(self)
                await self._parked
                self._parked = None
        except asyncio.CancelledError:
            pass  # between two rows, when the task was closed
        finally:
            runner.workers.discard(self)


CoroutineRunner.entries = CoroutineRunner.entries_with(Worker._run.__code__)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


@coroutine
def _turn() -> Generator[None, None, None]:
    """Lets the loop run everything else that is ready."""
    yield
