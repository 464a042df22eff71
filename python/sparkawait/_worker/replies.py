# SPDX-License-Identifier: Apache-2.0
"""Outcomes of calls on their way back to the operator, in groups.

Finished rows are collected and handed over once per turn of the loop: columns, the crossing into
Rust and the wake-up of the task thread are paid per group. Runs on the event loop thread only.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import threading
from collections.abc import Mapping, Sequence
from contextvars import Context
from typing import Any, NoReturn, cast

import pyarrow as pa

from sparkawait._checks import shown
from sparkawait._core import Log, Port, Row, RowGroup
from sparkawait._plan.plan import Plan
from sparkawait.exceptions import (
    AsyncFunctionError,
    AsyncIOError,
    ConfigurationError,
    ErrorKind,
    ResultError,
    spokesman,
    text_of,
)
from sparkawait.rate_limit import Limit
from sparkawait.retry import pause_after, plain_headers

# -- what calls of a function say beside their outcomes, on its way to the operator
#
# Functions tell it from the event loop thread, or from threads of their own; it is sent by the
# loop.


# -- where the lines of the logger ``sparkawait`` go, and how those of Rust come to it.
#
# ```text
#   threads of Rust --> queue, 256 lines --> event loop thread --> logger --> its handlers,
#                       never waits, counts what is lost            else standard error of a worker
# ```
#
# Any thread may log; a Python worker's standard error ends in the executor's log.

LEVEL_VARIABLE = "SPARKAWAIT_LOG"
"""Names the least level of a worker's lines; ``WARNING`` without it."""

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_DATE_FORMAT = "%y/%m/%d %H:%M:%S"  # Spark's own
_logger = logging.getLogger("sparkawait")


class RustLines:
    """Has the lines of Rust logged by the thread of a loop. One per process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits for lines; to be called before `loop` runs, or on its thread."""
        self._log: Log = Log(_logger.getEffectiveLevel())
        loop.add_reader(self._log.fileno(), self.deliver)

    def deliver(self) -> None:
        """Logs what waits."""
        lines, lost = self._log.take()
        for level, text in lines:
            _logger.log(level, "%s", text)
        if lost:
            _logger.warning("%d more lines were lost, because they came too fast", lost)


@functools.cache
def write_to_standard_error() -> None:
    """Has the lines of a Spark worker written, unless its logging is set up by somebody else."""
    level = os.environ.get(LEVEL_VARIABLE, "").upper()
    if level in _LEVELS:
        _logger.setLevel(level)
    if not _logger.hasHandlers():
        handler = _StandardError()
        handler.setFormatter(logging.Formatter(_FORMAT, _DATE_FORMAT))
        _logger.addHandler(handler)
    if level and level not in _LEVELS:
        _logger.warning("%s must be one of %s", LEVEL_VARIABLE, ", ".join(_LEVELS))


class _StandardError(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Steps back when somebody sets up logging later on."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


_MOST = 2**53
_OF_LIMITS = "ratelimit"
"""What names of headers have in them that tell of limits."""


class Remarks:
    """Collects what calls have cost, and what replies say of limits, until outcomes are sent.

    Args:
        limits: Those that calls pay.
    """

    def __init__(self, limits: Sequence[Limit]) -> None:
        """Starts empty."""
        self._labels = [limit.label for limit in limits]
        self._scales = [limit.scale for limit in limits]
        guessed = [index for index, limit in enumerate(limits) if limit.is_settled]
        known = [0] if len(limits) == 1 else guessed
        self._usual = known[0] if len(known) == 1 else None
        """The limit that is meant if none is named."""
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._limits: list[int] = []
        self._costs: list[int] = []
        self._told: list[tuple[Row, dict[str, str]]] = []

    def __bool__(self) -> bool:
        """Whether there is something to send."""
        return bool(self._rows or self._told)

    def settle(self, row: Row, cost: float, limit: str | None) -> None:
        """Takes what a call has cost, see `FunctionContext.settle`."""
        _check_row("settle", row)
        index = self._index(limit)
        amount = _amount(cost, self._scales[index])
        with self._lock:
            self._rows.append(row)
            self._limits.append(index)
            self._costs.append(amount)

    def read_limits(self, row: Row, headers: Mapping[str, str]) -> None:
        """Takes the headers of a reply, see `FunctionContext.read_limits`."""
        _check_row("read_limits", row)
        try:
            read = plain_headers(headers)
        except (AttributeError, TypeError, ValueError):
            read = None
        if read is None:
            got = type(headers).__name__
            _refuse(f"`headers` of `read_limits` must map names to values, got `{got}`")
        told = {name: value for name, value in read.items() if _OF_LIMITS in name}
        if told:
            # Points in time are those of the clock of the service.
            clock = {name: read[name] for name in ("date",) if name in read}
            with self._lock:
                self._told.append((row, told | clock))

    def send(self, port: Port) -> None:
        """Sends all of them, before the outcomes of these calls."""
        with self._lock:
            rows, limits, costs, told = self._rows, self._limits, self._costs, self._told
            self._rows, self._limits, self._costs, self._told = [], [], [], []
        if rows:
            port.settle(rows, limits, costs)
        if told:
            port.tell([row for row, _ in told], [headers for _, headers in told])

    def _index(self, limit: str | None) -> int:
        if limit is None and self._usual is not None:
            return self._usual
        if limit not in self._labels:
            names = ", ".join(map(shown, self._labels))
            _refuse(f"`limit` of `settle` must be one of {names}, got {shown(limit)}")
        return self._labels.index(limit)


def _check_row(method: str, row: object) -> None:
    if not isinstance(row, Row):
        _refuse(f"`{method}` takes the row of the call, got `{type(row).__name__}`")


def _amount(cost: object, scale: int) -> int:
    """Returns a cost in whole permits; a cost of 1 is `scale` of them."""
    try:
        amount = -1 if isinstance(cost, bool) else math.ceil(cast("float", cost) * scale)
    except (TypeError, ValueError, OverflowError):
        amount = -1
    if not 0 <= amount <= _MOST or cast("float", cost) < 0:
        _refuse(f"`cost` of `settle` must be a number from 0 to 2**53, got {shown(cost)}")
    return amount


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message, ErrorKind.COST_INVALID)


# -- replies to calls


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
        row: Row | RowGroup | list[Row],
        error: BaseException,
        kind: ErrorKind = ErrorKind.USER_FUNCTION_FAILED,
        *,
        final: bool = False,
        called: bool = True,
    ) -> None:
        """Takes the exception that ended an attempt at `row`. Raises nothing.

        Args:
            row: The row, or several.
            error: The exception; a predicate that raises replaces it.
            kind: Stable name of the case.
            final: Whether the row is not to be tried again, whatever the strategy says.
            called: Whether a call was made for it. Else it has failed before, in another one.
        """
        try:
            self._fail(row, error, kind, final=final, called=called)
        except BaseException as broken:  # noqa: BLE001 - a row without an outcome would hang
            msg = f"the exception, a `{type(error).__qualname__}`, cannot be read"
            told = AsyncFunctionError(msg, ErrorKind.USER_FUNCTION_FAILED)
            told.__cause__ = broken
            self._port.fail(row, told, kind.value, (False, None, None), called)

    def _fail(
        self,
        row: Row | RowGroup | list[Row],
        error: BaseException,
        kind: ErrorKind,
        *,
        final: bool,
        called: bool,
    ) -> None:
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
        self._port.fail(row, told, kind.value, (wants_retry, delay, pause), called)

    def divide(
        self, part: list[Row] | RowGroup, error: BaseException, *, called: bool = True
    ) -> None:
        """Takes the exception that ended a call which is made again for a part of its rows.

        Args:
            part: Those rows; they come back as other attempts.
            error: The exception.
            called: Whether the call was for them. Else they were left out of it.
        """
        _explain(error)
        if self.remarks:
            self.remarks.send(self._port)
        self._port.divide(part, error, called)

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
                self._port.fail(row, error, ErrorKind.INTERNAL.value, (False, None, None), True)  # noqa: FBT003

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
    if type(error) is RuntimeError and (text := text_of(error)).endswith(_RUNNING):
        error.args = (f"{text}; the function runs on one: `await` the coroutine instead",)
