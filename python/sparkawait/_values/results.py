# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""What users' functions return, turned into Arrow columns.

Columns are built for many rows at once, in C; only when that fails, each row is looked at, so that
a row that does not fit fails alone. Rows that are too large together are built in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa

from sparkawait._checks import is_any_list, nullable
from sparkawait._core import simple_string
from sparkawait._schema.ddl import LEFT_OUT
from sparkawait._values.conversion import Misfit, conversion_to
from sparkawait._values.records import rows_of
from sparkawait.exceptions import ErrorKind, ResultError

_RowT = TypeVar("_RowT")
_ONLY_DICTS = {dict}
_GROUP_BYTES = 16 * 1024 * 1024
"""What the columns of a group come to, by the size of the rows before: enough that a group costs
little, and so little that what a row waits in is not large."""
_FIRST_ROWS = 256
"""Rows of the first group, whose size is not known."""
_MOST_CHARACTERS = 2**29
"""Characters in the maps and lists of a group. Where the texts in a map column pass 2 GiB, PyArrow
ends the process instead of raising, and where those of one list do, it never returns. A character
has up to four bytes."""
_MOST_BYTES = 2**31 - 2**20
"""Bytes of a row alone, with room for what else is in its columns."""


class TooLargeError(Exception):
    """The results have more in one column than the 2 GiB that it can hold."""


@dataclass(frozen=True)
class Built(Generic[_RowT]):
    """The results of many rows, ready for the operator."""

    rows: list[_RowT]
    """The rows whose results fit."""
    mappings: list[list[Mapping[str, Any]]] | None
    """Their results; ``None`` when each has exactly one, which is as it was given."""
    batch: pa.RecordBatch
    """All of the results, in the order of `rows`."""
    failures: list[tuple[_RowT, ResultError]]
    """The rows whose results do not fit."""

    @property
    def counts(self) -> list[int] | None:
        """Results of each row; ``None`` when each has exactly one."""
        return None if self.mappings is None else list(map(len, self.mappings))


class ResultBuilder:
    """Builds record batches of `schema` from mappings.

    Args:
        schema: The schema of the batches.
        required: Columns that must not be null.
    """

    def __init__(self, schema: pa.Schema, required: Collection[str] = ()) -> None:
        """Prepares one getter for all columns."""
        self._schema = schema
        self._names: list[str] = schema.names
        self._types: list[pa.DataType] = schema.types
        self._required = [schema.names.index(name) for name in required]
        self._conversions = [
            (index, conversion)
            for index, data_type in enumerate(self._types)
            if (conversion := conversion_to(data_type)) is not None
        ]
        self._nested_texts = [
            (index, _counter_of(found))
            for index, found in enumerate(self._types)
            if _has_nested_text(found, is_inside=False)
        ]
        self._rows_per_group = _FIRST_ROWS
        single = len(self._names) == 1
        self._left_out = {
            it.name for it in schema if LEFT_OUT.items() <= (it.metadata or {}).items()
        }
        self._only: Callable[[Any], Any] | None = self._getter() if single else None
        self._all: Callable[[Any], Any] = self._getter()
        self._is_array = single and is_any_list(self._types[0])
        self._empty = pa.RecordBatch.from_arrays(
            [pa.array([], type=data_type) for data_type in self._types], schema=schema
        )

    def _getter(self) -> Callable[[Any], Any]:
        names, left_out = self._names, self._left_out
        if not left_out:
            return itemgetter(*names)
        if len(names) == 1:
            return lambda row: row.get(names[0])
        return lambda row: [row.get(it) if it in left_out else row[it] for it in names]

    def groups(self, rows: Sequence[_RowT], results: Sequence[object]) -> Iterator[Built[_RowT]]:
        """Builds batches of all `results`, of about 16 MB each; a row that fits none fails.

        Args:
            rows: The row that each result belongs to.
            results: What the function returned for each.
        """
        start = 0
        while start < len(rows):
            end = start + self._rows_per_group
            yield from self._halves(rows[start:end], results[start:end])
            start = end

    def _halves(self, rows: Sequence[_RowT], results: Sequence[object]) -> Iterator[Built[_RowT]]:
        try:
            built = self.build(rows, results)
        except TooLargeError:
            if len(rows) == 1:
                yield Built([], None, self._empty, [(rows[0], _too_large())])
                return
            middle = len(rows) // 2
            yield from self._halves(rows[:middle], results[:middle])
            yield from self._halves(rows[middle:], results[middle:])
        else:
            self._rows_per_group = max(_GROUP_BYTES * len(rows) // max(built.batch.nbytes, 1), 1)
            yield built

    def build(self, rows: Sequence[_RowT], results: Sequence[object]) -> Built[_RowT]:
        """Builds the batch of all `results`; rows that do not fit come back as failures.

        Args:
            rows: The row that each result belongs to.
            results: What the function returned for each.

        Raises:
            TooLargeError: If they are too large for one batch.
        """
        if set(map(type, results)) == _ONLY_DICTS:
            try:
                batch = self.to_batch(cast("Sequence[Mapping[str, Any]]", results))
            except TooLargeError:
                raise
            except Exception:  # noqa: BLE001, S110 - found again below, row by row
                pass
            else:
                return Built(list(rows), None, batch, [])
        return self._build_slowly(rows, results)

    def rows_of(self, result: object) -> list[Mapping[str, Any]]:
        """Returns the rows that `result` stands for.

        Raises:
            ResultError: If it is not a row; says what to return.
        """
        return rows_of(result, self._names, is_array=self._is_array)

    def to_batch(self, mappings: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Builds one row per mapping; one that does not fit makes it raise anything."""
        if not mappings:
            return self._empty
        columns: list[Sequence[Any]]
        if self._only is not None:
            columns = [list(map(self._only, mappings))]
        else:
            columns = list(zip(*map(self._all, mappings), strict=True))
        for index, conversion in self._conversions:
            columns[index] = conversion.all(columns[index])
        for index, characters in self._nested_texts:
            if characters(columns[index]) > _MOST_CHARACTERS and (
                len(mappings) > 1 or _bytes(columns[index]) > _MOST_BYTES
            ):
                raise TooLargeError
        arrays = [
            _array(column, data_type)
            for column, data_type in zip(columns, self._types, strict=True)
        ]
        for index in self._required:
            if arrays[index].null_count:
                raise _null_error(self._names[index])
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _build_slowly(self, rows: Sequence[_RowT], results: Sequence[object]) -> Built[_RowT]:
        fitting: list[tuple[_RowT, list[Mapping[str, Any]]]] = []
        failures: list[tuple[_RowT, ResultError]] = []
        for row, result in zip(rows, results, strict=True):
            try:
                fitting.append((row, self.rows_of(result)))
            except ResultError as error:
                failures.append((row, error))
        try:
            batch = self.to_batch([one for _, many in fitting for one in many])
        except TooLargeError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, it belongs to one of the rows
            fitting, unfit = self._split(fitting)
            failures += unfit
            batch = self.to_batch([one for _, many in fitting for one in many])
        return Built([row for row, _ in fitting], [many for _, many in fitting], batch, failures)

    def _split(
        self, candidates: Iterable[tuple[_RowT, list[Mapping[str, Any]]]]
    ) -> tuple[list[tuple[_RowT, list[Mapping[str, Any]]]], list[tuple[_RowT, ResultError]]]:
        fitting: list[tuple[_RowT, list[Mapping[str, Any]]]] = []
        failures: list[tuple[_RowT, ResultError]] = []
        for row, mappings in candidates:
            try:
                self.to_batch(mappings)
            except TooLargeError:
                failures.append((row, _too_large()))
            except Exception:  # noqa: BLE001 - explained by the error made here
                failures.append((row, self._explain(mappings)))
            else:
                fitting.append((row, mappings))
        return fitting, failures

    def _explain(self, mappings: list[Mapping[str, Any]]) -> ResultError:
        """Finds the first column that does not fit. Values stay out of the message."""
        for mapping in mappings:
            for field in self._schema:
                error = self._explain_cell(mapping, field)
                if error is not None:
                    return error
        msg = "the result does not fit the schema"
        return ResultError(msg, ErrorKind.RESULT_SCHEMA_MISMATCH)

    def _explain_cell(self, mapping: Mapping[str, Any], field: pa.Field) -> ResultError | None:
        name = field.name
        is_required = self._names.index(name) in self._required
        try:
            value = mapping.get(name) if name in self._left_out else mapping[name]
        except Exception:  # noqa: BLE001 - a mapping of the user's may raise anything
            hint = f"; return {{{name!r}: ..}}" if self._only is not None else ""
            msg = f"column `{name}` is missing from the result{hint}"
            return ResultError(msg, ErrorKind.RESULT_SCHEMA_MISMATCH)
        conversion = conversion_to(field.type)
        path = ""
        try:
            values = [value] if conversion is None else conversion.all([value])
            array = _array(values, field.type)
        except Misfit as error:
            got, path = error.got, error.path
        except Exception:  # noqa: BLE001 - pyarrow's own message would hold the value
            got = f"a value of type `{type(value).__name__}` that does not fit"
        else:
            return _null_error(name) if is_required and array.null_count else None
        where = f" (in `{name}{path}`)" if path else ""
        hint = "; await it" if isawaitable(value) else ""
        msg = f"column `{name}` is declared as {simple_string(field.type)}, got {got}{where}{hint}"
        return ResultError(msg, ErrorKind.RESULT_SCHEMA_MISMATCH)


# -- one result of a row or none, as column functions have, or results that nobody looks at

_MARK = "sparkawait_found"
_NO_RESULT: Mapping[str, Any] = {}


class OneResult(ResultBuilder):
    """Builds one row for each row: its only result, or nulls; and marks those that have one.

    Args:
        declared: The columns of a result.
        required: Columns that must not be null in one.
    """

    def __init__(self, declared: pa.Schema, required: Collection[str]) -> None:
        """Prepares a builder of results, whose columns are null for rows that have none."""
        super().__init__(pa.schema(nullable(declared)), required)

    def build(self, rows: Sequence[_RowT], results: Sequence[object]) -> Built[_RowT]:
        """Builds as `ResultBuilder` does; a row with several results is a failure, too."""
        if set(map(type, results)) == _ONLY_DICTS:
            return super().build(rows, results)
        fitting: list[_RowT] = []
        ones: list[object] = []
        failures: list[tuple[_RowT, ResultError]] = []
        for row, result in zip(rows, results, strict=True):
            try:
                ones.append(result if type(result) is dict else _only(self.rows_of(result)))
            except ResultError as error:
                failures.append((row, error))
            else:
                fitting.append(row)
        built = super().build(fitting, ones)
        return replace(built, failures=failures + built.failures)

    def to_batch(self, mappings: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Builds one row for each mapping, with its mark."""
        found = [mapping is not _NO_RESULT for mapping in mappings]
        batch = super().to_batch([mapping for mapping in mappings if mapping is not _NO_RESULT])
        if not all(found):
            position = iter(range(batch.num_rows))
            indices = [next(position) if one else None for one in found]
            batch = batch.take(pa.array(indices, pa.int64()))
        arrays = [*batch.columns, pa.array(found, pa.bool_())]
        return pa.RecordBatch.from_arrays(arrays, schema=with_mark(batch.schema))


def with_mark(declared: pa.Schema) -> pa.Schema:
    """Returns `declared`, all nullable, with a mark behind it: whether a row has a result.

    A row without is null, and not a result whose columns are all null.
    """
    mark = pa.field(mark_beside(declared.names), pa.bool_())
    return pa.schema([*nullable(declared), mark])


def mark_beside(names: Sequence[str]) -> str:
    """Returns what the mark is called beside columns with these `names`."""
    return unlike(_MARK, names)


def unlike(name: str, names: Sequence[str]) -> str:
    """Returns `name`, changed as long as it is one of `names`, whatever their case."""
    taken = {it.lower() for it in names}
    while name in taken:
        name += "_"
    return name


def _only(many: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(many) > 1:
        msg = f"a column function must return one result per row, got {len(many)}"
        raise ResultError(msg, ErrorKind.RESULT_SCHEMA_MISMATCH)
    return many[0] if many else _NO_RESULT


NOTHING = pa.schema([pa.field("_sparkawait_nothing", pa.bool_())])
"""The column of a function whose results nobody looks at."""


class NoResults(ResultBuilder):
    """Builds a null for each row, whatever its result is."""

    def __init__(self) -> None:
        """Builds `NOTHING`."""
        super().__init__(NOTHING)

    def build(self, rows: Sequence[_RowT], results: Sequence[object]) -> Built[_RowT]:  # noqa: ARG002
        """Builds as many rows as came."""
        batch = pa.RecordBatch.from_arrays([pa.nulls(len(rows), pa.bool_())], schema=NOTHING)
        return Built(list(rows), None, batch, [])


def _array(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    array = pa.array(values, type=data_type)
    if isinstance(array, pa.ChunkedArray):
        # What PyArrow makes of more than the 32 bits of an offset count.
        raise TooLargeError
    return array


def _has_nested_text(data_type: pa.DataType, *, is_inside: bool) -> bool:
    """Whether there are texts or bytes in a map or a list of `data_type`, or it `is_inside` one."""
    if _is_text(data_type):
        return is_inside
    is_inside = is_inside or pa.types.is_map(data_type) or is_any_list(data_type)
    parts = (data_type.field(index).type for index in range(data_type.num_fields))
    return any(_has_nested_text(part, is_inside=is_inside) for part in parts)


def _is_text(data_type: pa.DataType) -> bool:
    return any(is_kind(data_type) for is_kind in (pa.types.is_string, pa.types.is_binary))


def _counter_of(data_type: Any) -> Callable[[Sequence[Any]], int]:
    """Returns what counts the characters and bytes in the values of a column."""
    if not is_any_list(data_type) or not _is_text(data_type.value_type):
        return _characters

    def of_lists(values: Sequence[Any]) -> int:
        try:
            return sum(map(len, chain.from_iterable(values)))
        except TypeError:  # there is a null
            return _characters(values)

    return of_lists


def _characters(value: Any) -> int:
    """Counts the characters and bytes of texts, wherever they are in `value`."""
    return _sum(value, len)


def _bytes(value: Any) -> int:
    """Counts the bytes of texts, wherever they are in `value`."""
    return _sum(value, lambda it: len(it.encode()) if isinstance(it, str) else len(it))


def _sum(value: Any, measure: Callable[[Any], int]) -> int:
    if isinstance(value, (str, bytes)):
        return measure(value)
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    return sum(_sum(it, measure) for it in value) if isinstance(value, (list, tuple)) else 0


def _too_large() -> ResultError:
    msg = (
        "the results of one row have more than 2 GiB in one column, which no column can hold;"
        " return less, or a reference to where it is"
    )
    return ResultError(msg, ErrorKind.RESULT_TOO_LARGE)


def _null_error(name: str) -> ResultError:
    msg = f"column `{name}` is declared as not null, got None"
    return ResultError(msg, ErrorKind.RESULT_SCHEMA_MISMATCH)
