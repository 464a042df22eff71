# SPDX-License-Identifier: Apache-2.0
"""Calls of `async_invoke_batch`: rows are collected, and each call answers many of them.

Runs on the event loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from sparkawait.exceptions import ErrorKind, ResultError
from sparkawait.runner import Runner

if TYPE_CHECKING:
    from sparkawait._core import Port, Row
    from sparkawait.functions import Batch, FunctionContext
    from sparkawait.plan import Plan

__all__ = ["BatchRunner"]

_CELL_BYTES = 8
"""Counted for a cell without a length, such as a number."""


class BatchRunner(Runner):
    """Collects rows and calls `async_invoke_batch`, with a bounded number of calls in flight.

    A batch is sent when it is full or its oldest row has waited for `linger`, and a call is free.
    """

    def __init__(
        self, plan: Plan, port: Port, loop: asyncio.AbstractEventLoop, context: FunctionContext
    ) -> None:
        """Starts without rows."""
        super().__init__(plan, port, loop, context)
        batch = cast("Batch", plan.batch)
        self.function_name = self._function_name
        self.invoke = self._function.async_invoke_batch
        self.replies = self._replies
        # More rows than `capacity` never come, so waiting for them would cost a linger per batch.
        self._max_rows = min(batch.max_rows, plan.capacity)
        self._max_bytes = batch.max_bytes
        self._linger = batch.linger_seconds
        self._max_calls = plan.max_concurrency
        self._waiting: deque[tuple[Row, int, float]] = deque()
        """Rows that are in no call yet, oldest first, with their bytes and when they are due."""
        self._waiting_bytes = 0
        self._calls: set[BatchCall] = set()
        self._timer: asyncio.TimerHandle | None = None

    def call_done(self, call: BatchCall) -> None:
        """Makes room for the next call."""
        self._calls.discard(call)
        if not self._closed:
            # In the context of `open`, not the one that the ended call may have changed.
            self._loop.call_soon(self._send_due, context=self.context)

    def _start(self, calls: list[Row]) -> None:
        due = self._loop.time() + self._linger
        for row in calls:
            size = 0 if self._max_bytes is None else _row_bytes(row)
            self._waiting.append((row, size, due))
            self._waiting_bytes += size
        self._send_due()

    def _send_due(self) -> None:
        while self._waiting and len(self._calls) < self._max_calls and self._is_due():
            self._calls.add(BatchCall(self, self._next_batch(), self._loop))
        self._set_timer()

    def _is_due(self) -> bool:
        return (
            len(self._waiting) >= self._max_rows
            or (self._max_bytes is not None and self._waiting_bytes >= self._max_bytes)
            or self._waiting[0][2] <= self._loop.time()
        )

    def _next_batch(self) -> list[Row]:
        rows: list[Row] = []
        total = 0
        while self._waiting and len(rows) < self._max_rows:
            row, size, _ = self._waiting[0]
            if rows and self._max_bytes is not None and total + size > self._max_bytes:
                break
            self._waiting.popleft()
            self._waiting_bytes -= size
            total += size
            rows.append(row)
        return rows

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and len(self._calls) < self._max_calls:
            self._timer = self._loop.call_at(
                self._waiting[0][2], self._on_timer, context=self.context
            )

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiting:
            # Timers may fire a little early by the clock that is compared with.
            row, size, _ = self._waiting[0]
            self._waiting[0] = (row, size, self._loop.time())
        self._send_due()

    def _cancel(self, ids: set[int]) -> None:
        kept = [entry for entry in self._waiting if entry[0].id not in ids]
        self._waiting = deque(kept)
        self._waiting_bytes = sum(size for _, size, _ in kept)
        for call in list(self._calls):
            call.cancel_rows(ids)

    def _stop(self) -> Iterable[asyncio.Task[None]]:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls:
            call.cancel()
        return [call.task for call in self._calls]


class BatchCall:
    """One call of `async_invoke_batch`, in a task of its own."""

    def __init__(
        self, runner: BatchRunner, rows: list[Row], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Starts the call."""
        self._runner = runner
        self._rows = rows
        self._wanted = {row.id for row in rows}
        self.task = asyncio.Task(self._run(), loop=loop, name="sparkawait-batch")

    def cancel_rows(self, ids: set[int]) -> None:
        """Forgets these rows; the call is cancelled when nobody waits for it any more."""
        self._wanted -= ids
        if not self._wanted:
            self.task.cancel()

    def cancel(self) -> None:
        """Cancels the call; its outcome is no longer wanted."""
        self._wanted.clear()
        self.task.cancel()

    async def _run(self) -> None:
        runner, rows = self._runner, self._rows
        # Read by the watchdog.
        function_name = runner.function_name  # noqa: F841  # pyright: ignore[reportUnusedVariable]
        try:
            results = await runner.invoke(rows)
            self._finish(results)
        except BaseException as error:  # noqa: BLE001 - it is the outcome of the rows
            for row in self._wanted_rows():
                runner.replies.fail(row, error)
        finally:
            runner.call_done(self)

    def _wanted_rows(self) -> list[Row]:
        return [row for row in self._rows if row.id in self._wanted]

    def _finish(self, results: object) -> None:
        error = _check_count(results, len(self._rows))
        if error is not None:
            for row in self._wanted_rows():
                self._runner.replies.fail(row, error, error.kind)
            return
        for row, result in zip(self._rows, cast("Sequence[object]", results), strict=True):
            if row.id in self._wanted:
                self._runner.replies.finish(row, result)


BatchRunner.entry = BatchCall._run.__code__  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


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


def _row_bytes(row: Row) -> int:
    return sum(
        len(value) if isinstance(value, (str, bytes)) else _CELL_BYTES for value in row.values()
    )
