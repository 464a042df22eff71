# SPDX-License-Identifier: Apache-2.0
"""How a task opens and closes its function, which runs on the event loop thread.

Everything here is called by the task's thread, which waits. What it waits for is bounded, except an
`open` without ``setup_timeout``.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from concurrent import futures
from concurrent.futures import Future
from time import monotonic

from sparkawait._callables import place_of
from sparkawait._core import DetachedTask, Task
from sparkawait._plan.called import identity_of
from sparkawait._plan.plan import Chain, Plan
from sparkawait._worker.arrow_batching import ArrowRunner
from sparkawait._worker.batching import BatchRunner
from sparkawait._worker.blocking_calls import RETURN_SECONDS, BlockingCalls
from sparkawait._worker.event_loop import (
    BLOCKED_SECONDS,
    WAY_OUT,
    Borrower,
    Watch,
    event_loop_thread,
)
from sparkawait._worker.runner import (
    CANCEL_SECONDS,
    CoroutineRunner,
    Parts,
    PhaseExpiredError,
    Runner,
)
from sparkawait.exceptions import AsyncFunctionError, ErrorKind, described, spokesman
from sparkawait.functions import AsyncFunction, DeclaredFunction, FunctionContext, NativeFunction

_logger = logging.getLogger("sparkawait")
SLOW_SECONDS = 60.0
"""An `open` that takes longer is logged, once."""
CLOSE_SECONDS = 30.0
"""How long `AsyncFunction.close` may take after the last row, without ``setup_timeout``."""
ABORT_SECONDS = 0.5
"""The most that it may take after a failure or when the output is abandoned: the task must end
within a second."""
BUSY_SECONDS = 0.1
"""A loop that was blocked for too long and gives no sign of life for so long still is."""


def runner_class(plan: Plan) -> type[Runner]:
    """Returns the runner that makes the calls of `plan`."""
    if plan.batch is None:
        return CoroutineRunner
    return ArrowRunner if plan.batch.arrow else BatchRunner


class Functions:
    """The functions of a task, which are opened and closed together.

    Attributes:
        contexts: What the `open` of each one is told.

    Args:
        chain: The calls.
        task: The operators that make them.
        partition: Number of the partition.
    """

    def __init__(self, chain: Chain, task: Task | DetachedTask, partition: int) -> None:
        """Opens nothing yet."""
        self._plans = chain.operators
        self.contexts = [
            FunctionContext(partition, f"{plan.function_name} ({partition})")
            for plan in self._plans
        ]
        self._functions = [
            LifeCycle(plan, task, position, context)
            for position, (plan, context) in enumerate(zip(self._plans, self.contexts, strict=True))
        ]

    @property
    def python_calls(self) -> int:
        """Calls in flight that Python makes."""
        plans = (plan for plan in self._plans if not isinstance(plan.function, NativeFunction))
        return sum(plan.max_concurrency for plan in plans)

    def open(self) -> None:
        """Opens all of them and lets them be called; the last one first, which others may feed.

        Raises:
            AsyncFunctionError: If one of them cannot be opened. Those behind it are open.
        """
        for function in reversed(self._functions):
            function.open()

    def close(self, *, finished: bool) -> AsyncFunctionError | None:
        """Cancels calls in flight and closes those that were opened, in their order.

        Args:
            finished: Whether all rows have left.

        Returns:
            Why one of them could not be closed; the log has what others said.
        """
        errors = [function.close(finished=finished) for function in self._functions]
        first, *others = [error for error in errors if error is not None] or [None]
        for other in others:
            _logger.warning("another function of the task: %s", other)
        return first


class LifeCycle:
    """Opens and closes the Python side of a task; a native function has none.

    Args:
        plan: The call.
        task: The operators.
        position: Which of them calls the function, from 0.
        context: What the function's `open` is told.
    """

    def __init__(
        self, plan: Plan, task: Task | DetachedTask, position: int, context: FunctionContext
    ) -> None:
        """Opens nothing yet."""
        self._plan = plan
        self._task = task
        self._position = position
        self._context = context
        self._runner: Runner | None = None
        self._thread = event_loop_thread()
        self._borrower = Borrower(self._thread.clients, self._thread.is_current)
        self._setup_timeout = plan.facts.setup_timeout
        blocked = plan.facts.blocked_loop_timeout
        self._watch = Watch(frozenset(), blocked, task.put_failure)

    def open(self) -> None:
        """Opens the function and lets it be called.

        Raises:
            AsyncFunctionError: If its `open` fails, or takes longer than ``setup_timeout``.
        """
        plan = self._plan
        if isinstance(plan.function, NativeFunction):
            return
        make_runner = runner_class(plan)
        self._thread.enter()
        self._context.on_shared = self._borrower.take
        port = self._task.port(self._position)
        blocking = self._blocking_calls()
        self._runner = make_runner(Parts(plan, port, self._thread.loop, self._context, blocking))
        self._watch.entries = make_runner.entries
        opening = self._thread.submit(self._runner.open(self._setup_timeout))
        try:
            error = self._result_of(opening)
        except BaseException as broken_off:
            opening.cancel()
            if isinstance(broken_off, futures.TimeoutError):
                raise self._expired("open", self._setup_timeout or 0) from None
            raise
        if isinstance(error, PhaseExpiredError):
            raise self._expired("open", self._setup_timeout or 0)
        if error is not None:
            error = spokesman(error)
            msg = f"`{plan.function_name}.open` failed: {described(error)}"
            raise AsyncFunctionError(msg, ErrorKind.OPEN_FAILED) from error
        # Not before: an `open` that loads a model may block the loop for long, and has a bound of
        # its own.
        self._thread.watchdog.watch(self._watch)

    def close(self, *, finished: bool) -> AsyncFunctionError | None:
        """Cancels calls in flight and closes the function, if it was opened.

        Args:
            finished: Whether all rows have left. Otherwise it gets `ABORT_SECONDS` at most.

        Returns:
            Why it could not be closed.
        """
        if self._runner is None:
            return None
        runner, self._runner = self._runner, None
        self._thread.watchdog.unwatch(self._watch)
        grace = self._setup_timeout or CLOSE_SECONDS
        grace = grace if finished else min(grace, ABORT_SECONDS)
        if self._thread.is_current():
            # An abandoned generator, collected on the loop's own thread, which cannot wait.
            self._closing = self._thread.loop.create_task(self._close(runner, grace))
            self._thread.leave()
            return None
        closing = self._thread.submit(self._close(runner, grace))
        if self._watch.has_failed and not self._thread.responds(BUSY_SECONDS):
            # The task has failed for that, and there is nothing more to say or to wait for.
            self._thread.abandon()
            self._thread.leave()
            return None
        try:
            # Not cancelled when it takes longer: it goes on when the loop is free again.
            error = closing.result(CANCEL_SECONDS + min(RETURN_SECONDS, grace) + grace)
        except futures.TimeoutError:
            error = self._expired("close", grace, gives_more=finished)
            if not self._thread.responds(BLOCKED_SECONDS):
                self._thread.abandon()
        finally:
            self._thread.leave()
        if error is None or isinstance(error, AsyncFunctionError):
            return error
        if isinstance(error, PhaseExpiredError):
            return self._expired("close", grace, gives_more=finished)
        error = spokesman(error)
        msg = f"`{self._plan.function_name}.close` failed: {described(error)}"
        failure = AsyncFunctionError(msg, ErrorKind.CLOSE_FAILED)
        failure.__cause__ = error
        return failure

    async def _close(self, runner: Runner, grace: float) -> BaseException | None:
        try:
            return await runner.close(grace)
        finally:
            self._borrower.give_back()

    def _blocking_calls(self) -> BlockingCalls | None:
        """Returns what calls a plain function; ``None`` for an ``async def``."""
        plan, thread = self._plan, self._thread
        if plan.threads is None:
            return None
        return BlockingCalls(
            plan.what_is_called(),
            plan.function_name,
            plan.threads,
            loop=thread.loop,
            pool=thread.pool,
            context=self._context,
            fail=self._task.put_failure,
        )

    def _result_of(self, opening: Future[BaseException | None]) -> BaseException | None:
        """Waits for an `open`, and says so if that takes long."""
        limit = self._setup_timeout
        # The loop bounds it; this is for an `open` that blocks the loop, or goes on when cancelled.
        ends = None if limit is None else monotonic() + limit + CANCEL_SECONDS
        if ends is None or limit is None or limit > SLOW_SECONDS:
            try:
                return opening.result(SLOW_SECONDS)
            except futures.TimeoutError:
                self._tell_slow()
        return opening.result(None if ends is None else max(ends - monotonic(), 0))

    def _tell_slow(self) -> None:
        limit = self._setup_timeout
        bound = "no bound; `setup_timeout` sets one" if limit is None else f"{limit:g} s"
        _logger.warning(
            "`%s.open` still runs after %g s, and no row is called for before it ends (%s)",
            self._plan.function_name,
            SLOW_SECONDS,
            bound,
        )

    def _expired(
        self, phase: str, seconds: float, *, gives_more: bool = True
    ) -> AsyncFunctionError:
        """Returns the error of a phase that took longer than `seconds`.

        Args:
            phase: ``"open"`` or ``"close"``.
            seconds: What it was given.
            gives_more: Whether the option would have given it more.
        """
        name = f"{self._plan.function_name}.{phase}"
        msg = f"`{name}` did not end within {seconds:g} s"
        if gives_more:
            msg += "; give it more by `setup_timeout`"
        blocking = self._thread.watchdog.blocking_in(self._watch.entries)
        if blocking is not None:
            msg += f"; the event loop is blocked by {blocking}: {WAY_OUT}"
        return AsyncFunctionError(msg, ErrorKind.SETUP_TIMED_OUT)


# -- which functions have shown in this process that their rows are wanted, and what a call brings
#
# A task begins with few calls, and makes all that it may once its consumer has come back for more.
# That is found out once for a function in a process: later tasks, and micro-batches, make all of
# their calls at once, as far as there is room for results of the size that they had before. Any
# thread may call this; a forked child knows what its parent knew.


MOST_FUNCTIONS = 1_000
"""Functions that are remembered; a process that has more starts with few calls again."""

_wanted: dict[Hashable, int | None] = {}
"""The functions, and the bytes that a call brings, if any has ended."""


def is_known(plan: Plan) -> bool:
    """Tells whether rows of the function of `plan` were wanted before."""
    return _name_of(plan) in _wanted


def result_bytes(plan: Plan) -> int | None:
    """Returns what a call of the function of `plan` brought last, in bytes, if that is known."""
    return _wanted.get(_name_of(plan))


def remember(plan: Plan, result_bytes: int | None = None) -> None:
    """Notes that rows of the function of `plan` are wanted, and what a call brings, in bytes."""
    if len(_wanted) >= MOST_FUNCTIONS:
        _wanted.clear()
    name = _name_of(plan)
    _wanted[name] = _wanted.get(name) if result_bytes is None else result_bytes


def _name_of(plan: Plan) -> Hashable:
    """Names a function by its place and its code: each task has another copy of it."""
    function = plan.function
    if not isinstance(function, AsyncFunction):
        return identity_of(function, travels=True)
    if isinstance(function, DeclaredFunction):
        return place_of(function.function)
    return place_of(type(function)), place_of(plan.what_is_called())
