# SPDX-License-Identifier: Apache-2.0
"""A column function in the executor: arguments to rows, and one result per row to a column.

```text
  argument batches --> rows --> ordered operator --> results --> cut to the lengths of the batches
        `lengths` remembers how long each one was --------------------^
```

Rows are packed on the feeder thread, everything else happens on the task thread.
"""

from __future__ import annotations

import copy
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, cast

import pyarrow as pa
import pyarrow.compute as pc

from sparkawait._callables import describe, is_async
from sparkawait._plan.plan import Chain, Plan
from sparkawait._plan.resolve import Call
from sparkawait._schema.types import Row, with_zone
from sparkawait._values.results import mark_beside, unlike
from sparkawait.exceptions import ConfigurationError, ErrorKind, InternalError, ResultError
from sparkawait.functions import AsyncFunction, NativeFunction
from sparkawait.options import WaitOptions
from sparkawait.spark.reports import Reports
from sparkawait.spark.schemas import casts, check_arguments, read_arguments
from sparkawait.spark.session import Times, zone_of_task
from sparkawait.spark.shipment import Shipment
from sparkawait.spark.tasks import run_task, with_types

# -- the rows of a column function: one result for each, in batches of the lengths that came
#
# Called on the task thread of an executor.


def numbered(batch: pa.RecordBatch, first: int, hidden: int) -> pa.RecordBatch:
    """Returns `batch` with the number of each row in the task, as the last column that is seen."""
    numbers = pa.array(range(first, first + batch.num_rows), pa.int64())
    columns, names = list(batch.columns), list(batch.schema.names)
    place = len(columns) - hidden
    columns.insert(place, numbers)
    names.insert(place, unlike("sparkawait_number", names))
    return pa.RecordBatch.from_arrays(columns, names=names)


class NullRows:
    """Takes the rows with a null out of the batches of arguments, and puts a null for each back.

    Args:
        hidden: How many columns stand behind the arguments.
    """

    def __init__(self, hidden: int) -> None:
        """Has seen no batch yet."""
        self._hidden = hidden
        self._places: deque[pa.Array | None] = deque()

    def taken_out(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of `batch` whose arguments all have a value."""
        arguments: list[Any] = batch.columns[: batch.num_columns - self._hidden]
        if not any(one.null_count for one in arguments):
            self._places.append(None)
            return batch
        stays: Any = arguments[0].is_valid()
        for one in arguments[1:]:
            stays = pc.and_(stays, one.is_valid())
        # The place of each row among those that stay, and none for the others.
        places: Any = pc.subtract(pc.cumulative_sum(stays.cast(pa.int64())), 1)
        self._places.append(pc.if_else(stays, places, pa.scalar(None, pa.int64())))
        return batch.filter(stays)

    def put_back(self, columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Yields a column of results for each batch that came, from one for what was left of it."""
        for column in columns:
            places = self._places.popleft()
            yield column if places is None else column.take(places)


@dataclass(frozen=True)
class Counts:
    """What is known of the rows of a task.

    Attributes:
        came: Tells how many have come.
        left_out: Tells, when the output has ended, how many were left out because they have no
            result, or have failed.
    """

    came: Callable[[], int]
    left_out: Callable[[], int]


def one_for_each(
    output: Iterator[pa.RecordBatch],
    place: int,
    results: Callable[[pa.RecordBatch], pa.RecordBatch],
    empty: pa.RecordBatch,
    counts: Counts,
) -> Iterator[pa.RecordBatch]:
    """Yields a result for each row that came: nulls where it was left out.

    Args:
        output: Rows in their order, with their numbers.
        place: Where the numbers are.
        results: Returns the columns of the results.
        empty: Results of no row.
        counts: Tells how many rows came, and how many of them were left out.

    Raises:
        ResultError: If a row has several.
        InternalError: If a row is missing that was not left out.
    """
    done = found_rows = 0
    for batch in output:
        if not batch.num_rows:
            continue
        numbers: Any = batch.columns[place]
        end = numbers[-1].as_py() + 1
        found = results(batch)
        if not numbers.equals(pa.array(range(done, done + len(numbers)), pa.int64())):
            rows: list[int] = numbers.to_pylist()
            if len(set(rows)) < len(rows) or rows[0] < done:
                msg = "a column function must return one result per row, got several"
                raise ResultError(msg, ErrorKind.RESULT_SCHEMA_MISMATCH)
            position = {number: index for index, number in enumerate(rows)}
            indices = [position.get(number) for number in range(done, end)]
            found = found.take(pa.array(indices, pa.int64()))
        done = end
        found_rows += len(numbers)
        yield found
    came, left_out = counts.came(), counts.left_out()
    if came != found_rows + left_out:
        msg = (
            f"{came} rows came, {found_rows} have results and {left_out} were left out without one:"
            " the others are missing, and null would not be true of them; please report this"
        )
        raise InternalError(msg, ErrorKind.INTERNAL)
    if done < came:
        yield empty.take(pa.array([None] * (came - done), pa.int64()))


def cut(columns: Iterator[pa.Array], lengths: deque[int], empty: pa.Array) -> Iterator[pa.Array]:
    """Cuts `columns` to `lengths`, which grows while columns are pulled."""
    held: deque[pa.Array] = deque()
    rows = 0
    for column in columns:
        held.append(column)
        rows += len(column)
        while lengths and lengths[0] <= rows:
            length = lengths.popleft()
            rows -= length
            yield _take(held, length, empty)
    if rows or any(lengths):
        msg = f"{rows} results were left for batches of {list(lengths)} rows"
        raise InternalError(msg, ErrorKind.INTERNAL)
    for _ in lengths:
        yield empty


def _take(held: deque[pa.Array], length: int, empty: pa.Array) -> pa.Array:
    """Takes the first `length` rows out of `held`."""
    taken: list[pa.Array] = []
    while length:
        column = held.popleft()
        if len(column) > length:
            held.appendleft(column.slice(length))
            column = column.slice(0, length)
        taken.append(column)
        length -= len(column)
    if not taken:
        return empty
    return taken[0] if len(taken) == 1 else pa.concat_arrays(taken)


# -- the task


def dropping_misses(call: Call) -> Call:
    """Returns a call of a native function that drops rows without result, which are null then.

    A row of nulls would be like a result whose columns are all null.
    """
    function, options = call.function, call.options
    is_told = options.on_error.column is not None or options.info is not None
    if not isinstance(function, NativeFunction) or is_told:
        return call
    kept = options.on_error
    if kept.action == "null":
        dropping: dict[str, Any] = {**options.given, "on_error": replace(kept, action="drop")}
        options = WaitOptions(**dropping)
    return replace(call, function=function.dropping_misses(), options=options)


@dataclass(frozen=True)
class Arguments:
    """How the arguments of a column function make up a row.

    Attributes:
        names: Names of the arguments; ``None`` if they come with the data.
        packed: Whether they arrive in one struct that was made for the call.
        may_be_row: Whether a single packed argument is the row itself, if it is a struct.
        are_values: Whether the function takes values, so that the row has places for names and a
            struct is a value like any other.
        hidden: Names of the last arguments, which options were computed into and no function sees.
    """

    names: tuple[str, ...] | None
    packed: bool
    may_be_row: bool
    are_values: bool = False
    hidden: tuple[str, ...] = ()

    def to_rows(self, arguments: pa.Array | tuple[pa.Array, ...]) -> pa.RecordBatch:
        """Returns the rows that one batch of arguments stands for.

        Raises:
            ConfigurationError: If the arguments are without names, or not as many as `names`.
        """
        arrays = list(arguments) if isinstance(arguments, tuple) else [arguments]
        if not arrays:
            self._refuse(0)
        first = arrays[0]
        if self.are_values and not self.packed:
            names = self.names or [str(index) for index in range(len(arrays))]
            return _batch(arrays, [*names, *self.hidden])
        if len(arrays) == 1 and pa.types.is_struct(first.type):
            members = first.flatten()  # pyright: ignore[reportAttributeAccessIssue]
            visible = len(members) - len(self.hidden)
            names = [field.name for field in first.type]
            if self.may_be_row and visible == 1 and pa.types.is_struct(members[0].type):
                row = members[0]
                names[:1], members[:1] = [field.name for field in row.type], row.flatten()
            elif self.packed and self.names:
                names[:visible] = self.names
            return _batch(members, names)
        if self.names is None or len(self.names) != len(arrays):
            self._refuse(len(arrays))
        return _batch(arrays, self.names or ())

    def _refuse(self, count: int) -> NoReturn:
        if count == 0:
            # Spark does not tell of calls in SQL before it runs them.
            msg = "a column function needs at least one argument, got none; pass the row's columns"
        elif self.names is None:
            msg = (
                f"got {count} arguments without names; pass one named_struct(..),"
                " or name them with async_udf(.., columns=[..])"
            )
        else:
            msg = f"`columns` names {len(self.names)} arguments, got {count}"
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _batch(arrays: Sequence[pa.Array], names: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays), names=list(names))


class ColumnTask(Shipment):
    """A column function over one partition.

    Args:
        plan: The call.
        arguments: How rows are made of the arguments.
        reports: How the driver learns of the calls.
        is_struct: Whether a result of one column is a struct, too.
        skip_null: Whether a row with a null makes no call.
        usual_zone: The time zone of the session that runs the query, if nobody has set one there.
    """

    def __init__(
        self,
        plan: Plan,
        arguments: Arguments,
        reports: Reports,
        *,
        is_struct: bool = False,
        skip_null: bool = False,
        usual_zone: str = "UTC",
    ) -> None:
        """Starts nothing: this is the driver."""
        self.plan = plan
        self.arguments = arguments
        self._reports = reports
        self._is_struct = is_struct
        self._skip_null = skip_null
        self._usual_zone = usual_zone

    def arrow_function(self) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
        """Returns what Spark calls; the annotations tell it what to pass."""

        def evaluate(arguments: Iterator[pa.Array]) -> Iterator[pa.Array]:
            return self.run(read_arguments(arguments, self.arguments.to_rows))

        evaluate.__name__ = self.plan.function_name
        return evaluate

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
        """Yields a column for each batch of rows, of the same length and in their order."""
        lengths: deque[int] = deque()
        function = self._plan_here.function
        is_native = isinstance(function, NativeFunction)
        hidden = len(self.arguments.hidden)
        nulls = NullRows(hidden) if self._skip_null else None
        rows = 0

        def measured() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in batches:
                if not lengths:
                    check_arguments(function, batch.schema)
                called = batch if nulls is None else nulls.taken_out(batch)
                lengths.append(called.num_rows)
                yield numbered(called, rows, hidden) if is_native else called
                rows += called.num_rows

        left_out = 0

        def ended(count: int) -> None:
            nonlocal left_out
            left_out = count

        chain = Chain.of(self._plan_here)
        output = run_task(chain, measured(), self._reports, on_end=ended)
        if is_native:
            place = -len(self._plan_here.added_fields) - 1
            counts = Counts(lambda: rows, lambda: left_out)
            output = one_for_each(output, place, self._results, self._empty(), counts)
        columns = cut(map(self._to_column, output), lengths, self._to_column(self._empty()))
        return columns if nulls is None else nulls.put_back(columns)

    @cached_property
    def _plan_here(self) -> Plan:
        """The plan with times in the zone of the session that runs the query.

        The driver does not know which session that is.
        """
        schema = with_zone(self.plan.declared_schema, zone_of_task(self._usual_zone))
        return replace(self.plan, declared_schema=schema)

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        """The added columns, with the types that Spark takes."""
        plan = self._plan_here
        types = {it.name: it.type for it in plan.added_fields}
        if isinstance(plan.function, NativeFunction):
            types |= casts(plan, Times(zone_of_task(self._usual_zone)))
        return types

    def _results(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the columns of a native function, without those of the input, and the mark."""
        types = self._types
        rows = pa.RecordBatch.from_arrays(batch.columns[-len(types) :], names=list(types))
        found = pa.repeat(True, batch.num_rows)  # noqa: FBT003
        return self._marked(with_types(rows, types).columns, found)

    def _marked(self, arrays: Sequence[Any], found: Any) -> pa.RecordBatch:
        """Returns results with the mark where Python functions have it, before an error."""
        names, place = list(self._types), self._plan_here.width
        names.insert(place, mark_beside(names))
        return pa.RecordBatch.from_arrays([*arrays[:place], found, *arrays[place:]], names=names)

    def _empty(self) -> pa.RecordBatch:
        none = pa.RecordBatch.from_pylist([], schema=pa.schema(list(self._types.items())))
        if isinstance(self._plan_here.function, NativeFunction):
            return self._marked(none.columns, pa.array([], pa.bool_()))
        return none

    def _to_column(self, batch: pa.RecordBatch) -> pa.Array:
        place = self._plan_here.width
        found: Any = batch.column(place)
        members, fields = list(batch.columns), list(batch.schema)
        del members[place], fields[place]
        if len(members) == 1 and not self._is_struct:
            return members[0]
        # With something told beside the results, every row has a value.
        mask, declared = None, self._plan_here.declared_schema
        if not self._plan_here.told_fields:
            # Null is the whole of it then.
            fields = [field.with_nullable(declared.field(field.name).nullable) for field in fields]
            mask = pc.invert(pc.fill_null(found, cast("Any", False)))  # noqa: FBT003
        return pa.StructArray.from_arrays(members, fields=fields, mask=mask)


# -- a bare function, called with values as the function of Spark's `udf`.
#
# Made on the driver; its calls are made in the executor, on the event loop thread, or in threads.


class ValuesFunction(AsyncFunction):
    """Takes a row apart into arguments.

    Args:
        function: The ``async def``, or a plain function.
        column: The column that its value becomes; ``None`` if it returns rows.

    Attributes:
        keywords: Names of the last arguments, if they are given by name.
    """

    def __init__(self, function: Callable[..., Any], column: str | None) -> None:
        self.function = function
        self.column = column
        self.keywords: tuple[str, ...] = ()
        # Known on the driver; a worker has another copy of the function.
        self._is_async = is_async(function)

    @property
    def name(self) -> str:
        """The name of the function."""
        return describe(self.function)

    def with_keywords(self, keywords: tuple[str, ...]) -> ValuesFunction:
        """Returns the function whose last arguments have these names."""
        made = copy.copy(self)
        made.keywords = keywords
        return made

    async def async_invoke(self, row: Row) -> Any:
        """Calls the function with the cells of `row`."""
        return self._result(await self._call(self.function, row))

    def what_is_called(self, *, batched: bool) -> Callable[[Row], Any]:  # noqa: ARG002 - values of a row
        """Returns what is called for a row."""
        return self.async_invoke if self._is_async else self._invoke_blocking

    def _invoke_blocking(self, row: Row) -> Any:
        return self._result(self._call(self.function, row))

    def misfit(self, count: int) -> str | None:
        """Says why the function cannot be called with so many arguments; ``None`` if it can."""
        try:
            signature = inspect.signature(self.function)
        except ValueError:
            return None
        names = dict.fromkeys(self.keywords)
        try:
            signature.bind(*[None] * (count - len(self.keywords)), **names)
        except TypeError as error:
            return str(error)
        return None

    def _call(self, function: Callable[..., Any], row: Row) -> Any:
        values = list(row.values())
        if not self.keywords:
            return function(*values)
        first = len(values) - len(self.keywords)
        return function(*values[:first], **dict(zip(self.keywords, values[first:], strict=True)))

    def _result(self, result: Any) -> Any:
        if self.column is not None:
            return {self.column: result}
        return [] if result is None else result


class FallbackFunction(ValuesFunction):
    """One whose arguments are given to another function when a row has timed out.

    Args:
        function: As of a `ValuesFunction`.
        column: The same.
        fallback: The other function.
    """

    def __init__(
        self, function: Callable[..., Any], column: str | None, fallback: Callable[..., Any]
    ) -> None:
        super().__init__(function, column)
        self.fallback = fallback

    def on_timeout(self, row: Row) -> Any:
        """Returns what stands in for the result."""
        return self._result(self._call(self.fallback, row))
