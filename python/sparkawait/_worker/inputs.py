# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Record batches of what an input consists of: whatever has rows, by protocol.

No library is imported: polars, pandas, DuckDB and others have ``__arrow_c_stream__``. Read by one
thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

import pyarrow as pa

from sparkawait._checks import refuse, shown
from sparkawait.exceptions import ErrorKind

KNOWN = (
    "record batches, or what has `__arrow_c_stream__`, such as tables and data frames, or lists of"
    " dicts"
)


class RecordBatches(Iterator[pa.RecordBatch]):
    """The record batches of the elements of an input.

    Args:
        elements: What has rows, see `opened`; all of one schema.
        schema: The schema, if it is known before there is an element.
    """

    def __init__(self, elements: Iterator[Any], schema: pa.Schema | None = None) -> None:
        """Reads nothing yet."""
        self._elements = elements
        self._of_element: Iterator[pa.RecordBatch] = iter(())
        self._schema = schema

    def __next__(self) -> pa.RecordBatch:
        """Returns the next batch.

        Raises:
            ConfigurationError: If the next element has no rows that are known.
        """
        while (batch := next(self._of_element, None)) is None:
            element = next(self._elements)
            if isinstance(element, pa.RecordBatch):
                batch = element
                break
            found = opened(element, self._schema)
            if found is None:
                _refuse(f"the input must hold {KNOWN}, got `{type(element).__name__}`")
            self._of_element, schema = found
            self._schema = self._schema or schema
        if self._schema is None:
            self._schema = batch.schema
        return batch


def opened(
    thing: object, schema: pa.Schema | None = None
) -> tuple[Iterator[pa.RecordBatch], pa.Schema] | None:
    """Returns the record batches of one thing that has rows, and their schema.

    Args:
        thing: A record batch, a table, a reader, or what else has ``__arrow_c_stream__`` or
            ``__arrow_c_array__``; a list of dicts, one for each row; a dict of columns.
        schema: What rows and columns without types of their own become.

    Returns:
        ``None`` if it is something else.

    Raises:
        ConfigurationError: If dicts make no table.
    """
    if isinstance(thing, Mapping):
        thing = _of_columns(cast("Mapping[Any, Any]", thing), schema)
    elif isinstance(thing, (list, tuple)) and thing:
        rows = cast("Sequence[Any]", thing)
        if all(isinstance(row, Mapping) for row in rows):
            thing = _of_rows(rows, schema)
    # Those of PyArrow itself as they are: on the way through the C interface the lengths of
    # buffers are lost, and those tell of offsets that are missing.
    batches: Any = thing
    if isinstance(thing, pa.Table):
        batches = thing.to_batches()
    elif isinstance(thing, pa.RecordBatch):
        batches = [thing]
    elif isinstance(thing, pa.RecordBatchReader):
        pass
    else:
        thing = batches = _foreign(thing)
        if thing is None:
            return None
    return iter(batches), cast("Any", thing).schema


def _foreign(thing: Any) -> pa.RecordBatchReader | None:
    """Returns a reader of what another library has; ``None`` if it has no rows of named columns."""
    try:
        if hasattr(thing, "__arrow_c_stream__"):
            return _reader(thing)
        if hasattr(thing, "__arrow_c_array__"):
            batch = cast("Callable[[object], pa.RecordBatch]", pa.record_batch)(thing)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except pa.ArrowInvalid:  # a single column
        return None
    return None


def _of_rows(rows: Sequence[Mapping[Any, Any]], schema: pa.Schema | None) -> pa.Table:
    """Returns a table with a column for each key of any row."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    if schema is not None:
        nothing = [None] * len(rows)
        columns = {**dict.fromkeys(schema.names, nothing), **columns}
    return _of_columns(columns, schema)


def _of_columns(columns: Mapping[Any, Any], schema: pa.Schema | None) -> pa.Table:
    arrays: list[Any] = []
    for name, values in columns.items():
        if not isinstance(name, str):
            _refuse(f"a column of the input must be named by a str, got {shown(name)}")
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
            _refuse(
                f"a dict in the input has a list for each column, and `{name}` has a"
                f" `{type(values).__name__}`; put dicts of one row each into a list"
            )
        at = -1 if schema is None else schema.get_field_index(name)
        if schema is not None and at < 0:
            known = ", ".join(schema.names)
            _refuse(f"the input got a column `{name}`, and began with {known}; name all at first")
        try:
            arrays.append(pa.array(values, None if schema is None else schema.field(at).type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # What they say has values of rows in it.
            wanted = "one type" if schema is None else f"type {schema.field(at).type}, as before"
            _refuse(f"the values of input column `{name}` are not of {wanted}; give a table")
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        _refuse(f"the columns of a dict in the input have several lengths: {sorted(lengths)}")
    table = pa.Table.from_arrays(arrays, names=list(columns))
    if schema is None:
        return table
    if missing := [name for name in schema.names if name not in columns]:
        _refuse(f"a dict in the input lacks column `{missing[0]}`, which those before have")
    return table.select(schema.names).cast(schema)


def _reader(stream: Any) -> pa.RecordBatchReader:
    if not hasattr(pa.RecordBatchReader, "from_stream"):  # PyArrow 14
        return pa.RecordBatchReader._import_from_c_capsule(stream.__arrow_c_stream__())  # noqa: SLF001
    return pa.RecordBatchReader.from_stream(stream)


def _refuse(message: str) -> NoReturn:
    refuse(message, ErrorKind.INPUT_INVALID)
