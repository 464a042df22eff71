# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Calls of a batched function that takes record batches, ``Batch(arrow=True)``.

Rows are collected as `BatchRunner` does, but come in groups, split and put together by the
extension module: what a call costs is per batch and per column. Runs on the event loop thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NoReturn, cast

import pyarrow as pa

from sparkawait._core import Row, RowGroup
from sparkawait._plan.plan import Plan
from sparkawait._values.conversion import Misfit
from sparkawait._values.kept import check_objects, kept_as
from sparkawait._worker.batch_lines import Doubt, Line
from sparkawait._worker.batching import BatchRunner, Call, is_of_rows, may_be_of_rows
from sparkawait._worker.feeder import invalid_column
from sparkawait._worker.runner import Parts
from sparkawait.exceptions import ErrorKind, ResultError


class ArrowRunner(BatchRunner):
    """Collects groups of rows and calls `async_invoke_batch` with record batches of them."""

    def __init__(self, parts: Parts) -> None:
        """Starts without rows."""
        super().__init__(parts)
        self.results = Results(parts.plan)

    def _take(self) -> tuple[list[Any], list[int], list[Row]] | None:
        return self.port.take_groups()

    def _start(self, calls: list[Any]) -> None:
        due = self.loop.time() + self._linger
        for channel, group in calls:
            for line, rows in self._by_line(channel if self._has_channels else None, group):
                line.append(rows, due, counts_bytes=False)
                self._added_to(line)
        self._send_due()

    def _by_line(self, key: int | None, group: RowGroup) -> Iterator[tuple[Line, Any]]:
        """Divides a group of one channel by the lines that its rows belong to."""
        if self._divided:
            back: dict[Line, set[int]] = {}
            for attempt in group.numbers():
                line = self._take_back(attempt)
                if line is not None:
                    back.setdefault(line, set()).add(attempt)
            for line, attempts in back.items():
                yield line, group.take(attempts)
        if len(group):
            yield self._line(key), group

    def _new_line(
        self, key: int | None, missing: int | None = None, doubt: Doubt | None = None
    ) -> Line:
        return GroupLine(key, missing, doubt)

    def _new_call(self, line: Line, rows: Any, doubt: Doubt) -> Call:
        return ArrowCall(self, line, rows, doubt)


class GroupLine(Line):
    """Groups of rows of one channel that are in no call yet, oldest first."""

    __slots__ = ()

    def append(self, row: Any, due: float, *, counts_bytes: bool) -> None:  # noqa: ARG002 - of rows
        """Adds a group, with its length where a row has its bytes."""
        self.waiting.append((row, len(row), due))
        self._bytes += len(row)

    def is_full(self, max_rows: int, max_bytes: int | None) -> bool:  # noqa: ARG002 - of rows
        """Tells whether there are enough rows for a call."""
        return self._bytes >= max_rows

    def take(self, max_rows: int, max_bytes: int | None) -> Any:  # noqa: ARG002 - of rows
        """Removes the rows of the next call, as one group."""
        group, count, due = self.waiting.popleft()
        taken: Any = group
        if count > max_rows:
            taken = taken.split(max_rows)
            self.waiting.appendleft((group, count - max_rows, due))
        while self.waiting and len(taken) < max_rows:
            group, count, due = self.waiting.popleft()
            part: Any = group
            if len(taken) + count > max_rows:
                part = part.split(max_rows - len(taken))
                self.waiting.appendleft((group, len(group), due))
            taken.extend(part)
        self._bytes -= len(taken)
        return taken

    def drop(self, ids: set[int]) -> bool:
        """Forgets these rows; returns whether another group is the oldest now."""
        first = self.waiting[0][0] if self.waiting else None
        groups: list[tuple[Any, int, float]] = [(it, 0, due) for it, _, due in self.waiting]
        kept = [(it, left, due) for it, _, due in groups if (left := it.drop(ids))]
        self.waiting = deque(kept)
        self._bytes = sum(left for _, left, _ in kept)
        return bool(kept) and kept[0][0] is not first


class ArrowCall(Call):
    """A call of `async_invoke_batch` with a record batch."""

    def __init__(self, runner: ArrowRunner, line: Line, rows: RowGroup, doubt: Doubt) -> None:
        """Starts the call."""
        super().__init__(runner, line, rows, doubt)
        self._results = runner.results
        # A copy, since what is called for keeps its rows.
        self._wanted = _copy_of(rows)
        self._is_cancelled = False
        self._alone: RowGroup | None = None
        """The row that is called for alone, if it is wanted: it is not among the others."""

    def cancel_rows(self, ids: set[int]) -> None:
        """Forgets these rows; the call is cancelled when nobody waits for it any more."""
        had, left = len(self._wanted), self._wanted.drop(ids)
        if self._alone is not None:
            if not self._alone.drop(ids):
                self.task.cancel()
        elif had and not left:
            self.cancel()

    def cancel(self) -> None:
        """Cancels the call; its outcome is no longer wanted."""
        self._is_cancelled = True
        self.task.cancel()

    async def _make(self) -> None:
        runner, rows = self._runner, self._rows
        if len(self._wanted) < self.size:
            # Somebody has stopped to wait for some before the call.
            rows = _copy_of(self._wanted)
        if not len(rows):
            return
        if self.doubt.error is not None and len(rows) > 1:
            await self._ask_one_alone(rows, self.doubt.error)
            return
        if not self._begin(rows):
            return
        error = await self._ask(rows)
        if error is None or self._is_cancelled:
            return
        if not (runner.splits and len(rows) > 1 and may_be_of_rows(error)):
            runner.replies.fail(rows, error)
        elif self.doubt.is_proven or is_of_rows(error):
            self._halve(error, self.doubt)
        else:
            doubt = Doubt(error=error, rows=len(self._wanted))
            self._call_again(self._wanted, error, doubt)

    async def _ask(self, rows: RowGroup) -> BaseException | None:
        """Calls for rows; returns what was raised, if they were not answered."""
        runner = self._runner
        try:
            returned = await runner.invoke(rows.record_batch())
        except BaseException as error:  # noqa: BLE001 - it is the outcome of the rows
            return error
        try:
            results = self._results.of(returned, len(rows))
            try:
                runner.replies.finish_group(rows, results)
            except pa.ArrowException:
                self._results.refuse_data(results)
        except ResultError as error:
            runner.replies.fail(rows, error, error.kind)
        except BaseException as error:  # noqa: BLE001 - whatever a stream of another library raises
            return error
        return None

    async def _ask_one_alone(self, rows: RowGroup, error: BaseException) -> None:
        """Does what a call of a list of rows does."""
        replies, numbers = self._runner.replies, rows.numbers()
        row = self._wanted.take({numbers[self.doubt.place(len(numbers))]})
        self._alone, self.size = _copy_of(row), 1
        if not self._begin(row):
            return
        its = await self._ask(row)
        if self._is_cancelled:
            return
        doubt: Doubt | None = Doubt(is_proven=True)
        if its is not None:
            doubt = self.doubt.of_next()
            # One that nobody waits for any more tells nothing.
            if len(self._alone):
                replies.fail(row, its)
                doubt = doubt if may_be_of_rows(its) else None
        if not len(self._wanted):
            return
        if doubt is None:
            replies.fail(self._wanted, error, called=False)
        elif doubt.is_proven:
            self._halve(error, doubt, called=False)
        else:
            self._call_again(self._wanted, error, doubt, called=False)

    def _halve(self, error: BaseException, doubt: Doubt, *, called: bool = True) -> None:
        half = self._wanted.split(len(self._wanted) // 2)
        self._call_again(half, error, doubt, called=called)
        self._call_again(self._wanted, error, doubt, called=called)

    def _call_again(
        self, part: RowGroup, error: BaseException, doubt: Doubt, *, called: bool = True
    ) -> None:
        numbers = part.numbers()
        self._runner.call_again(self.line, numbers, part, error, doubt, called=called)


def _copy_of(rows: RowGroup) -> RowGroup:
    copy = rows.split(0)
    copy.extend(rows)
    return copy


class Results:
    """Holds what a function returns to the columns that it declared.

    Args:
        plan: The call.
    """

    def __init__(self, plan: Plan) -> None:
        """Looks at the declared columns."""
        self._name = plan.function_name
        self._schema = plan.result_schema
        self._required = plan.required

    def of(self, returned: object, rows: int) -> pa.RecordBatch:
        """Returns the declared columns of what was returned for so many rows.

        Raises:
            ResultError: If they are not there, not of these types, or not as many rows.
        """
        batch = self._batch(returned)
        if batch.num_rows != rows:
            self._refuse(
                f"got {rows} rows and returned {batch.num_rows}; return one for each, in order",
                ErrorKind.BATCH_RESULT_COUNT_MISMATCH,
            )
        if batch.schema == self._schema:
            return self._whole(batch)
        columns = [self._column(batch, field) for field in self._schema]
        return self._whole(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _batch(self, returned: object) -> pa.RecordBatch:
        if isinstance(returned, pa.RecordBatch):
            return returned
        if isinstance(returned, pa.Table) or hasattr(returned, "__arrow_c_stream__"):
            try:
                check_objects(returned)
            except Misfit as error:
                kind = ErrorKind.RESULT_SCHEMA_MISMATCH
                self._refuse(f"returned column `{error.path}` with {error.got}", kind)
            whole = pa.table(cast("Any", returned)).combine_chunks()
            batches = whole.to_batches()
            return batches[0] if batches else pa.RecordBatch.from_pylist([], whole.schema)
        if returned is None:
            what, kind = "returned None; return", ErrorKind.RESULT_IS_NONE
        else:
            what = f"returned a `{type(returned).__name__}`; return"
            kind = ErrorKind.RESULT_SCHEMA_MISMATCH
        return self._refuse(f"{what} a pyarrow.RecordBatch", kind)

    def _column(self, batch: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
        if batch.schema.names.count(field.name) != 1:
            found = ", ".join(f"`{name}`" for name in batch.schema.names[:13]) or "none"
            self._refuse(
                f"must return column `{field.name}` once, got {found}",
                ErrorKind.RESULT_SCHEMA_MISMATCH,
            )
        column = batch.column(field.name)
        if column.type == field.type:
            return column
        try:
            return kept_as(column, field.type)
        except (pa.ArrowException, Misfit, ValueError) as error:
            # Arrow quotes the value, which is nothing for a message.
            reason = " without loss" if isinstance(error, pa.ArrowInvalid) else ""
            self._refuse(
                f"returned column `{field.name}` as {column.type}, which is not {field.type}"
                f"{reason}",
                ErrorKind.RESULT_SCHEMA_MISMATCH,
            )

    def refuse_data(self, batch: pa.RecordBatch) -> NoReturn:
        """Says which column the extension module has refused.

        Raises:
            ResultError: Always.
        """
        name = invalid_column(batch)
        column = "columns" if name is None else f"column `{name}`"
        self._refuse(
            f"returned {column} with data that is not what its type says, such as a text that is"
            " not UTF-8",
            ErrorKind.RESULT_SCHEMA_MISMATCH,
        )

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in self._required:
            nulls = batch.column(name).null_count
            if nulls:
                self._refuse(
                    f"returned {nulls} nulls in column `{name}`, which is declared NOT NULL",
                    ErrorKind.RESULT_SCHEMA_MISMATCH,
                )
        return batch

    def _refuse(self, what: str, kind: ErrorKind) -> NoReturn:
        msg = f"`{self._name}` {what}"
        raise ResultError(msg, kind)
