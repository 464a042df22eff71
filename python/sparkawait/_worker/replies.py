# SPDX-License-Identifier: Apache-2.0
"""Outcomes of calls on their way back to the operator, in groups.

Finished rows are collected and handed over once per turn of the loop: columns, the crossing into
Rust and the wake-up of the task thread are paid per group. Runs on the event loop thread only.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

import pyarrow as pa

from sparkawait._core import Port, Row, RowGroup
from sparkawait._plan.plan import Plan
from sparkawait._worker.remarks import Remarks
from sparkawait.exceptions import AsyncIOError, ErrorKind, ResultError, spokesman
from sparkawait.retry import pause_after


class Replies:
    """Collects the outcomes of one task's calls.

    Invariant: while `rows` is not empty, a flush is scheduled.
    """

    def __init__(self, plan: Plan, port: Port, loop: asyncio.AbstractEventLoop) -> None:
        """Starts empty."""
        self.rows: list[Row] = []
        """Finished rows, in order of completion; always the same list."""
        self.results: list[object] = []
        """What the function returned for each of `rows`; always the same list."""
        self.remarks = Remarks(plan.options.rate_limit.known)
        self._port = port
        self._loop = loop
        self._retry = plan.options.retry
        self._columns = plan.result_columns()
        self._builder = plan.result_builder()
        self._context = Context()

    def schedule(self) -> None:
        """Has the rows flushed in the next turn; to be called before the first one is appended."""
        self._loop.call_soon(self._flush, context=self._context)

    def finish(self, row: Row, result: object) -> None:
        """Takes what the function returned for `row`."""
        if not self.rows:
            self.schedule()
        self.rows.append(row)
        self.results.append(result)

    def finish_group(self, rows: RowGroup, results: pa.RecordBatch) -> None:
        """Takes what the function returned for a group of rows, a result for each."""
        if self.remarks:
            self.remarks.send(self._port)
        self._port.complete(rows, results, None, None)

    def finish_last(self, row: Row, result: object) -> None:
        """Takes the results of a row that timed out; they are final."""
        self._complete([row], [result], final=True)

    def fail(
        self,
        row: Row | RowGroup,
        error: BaseException,
        kind: ErrorKind = ErrorKind.USER_FUNCTION_FAILED,
        *,
        final: bool = False,
    ) -> None:
        """Takes the exception that ended an attempt at `row`.

        Args:
            row: The row, or a group of rows.
            error: The exception; a predicate that raises replaces it.
            kind: Stable name of the case.
            final: Whether the row is not to be tried again, whatever the strategy says.
        """
        _explain(error)
        wants_retry, delay = False, None
        pause = None if final else pause_after(error)
        told = spokesman(error)
        if isinstance(told, AsyncIOError) and told.kind is ErrorKind.TEXT_INVALID:
            kind, final = told.kind, True  # of a cell, which stays as it is
        if self._retry is not None and not final:
            try:
                wants_retry = self._retry.retries_exception(error)
            except BaseException as raised:  # noqa: BLE001 - becomes the failure of the row
                told = raised
            if wants_retry:
                delay = self._retry.delay_after(error)
        if self.remarks:
            self.remarks.send(self._port)
        self._port.fail(row, told, kind.value, wants_retry, delay, pause)

    def divide(self, part: list[Row] | RowGroup, error: BaseException) -> None:
        """Takes the exception that ended a call which is made again for a part of its rows.

        Args:
            part: Those rows; they come back as other attempts.
            error: The exception.
        """
        _explain(error)
        if self.remarks:
            self.remarks.send(self._port)
        self._port.divide(part, error)

    def _flush(self) -> None:
        if self.remarks:
            self.remarks.send(self._port)
        rows, results = self.rows[:], self.results[:]
        self.rows.clear()
        self.results.clear()
        self._complete(rows, results)

    def _complete(self, rows: list[Row], results: list[object], *, final: bool = False) -> None:
        try:
            retry_of: dict[Row, bool] | None = None
            retry = None if final else self._retry
            has_predicate = retry is not None and retry.if_result is not None
            # It takes results of one row each only, so none of them is a miss.
            takes_rows = self._columns if not has_predicate else None
            if takes_rows and self._port.try_complete(takes_rows, rows, results):
                return
            asked, asked_results = rows, results
            if has_predicate or (retry is not None and retry.retry_misses):
                asked, asked_results, retry_of = self._ask(rows, results)
            for built in self._builder.groups(asked, asked_results):
                for row, error in built.failures:
                    self.fail(row, error, error.kind, final=final)
                if built.rows:
                    retries = None if retry_of is None else [retry_of[row] for row in built.rows]
                    self._port.complete(built.rows, built.batch, built.counts, retries)
        except BaseException as error:  # noqa: BLE001 - a row without an outcome would hang
            for row in rows:
                self._port.fail(row, error, ErrorKind.INTERNAL.value, False, None, None)  # noqa: FBT003

    def _ask(
        self, rows: list[Row], results: list[object]
    ) -> tuple[list[Row], list[Any], dict[Row, bool]]:
        """Asks the result predicate about each row; where it raises, the row fails for good."""
        assert self._retry is not None  # noqa: S101 - checked by the caller
        retry_of: dict[Row, bool] = {}
        asked: list[Any] = []
        for row, result in zip(rows, results, strict=True):
            try:
                mappings = self._builder.rows_of(result)
            except ResultError:
                retry_of[row] = False  # fails when it is built
            else:
                try:
                    retry_of[row] = self._retry.retries_result(mappings)
                except BaseException as error:  # noqa: BLE001 - the failure of the row
                    self.fail(row, error, final=True)
                    continue
            asked.append(result)
        return list(retry_of), asked, retry_of


_RUNNING = ("cannot be called from a running event loop", "This event loop is already running")


def _explain(error: BaseException) -> None:
    """Says in an exception what to write instead, where it tells of a loop that runs already."""
    if type(error) is RuntimeError and str(error).endswith(_RUNNING):
        error.args = (f"{error}; the function runs on one: `await` the coroutine instead",)
