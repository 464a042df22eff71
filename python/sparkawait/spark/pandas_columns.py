# SPDX-License-Identifier: Apache-2.0
"""Column functions before Spark 4.1, where columns reach Python through pandas only.

Pandas has fewer types than Spark. NaN is null, and a ``bigint`` with nulls in its batch loses
precision above 2**53; nested values pass if they hold neither maps nor zoned timestamps; a struct
result is never null itself, its fields are; timestamps are refused in SQL. Used in the executor,
like `columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from sparkawait.ddl import parse_type
from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from sparkawait.spark.columns import ColumnTask

__all__ = ["pandas_function"]


def pandas_function(task: ColumnTask) -> Callable[..., Any]:
    """Returns what Spark calls for `task`; the annotations tell it what to pass."""

    def evaluate(arguments: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        rows = _PackedRows(task) if task.arguments.packed else _Rows(task)
        return map(_to_pandas, task.run(rows.to_batches(arguments)))

    evaluate.__name__ = task.plan.function_name
    return evaluate


class _Rows:
    """Makes record batches of one schema from arguments in SQL; the first batch sets the types."""

    def __init__(self, task: ColumnTask) -> None:
        self._arguments = task.arguments
        self._type: pa.DataType | None = None
        self._zone: str | None = None

    def to_batches(self, arguments: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of each batch of arguments."""
        for one in arguments:
            columns = self._columns(one)
            if columns and len(columns[0]):
                yield self._to_batch(columns, is_struct=isinstance(one, pd.DataFrame))

    def _columns(self, argument: Any) -> list[pd.Series]:
        if isinstance(argument, pd.DataFrame):
            return [argument[name] for name in argument.columns]
        return list(argument) if isinstance(argument, tuple) else [argument]

    def _to_batch(self, columns: list[pd.Series], *, is_struct: bool) -> pa.RecordBatch:
        if self._type is None:
            names = [str(column.name) if is_struct else f"_{i}" for i, column in enumerate(columns)]
            types = map(_inferred, columns)
            self._type = pa.struct(list(zip(names, types, strict=True)))
        return self._rows(columns, is_struct=is_struct)

    def _rows(self, columns: list[pd.Series], *, is_struct: bool) -> pa.RecordBatch:
        fields = list(self._type or ())  # pyright: ignore[reportArgumentType]
        arrays = [
            _to_arrow(column, field.type, self._zone)
            for column, field in zip(columns, fields, strict=True)
        ]
        if is_struct:
            return self._arguments.to_rows(pa.StructArray.from_arrays(arrays, fields=fields))
        return self._arguments.to_rows(arrays[0] if len(arrays) == 1 else tuple(arrays))


class _PackedRows(_Rows):
    """The same for columns, which come with their types and the session's time zone."""

    def to_batches(self, arguments: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        for frame, types, zones in arguments:
            if len(types):
                if self._type is None:
                    self._type, self._zone = parse_type(types.iloc[0]), zones.iloc[0]
                yield self._rows(self._columns(frame), is_struct=True)


def _inferred(column: pd.Series) -> pa.DataType:
    found = pa.Array.from_pandas(column).type
    if pa.types.is_timestamp(found):
        msg = (
            "before Spark 4.1 a column function in SQL cannot tell timestamp from timestamp_ntz;"
            " cast it to a string, or call the function on columns"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    return pa.string() if pa.types.is_null(found) else found


def _to_arrow(column: pd.Series, data_type: pa.DataType, zone: str | None) -> pa.Array:
    if pa.types.is_timestamp(data_type) and data_type.tz is not None and zone is not None:
        # Spark shows them as local times of the session; of two, it means the later one.
        column = pd.to_datetime(column).dt.tz_localize(zone, ambiguous=False)
    elif pa.types.is_map(data_type):
        column = column.map(lambda value: list(value.items()), na_action="ignore")
    return pa.Array.from_pandas(column, type=data_type, safe=False)


def _to_pandas(column: pa.Array) -> Any:
    if pa.types.is_struct(column.type):
        parts = column.flatten()  # pyright: ignore[reportAttributeAccessIssue]
        members = zip(column.type, parts, strict=True)
        return pd.DataFrame({field.name: _to_series(member) for field, member in members})
    return _to_series(column)


def _to_series(column: pa.Array) -> pd.Series:
    values = column.to_pylist()
    if pa.types.is_map(column.type):
        values = [None if value is None else dict(value) for value in values]
    # Objects, because integers with nulls would become floats.
    return pd.Series(values, dtype=object)
