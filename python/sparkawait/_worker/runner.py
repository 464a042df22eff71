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
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from types import CodeType
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
        self._next: list[Any] = []
        """Rows to be called for in the next turn of the loop, when those that were cancelled in
        this one have learnt it: some of them may have waited for their end."""

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
            ids = set(cancelled)
            self._next = self._without(self._next, ids)
            self._cancel(ids)
        if calls and (cancelled or self._next):
            self._next += calls
            self.loop.call_soon(self._start_next, context=self.context)
        elif calls:
            self._start(calls)
        for row in timed_out:
            self._answer_timeout(row)

    def _take(self) -> tuple[list[Any], list[int], list[Row]] | None:
        """Takes what waits at the port: calls, cancelled attempts, and rows that timed out."""
        return self.port.take()

    def _without(self, calls: list[Any], ids: set[int]) -> list[Any]:
        """Returns those of `calls` whose attempts are still wanted."""
        return [row for row in calls if row.__sparkawait_attempt__ not in ids]

    def _start_next(self) -> None:
        calls, self._next = self._next, []
        if calls and self._reading:
            self._start(calls)

    def _answer_timeout(self, row: Row) -> None:
        # Read by the watchdog.
        function_name = f"{self.function_name}.on_timeout"  # noqa: F841  # pyright: ignore[reportUnusedVariable]
        try:
            result = self._on_timeout(row)
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
