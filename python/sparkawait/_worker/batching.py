# SPDX-License-Identifier: Apache-2.0
"""Calls of `async_invoke_batch`: rows are collected, and each call answers many of them.

Runs on the event loop thread only.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, cast

from sparkawait._core import Row
from sparkawait._plan.plan import Plan
from sparkawait._worker.batch_lines import CallSize, Divided, Doubt, Line, Timers
from sparkawait._worker.runner import Parts, Runner
from sparkawait.exceptions import (
    AsyncFunctionError,
    AsyncIOError,
    ErrorKind,
    ResultError,
    leaves,
    text_of,
)
from sparkawait.limits import Batch
from sparkawait.retry import RetryAfter, announced_delay, answered_status

__all__ = ["BatchRunner", "is_of_rows", "may_be_of_rows"]


class BatchRunner(Runner):
    """Collects rows and calls `async_invoke_batch`, with a bounded number of calls in flight.

    A batch is sent when it is full or its oldest row has waited for `linger`, and a call is free.
    With channels, the rows of a call are of one channel, and a channel has its share of the calls.

    A call that fails because of some of its rows is not made again here: the operator calls for its
    rows again, when their limits let it, and those of a part go together.
    """

    def __init__(self, parts: Parts) -> None:
        """Starts without rows."""
        super().__init__(parts)
        plan, batch = parts.plan, cast("Batch", parts.plan.batch)
        # More rows than `capacity` never come, so waiting for them would cost a linger per batch.
        latency = plan.options.tuning.resolve().target_latency
        self._size = CallSize(min(batch.max_rows, plan.capacity), latency)
        self._max_bytes = cast("int | None", batch.max_bytes)
        self._linger = batch.linger_seconds
        self.splits = batch.split_on_error
        self.is_plain = parts.blocking is not None
        self.reads_results = plan.results != "none"
        self.counts_requests = any(it.per == "request" for it in plan.options.rate_limit.known)
        self._max_calls = plan.max_concurrency
        self._max_calls_of_line = _max_calls_of_channel(plan)
        self._has_channels = plan.credits is not None
        self._lines: dict[int | None, Line] = {}
        """Lines with rows or calls."""
        self._ready: deque[Line] = deque()
        """Lines to look at when a call is free, each once."""
        self._timers = Timers()
        self._divided = Divided()
        self._parts: set[Line] = set()
        """Lines of parts that have rows."""
        self._calls: set[Call] = set()
        self._timer: asyncio.TimerHandle | None = None

    def call_done(self, call: Call) -> None:
        """Makes room for the next call; called in the context of `open`."""
        self._calls.discard(call)
        line = call.line
        line.calls -= 1
        self._size.answered(call.size, len(self._calls) + 1, self.loop.time())
        for held in line.held:
            self._make_ready(held)
        line.held.clear()
        if line.waiting:
            self._make_ready(line)
        elif line.calls == 0 and self._lines.get(line.key) is line:
            del self._lines[line.key]
        if not self._closed:
            self._send_due()

    def call_again(
        self,
        line: Line,
        attempts: Iterable[int],
        part: Any,
        error: BaseException,
        doubt: Doubt | None = None,
        *,
        called: bool = True,
    ) -> None:
        """Has rows of a call that failed called again, together if they come in time.

        Args:
            line: That of their channel.
            attempts: The numbers of the attempts at the rows.
            part: The rows, or a group of them; there may be none.
            error: What the call has raised.
            doubt: Whom it is laid to if a call for them fails, too.
            called: Whether the call was for them. Else they were left out of it.
        """
        if len(part):
            # Before the operator hears of it: they may come back at once.
            self._divided.add(attempts, self._new_line(line.key, len(part), doubt))
            self.replies.divide(part, error, called=called)

    def _start(self, calls: list[Row]) -> None:
        due = self.loop.time() + self._linger
        counts_bytes = self._max_bytes is not None
        has_parts = bool(self._divided)
        for row in calls:
            line = self._take_back(row.__sparkawait_attempt__) if has_parts else None
            if line is None:
                line = self._line(row.__sparkawait_channel__ if self._has_channels else None)
            line.append(row, due, counts_bytes=counts_bytes)
            self._added_to(line)
        self._send_due()

    def _take_back(self, attempt: int) -> Line | None:
        """Returns the line of the part that a row has come back to; ``None`` for any other row."""
        line = self._divided.take(attempt)
        if line is not None:
            self._parts.add(line)
            if line.is_whole():
                self._make_ready(line)
        return line

    def _added_to(self, line: Line) -> None:
        if len(line.waiting) == 1:
            self._timers.add(line)
        if not line.is_ready and line.is_full(self._size.rows, self._max_bytes):
            self._make_ready(line)

    def _line(self, key: int | None) -> Line:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = self._new_line(key)
        return line

    def _new_line(
        self, key: int | None, missing: int | None = None, doubt: Doubt | None = None
    ) -> Line:
        return Line(key, missing, doubt)

    def _make_ready(self, line: Line) -> None:
        if not line.is_ready:
            line.is_ready = True
            self._ready.append(line)

    def _send_due(self) -> None:
        now = self.loop.time()
        while (line := self._timers.pop_due(now)) is not None:
            self._make_ready(line)
        while self._ready and len(self._calls) < self._max_calls:
            line = self._ready.popleft()
            line.is_ready = False
            if not self._is_due(line, now):
                continue
            home = line if line.missing is None else self._line(line.key)
            if home.calls < self._max_calls_of_line:
                self._send(line, home)
                if self._is_due(line, now):
                    self._make_ready(line)
            elif line is not home:
                # It comes back, as the channel's own line does, when one of the calls ends.
                home.held[line] = None
        self._set_timer()

    def _send(self, line: Line, home: Line) -> None:
        home.calls += 1
        rows = line.take(self._size.rows, self._max_bytes)
        self._calls.add(self._new_call(home, rows, line.doubt))
        if line.waiting:
            self._timers.add(line)
        else:
            self._parts.discard(line)

    def _new_call(self, line: Line, rows: Any, doubt: Doubt) -> Call:
        return BatchCall(self, line, rows, doubt)

    def _is_due(self, line: Line, now: float) -> bool:
        if not line.waiting:
            return False
        is_due = line.due <= now or line.is_whole()
        return is_due or line.is_full(self._size.rows, self._max_bytes)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._timers.next()
        if due is not None and len(self._calls) < self._max_calls:
            self._timer = self.loop.call_at(due, self._on_timer, context=self.context)

    def _on_timer(self) -> None:
        self._timer = None
        line = self._timers.pop()
        if line is not None:
            # Timers may fire a little early by the clock that is compared with.
            line.hurry(self.loop.time())
            self._make_ready(line)
        self._send_due()

    def _cancel(self, ids: set[int]) -> None:
        for line in [*self._lines.values(), *self._parts]:
            if line.drop(ids):
                self._timers.add(line)
        for line in list(self._lines.values()):
            if not line.waiting and not line.calls:
                del self._lines[line.key]
        self._parts = {line for line in self._parts if line.waiting}
        for call in list(self._calls):
            call.cancel_rows(ids)

    def _stop(self) -> Iterable[asyncio.Task[None]]:
        self._lines.clear()
        self._parts.clear()
        self._divided.clear()
        self._ready.clear()
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls:
            call.cancel()
        return [call.task for call in self._calls]


class Call(ABC):
    """A call for rows of one line, in a task of its own.

    An attempt at a row begins with the call that is for it. So a row of the line that this call
    leaves out has not begun one, and goes back to the operator as one that was not called.

    Args:
        runner: Makes it.
        line: That of the channel of the rows.
        rows: One or more.
        doubt: Whom it is laid to if it fails.
    """

    def __init__(self, runner: BatchRunner, line: Line, rows: Any, doubt: Doubt) -> None:
        """Starts the call."""
        self.line = line
        self.size = len(rows)
        self.doubt = doubt
        self._runner = runner
        self._rows = rows
        self.task = asyncio.Task(self._run(), loop=runner.loop, name="sparkawait-batch")
        # Not in `_run`, which never begins if the task is cancelled before its first step.
        self.task.add_done_callback(self._ended, context=runner.context)

    @abstractmethod
    def cancel_rows(self, ids: set[int]) -> None:
        """Forgets these rows; the call is cancelled when nobody waits for it any more."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancels the call; its outcome is no longer wanted."""

    @abstractmethod
    async def _make(self) -> None:
        """Calls the function for the rows that are wanted, and takes the outcome."""

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # No outcome of the function, which is taken where it is called. Without one of their
            # own its rows would wait for ever; those that have one keep it.
            self._runner.replies.fail(self._rows, error, ErrorKind.INTERNAL, final=True)
        self._runner.call_done(self)

    async def _run(self) -> None:
        # Read by the watchdog.
        function_name = self._runner.function_name  # noqa: F841  # pyright: ignore[reportUnusedVariable]
        await self._make()

    def _begin(self, rows: Any) -> bool:
        """Says that these rows are called for now; returns false if nobody counts that any more."""
        port = self._runner.port
        # Of one that begins behind the end of the task nobody would know.
        if not port.started(rows):
            return False
        if self._runner.counts_requests:
            port.request(rows)
        return True


BatchRunner.entries = BatchRunner.entries_with(Call._run.__code__)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class BatchCall(Call):
    """A call of `async_invoke_batch` with a list of rows.

    Its rows are called again in parts with `Batch.split_on_error`, and when the function read a
    text that is not UTF-8 before it has waited for anything.
    """

    def __init__(self, runner: BatchRunner, line: Line, rows: list[Row], doubt: Doubt) -> None:
        """Starts the call."""
        super().__init__(runner, line, rows, doubt)
        self._wanted = {row.__sparkawait_attempt__ for row in rows}
        self._alone: int | None = None
        """The attempt at the row that is called for alone."""

    def cancel_rows(self, ids: set[int]) -> None:
        """Forgets these rows; the call is cancelled when nobody waits for it any more."""
        self._wanted -= ids
        if not self._wanted or self._alone in ids:
            self.task.cancel()

    def cancel(self) -> None:
        """Cancels the call; its outcome is no longer wanted."""
        self._wanted.clear()
        self.task.cancel()

    async def _make(self) -> None:
        runner, rows = self._runner, self._rows
        if len(self._wanted) < self.size:
            rows = self._wanted_of(rows)
        if not rows:
            return
        if self.doubt.error is not None and len(rows) > 1:
            await self._ask_one_alone(rows, self.doubt.error)
            return
        if not self._begin(rows):
            return
        has_waited: list[bool] = []
        # In the next turn, which comes before the outcome if the function waits.
        mark = runner.loop.call_soon(has_waited.append, True)  # noqa: FBT003
        try:
            results = await runner.invoke(rows)
            self._finish(rows, results)
        except BaseException as error:  # noqa: BLE001 - it is the outcome of the rows
            self._fail(rows, error, has_waited=bool(has_waited))
        mark.cancel()

    def _fail(self, rows: list[Row], error: BaseException, *, has_waited: bool) -> None:
        wanted = self._wanted_of(rows)
        if unreadable := _unreadable(rows, error):
            self._set_apart(wanted, unreadable, error, has_waited=has_waited)
        elif self._runner.splits and len(rows) > 1 and may_be_of_rows(error):
            if self.doubt.is_proven or is_of_rows(error):
                self._halve(wanted, error, self.doubt)
            else:
                self._call_again(wanted, error, Doubt(error=error, rows=len(wanted)))
        else:
            for row in wanted:
                self._runner.replies.fail(row, error)

    async def _ask_one_alone(self, rows: list[Row], error: BaseException) -> None:
        """Calls for one of the rows alone; the others are left out.

        Once one is answered, the service is well, and the others are halved. If it is not, another
        one is called for alone. If none of these is answered, all fail as their call did.
        """
        runner = self._runner
        row = rows[self.doubt.place(len(rows))]
        self._alone, self.size = row.__sparkawait_attempt__, 1
        if not self._begin([row]):
            return
        doubt: Doubt | None = Doubt(is_proven=True)
        try:
            self._finish([row], await runner.invoke([row]))
        except BaseException as its:  # noqa: BLE001 - it is the outcome of the row
            doubt = self.doubt.of_next()
            # One that nobody waits for any more tells nothing.
            if self._alone in self._wanted:
                runner.replies.fail(row, its)
                doubt = doubt if may_be_of_rows(its) else None
        rest = [it for it in self._wanted_of(rows) if it is not row]
        if doubt is None:
            for it in rest:
                runner.replies.fail(it, error, called=False)
        elif doubt.is_proven:
            self._halve(rest, error, doubt, called=False)
        else:
            self._call_again(rest, error, doubt, called=False)

    def _halve(
        self, wanted: list[Row], error: BaseException, doubt: Doubt, *, called: bool = True
    ) -> None:
        half = len(wanted) // 2
        self._call_again(wanted[:half], error, doubt, called=called)
        self._call_again(wanted[half:], error, doubt, called=called)

    def _call_again(
        self,
        part: list[Row],
        error: BaseException,
        doubt: Doubt | None = None,
        *,
        called: bool = True,
    ) -> None:
        attempts = [row.__sparkawait_attempt__ for row in part]
        self._runner.call_again(self.line, attempts, part, error, doubt, called=called)

    def _set_apart(
        self,
        wanted: list[Row],
        unreadable: dict[Row, AsyncIOError],
        error: BaseException,
        *,
        has_waited: bool,
    ) -> None:
        """Fails the rows that cannot be read; the others go on without them, as far as they may."""
        replies, others = self._runner.replies, [row for row in wanted if row not in unreadable]
        for row in wanted:
            if row in unreadable:
                replies.fail(row, unreadable[row])
        if not has_waited or self._runner.splits:
            self._call_again(others, error)
            return
        # Whatever it waited for may have been done, so a second time is for `retry` to say.
        when, way_out = (
            "after it had waited for something",
            "have it read its columns before that, or ",
        )
        if self._runner.is_plain:  # nobody knows whether it has
            when, way_out = "and nobody knows what it has done before", ""
        failed = AsyncFunctionError(
            f"{text_of(error)}; the function read another row of this batch {when}; {way_out}set"
            " `split_on_error` or `retry`",
            ErrorKind.USER_FUNCTION_FAILED,
        )
        for row in others:
            replies.fail(row, failed)

    def _wanted_of(self, rows: list[Row]) -> list[Row]:
        return [row for row in rows if row.__sparkawait_attempt__ in self._wanted]

    def _finish(self, part: list[Row], results: object) -> None:
        if not self._runner.reads_results:
            results = [None] * len(part)
        error = _check_count(results, len(part))
        if error is not None:
            for row in self._wanted_of(part):
                self._runner.replies.fail(row, error, error.kind)
            return
        for row, result in zip(part, cast("Sequence[object]", results), strict=True):
            if row.__sparkawait_attempt__ in self._wanted:
                self._runner.replies.finish(row, result)


def _unreadable(rows: list[Row], error: BaseException) -> dict[Row, AsyncIOError]:
    """Returns the rows whose text in the column that `error` is about is not UTF-8."""
    found: dict[Row, AsyncIOError] = {}
    # Those of others may answer any name.
    ours = (leaf for leaf in leaves(error) if isinstance(leaf, AsyncIOError))
    named = (getattr(leaf, "__sparkawait_column__", None) for leaf in ours)
    for column in dict.fromkeys(it for it in named if it is not None):
        for row in rows:
            try:
                row[column]
            except AsyncIOError as its:
                found[row] = its
    return found


def may_be_of_rows(error: BaseException) -> bool:
    """Tells whether a call may do better without some of its rows."""
    asks_to_wait = any(isinstance(it, RetryAfter) for it in leaves(error))
    asks_to_wait = asks_to_wait or announced_delay(error) is not None
    return isinstance(error, Exception) and not asks_to_wait


def is_of_rows(error: BaseException) -> bool:
    """Tells whether the service has said that some rows are at fault."""
    return answered_status(error) in _ABOUT_ROWS


_ABOUT_ROWS = (400, 413, 422)


def _check_count(results: object, rows: int) -> ResultError | None:
    if results is None:
        msg = "async_invoke_batch returned None; return a list with one result per row"
        return ResultError(msg, ErrorKind.RESULT_IS_NONE)
    if not isinstance(results, (list, tuple)):
        msg = (
            "async_invoke_batch must return a list with one result per row,"
            f" got `{type(results).__name__}`"
        )
        return ResultError(msg, ErrorKind.RESULT_NOT_A_LIST)
    found = len(cast("Sequence[object]", results))
    if found != rows:
        msg = f"async_invoke_batch got {rows} rows and returned {found} results; return one per row"
        return ResultError(msg, ErrorKind.BATCH_RESULT_COUNT_MISMATCH)
    return None


def _max_calls_of_channel(plan: Plan) -> int:
    """Returns the calls in flight of one channel: its share of the rows is that of the calls."""
    if plan.credits is None:
        return plan.max_concurrency
    return max(plan.max_concurrency * plan.credits.max_per_channel // plan.rows_called, 1)
