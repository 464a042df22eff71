# SPDX-License-Identifier: Apache-2.0
"""The rows of a column function: one result for each, in batches of the lengths that came.

Called on the task thread of an executor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkawait._values.results import unlike
from sparkawait.exceptions import ErrorKind, InternalError, ResultError


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
