# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Column functions before Spark 4.1, where columns reach Python through pandas only.

Pandas has fewer types than Spark, so arguments of a call on columns are sent as JSON, with their
types. In SQL there are only the values that pandas has made of the arguments: those that may have
been others are refused. Results leave as Arrow arrays. Used in the executor, like `columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.spark.schemas import with_zone
from sparkawait.spark.texts import PROBE_TEXT, parse_rows
from sparkawait.spark.type_texts import parse_type_text

if TYPE_CHECKING:
    from sparkawait.spark.columns import ColumnTask

__all__ = ["pandas_function"]


def pandas_function(task: ColumnTask) -> Callable[..., Any]:
    """Returns what Spark calls for `task`; the annotations tell it what to pass."""
    if task.arguments.packed:

        def evaluate(arguments: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            return map(_wrapped, task.run(_packed_rows(task, arguments)))

    else:

        def evaluate(arguments: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            return map(_plain, task.run(_Rows(task).to_batches(arguments)))

    evaluate.__name__ = task.plan.function_name
    return evaluate


def _packed_rows(task: ColumnTask, arguments: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of each batch of texts, which come with their types and the time zone."""
    row_type: Any = None
    for texts, types, zones, probes in arguments:
        if not len(texts):
            continue
        if row_type is None:
            if probes.iloc[0] != PROBE_TEXT:
                msg = (
                    "before Spark 4.1 column functions need"
                    " spark.sql.legacy.timeParserPolicy=CORRECTED or EXCEPTION"
                )
                raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
            schema = pa.schema([("row", parse_type_text(types.iloc[0]))])
            row_type = with_zone(schema, zones.iloc[0]).field("row").type
        yield task.arguments.to_rows(parse_rows(texts, row_type))


class _Rows:
    """Makes record batches of one schema from arguments in SQL; the first batch sets the types."""

    def __init__(self, task: ColumnTask) -> None:
        self._arguments = task.arguments
        self._types: list[Any] = []

    def to_batches(self, arguments: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of each batch of arguments."""
        for one in arguments:
            is_struct = isinstance(one, pd.DataFrame)
            columns = [one[name] for name in one.columns] if is_struct else _many(one)
            if columns and len(columns[0]):
                yield self._to_batch(columns, is_struct=is_struct)

    def _to_batch(self, columns: list[pd.Series], *, is_struct: bool) -> pa.RecordBatch:
        arrays = [_exact(column, index) for index, column in enumerate(columns)]
        if not self._types:
            self._types = [pa.string() if it.type == pa.null() else it.type for it in arrays]
        for index, (array, expected) in enumerate(zip(arrays, self._types, strict=True)):
            if array.type == pa.null():
                arrays[index] = pa.nulls(len(array), expected)
            elif array.type != expected:
                raise _inexact(index, f"was {expected} before and is {array.type} now")
        if is_struct:
            names = [str(column.name) for column in columns]
            return self._arguments.to_rows(pa.StructArray.from_arrays(arrays, names=names))
        return self._arguments.to_rows(arrays[0] if len(arrays) == 1 else tuple(arrays))


def _many(arguments: Any) -> list[pd.Series]:
    return list(arguments) if isinstance(arguments, tuple) else [arguments]


def _exact(column: pd.Series, index: int) -> Any:
    """Returns the values that an argument certainly had.

    Raises:
        ConfigurationError: If they may have been others.
    """
    kind = column.dtype.kind
    if kind == "f" and column.isna().any():
        raise _inexact(index, "has null or NaN among numbers, which pandas does not tell apart")
    if kind == "M" or (kind == "O" and any(isinstance(it, datetime) for it in column)):
        raise _inexact(index, "is a timestamp or a timestamp_ntz, which cannot be told apart")
    if kind == "m":
        return pa.Array.from_pandas(column, type=pa.duration("us"))
    if kind != "O":
        return pa.Array.from_pandas(column)
    values = column.tolist()
    kinds = {type(value) for value in values if value is not None}
    if kinds == {Decimal}:
        scale = -min(value.as_tuple().exponent for value in values if value is not None)
        return pa.array(values, pa.decimal128(38, scale))
    if not kinds <= _SIMPLE:
        raise _inexact(index, "is nested, and values within may have changed")
    return pa.array(values)


_SIMPLE = {bool, str, bytes, bytearray, date}
"""What pandas leaves as it is, with its nulls."""


def _inexact(index: int, why: str) -> ConfigurationError:
    msg = (
        f"argument {index + 1} {why}: before Spark 4.1 such arguments do not reach a column"
        " function in SQL; call the function on columns, or cast the argument to a string"
    )
    return ConfigurationError(msg, ErrorKind.INPUT_INVALID)


class _Exact(pd.arrays.ArrowExtensionArray):
    """An Arrow array that PySpark's conversions leave alone."""

    def map(self, mapper: Any, na_action: Any = None) -> Any:  # noqa: ARG002
        return self


def _series(column: pa.Array) -> pd.Series:
    return pd.Series(_Exact(pa.chunked_array([column])))


def _wrapped(column: Any) -> Any:
    """Returns what a call on columns expects: an array of none or one struct for each struct."""
    if not pa.types.is_struct(column.type):
        return _series(column)
    valid = column.is_valid()
    ends = pc.cumulative_sum(pc.cast(valid, pa.int32()))
    offsets: Any = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return _series(pa.ListArray.from_arrays(offsets, column.filter(valid)))


def _plain(column: pa.Array) -> Any:
    """Returns what Spark expects in SQL.

    Raises:
        ConfigurationError: If a struct is null, which it could not tell from one with nulls.
    """
    if not pa.types.is_struct(column.type):
        return _series(column)
    if column.null_count:
        msg = (
            "before Spark 4.1 a column function in SQL cannot return null for a struct; call it on"
            " columns, return one column, or use on_error='capture'"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    parts = column.flatten()  # pyright: ignore[reportAttributeAccessIssue]
    members = zip(column.type, parts, strict=True)
    return pd.DataFrame({field.name: _series(member) for field, member in members})
