# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""The thread that pulls the input ahead of need, so that its transfer overlaps with calls.

How far ahead is bounded by the operator, whose `put` waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

import pyarrow as pa

from sparkawait._checks import refuse, shown, with_leaves
from sparkawait._core import Task
from sparkawait._values.conversion import Misfit
from sparkawait._values.kept import array_of, check_objects
from sparkawait._worker import address_space
from sparkawait.exceptions import ConfigurationError, ErrorKind

# -- record batches of what an input consists of: whatever has rows, by protocol
#
# No library is imported: polars, pandas, DuckDB and others have ``__arrow_c_stream__``. Read by one
# thread at a time.


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
        self.schema = schema

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
            if isinstance(element, (list, tuple)) and not element:
                continue  # a page without rows
            found = opened(element, self.schema)
            if found is None:
                _refuse(f"the input must hold {KNOWN}, got `{type(element).__name__}`")
            self._of_element, schema = found
            self.schema = self.schema or schema
        if self.schema is None:
            self.schema = batch.schema
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


_WAY_OUT = "give values of one type, or a table"


def _foreign(thing: Any) -> pa.RecordBatchReader | None:
    """Returns a reader of what another library has; ``None`` if it has no rows of named columns."""
    try:
        check_objects(thing)
        if hasattr(thing, "__arrow_c_stream__"):
            return _reader(thing)
        if hasattr(thing, "__arrow_c_array__"):
            batch = cast("Callable[[object], pa.RecordBatch]", pa.record_batch)(thing)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except Misfit as error:
        _refuse(f"input column `{error.path}` has {error.got}; {_WAY_OUT}")
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
        wanted = None if schema is None else schema.field(at).type
        try:
            arrays.append(array_of(values, wanted))
        except Misfit as error:
            before = f" is {wanted} in what came before, and" if wanted is not None else ""
            _refuse(f"input column `{name}{error.path}`{before} has {error.got}; {_WAY_OUT}")
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


# -- columns as Spark sends them that the operator does not take so: they are mended on their way.
#
# Offsets are missing where a column has no value, as Spark 3.5 sends it. An array without values
# has one offset, 0. Arrow's Java writers used to leave it out. The C interface does not tell the
# lengths of buffers, so a reader then takes whatever lies in memory there.


class Offsets:
    """Where the columns of one schema have offsets.

    Args:
        schema: The schema of all batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Looks through the types, so that batches cost a look at a few buffers."""
        layouts = [_layout(data_type) for data_type in schema.types]
        self._places = [
            (column, places) for column, layout in enumerate(layouts) if (places := layout[1])
        ]

    def repaired(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns `batch` with all offsets; the batch itself if none is missing."""
        broken = [column for column, places in self._places if _lacks(batch, column, places)]
        if not broken:
            return batch
        columns: list[Any] = list(batch.columns)
        for column in broken:
            # A single array would be returned as it is.
            columns[column] = pa.concat_arrays([columns[column], columns[column].slice(0, 0)])
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _lacks(batch: pa.RecordBatch, column: int, places: list[int]) -> bool:
    buffers = batch.column(column).buffers()
    return any((buffer := buffers[place]) is None or buffer.size == 0 for place in places)


def _layout(data_type: Any) -> tuple[int, list[int]]:
    """Returns how many buffers an array of the type has, and which of them are offsets.

    Types that Spark does not send have none that are known.
    """
    children: list[Any]
    if pa.types.is_struct(data_type):
        own, places, children = 1, [], [field.type for field in data_type]
    elif pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        own, places, children = 2, [1], [data_type.value_type]
    elif pa.types.is_map(data_type):
        entries = pa.struct([("key", data_type.key_type), ("value", data_type.item_type)])
        own, places, children = 2, [1], [entries]
    elif _is_variable(data_type):
        return 3, [1]
    else:
        return (1 if pa.types.is_null(data_type) else 2), []
    for child in children:
        count, offsets = _layout(child)
        places += [own + place for place in offsets]
        own += count
    return own, places


def _is_variable(data_type: Any) -> bool:
    return (
        pa.types.is_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_large_binary(data_type)
    )


# -- columns in which not all texts are UTF-8, as they go to the operator and come back.
#
# Spark's strings may hold any bytes, Arrow's must not, and the extension module checks them. This
# column crosses with bytes instead of texts; nothing is copied. No state.


def with_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns `batch` with bytes instead of the texts of columns that are not valid.

    The batch itself if that makes no difference: then its data is wrong in another way.
    """
    fields = [
        field if _is_valid(column) else _as_bytes(field)
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return _as_schema(batch, fields)


def with_texts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns `batch` with texts where `schema` has texts for a column of the same name."""
    fields: list[pa.Field] = []
    for field in batch.schema:
        came = schema.get_field_index(field.name)
        wanted = field if came < 0 else schema.field(came)
        is_bytes = _as_bytes(wanted).type == field.type
        fields.append(field.with_type(wanted.type) if is_bytes else field)
    return _as_schema(batch, fields)


def invalid_column(batch: pa.RecordBatch) -> str | None:
    """Returns the name of a column whose data is not what its type says, if there is one."""
    names = batch.schema.names
    return next((names[i] for i, column in enumerate(batch.columns) if not _is_valid(column)), None)


def _as_schema(batch: pa.RecordBatch, fields: list[pa.Field]) -> pa.RecordBatch:
    """Returns the same buffers as columns of other types, which are laid out alike."""
    schema = pa.schema(fields, metadata=cast("Any", batch.schema.metadata))
    if schema.equals(batch.schema):
        return batch
    _, data = batch.__arrow_c_array__()
    return pa.RecordBatch._import_from_c_capsule(schema.__arrow_c_schema__(), data)  # noqa: SLF001


def _is_valid(column: Any) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowException:
        return False
    return True


_BYTES: dict[Any, Any] = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
if hasattr(pa, "string_view"):
    _BYTES[pa.string_view()] = pa.binary_view()


def _as_bytes(field: pa.Field) -> pa.Field:
    return with_leaves(field, lambda it: it.with_type(_BYTES.get(it.type, it.type)))


_JOIN_SECONDS = 1.0


class Feeder:
    """Pulls record batches of one schema from an iterator into a task, all in one thread.

    One thread from the first element on: what reads a database may be used in no other.

    Args:
        batches: The input; nobody else reads it.
    """

    with_known: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    """Adds what a journal knows of the rows of a batch, see `TaskJournal`; without one nothing."""

    def __init__(self, batches: Iterator[Any]) -> None:
        """Pulls nothing yet."""
        self._batches = batches if isinstance(batches, RecordBatches) else RecordBatches(batches)
        self._changed = threading.Condition()
        self._has_begun = False
        self._first: pa.RecordBatch | None = None
        self._failure: BaseException | None = None
        self._task: Task | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._in_iterator = False
        self.rows = 0
        """Rows of the batches that the task has taken. All of them, when it has ended by itself."""
        self.has_bytes_for_texts = False
        """Whether a batch has gone to the task with bytes instead of texts."""

    def begin(self, timeout: float | None = None) -> bool:
        """Pulls the first batch; returns whether it, the end or an error is there in time.

        Args:
            timeout: Seconds to wait at most; ``None`` for as long as it takes.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="sparkawait-feeder", daemon=True)
            self._thread = address_space.start(thread)
        with self._changed:
            return self._changed.wait_for(lambda: self._has_begun, timeout)

    def first(self) -> pa.RecordBatch | None:
        """Returns the first batch, which tells the schema, or ``None`` for an empty input."""
        self.begin()
        if self._failure is not None:
            raise self._failure
        return self._first

    def start(self, task: Task) -> None:
        """Feeds `task`, with the first batch, too."""
        with self._changed:
            self._task = task
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread if it has no task, which nobody will give it any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def join(self) -> None:
        """Waits for the thread, unless the user's iterator holds it: then it ends by itself."""
        if self._thread is not None and not self._in_iterator:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        try:
            self._first = next(self._batches, None)
        except BaseException as error:  # noqa: BLE001 - raised where the first batch is asked for
            self._failure = error
        with self._changed:
            self._has_begun = True
            self._changed.notify_all()
            if self._first is None:
                return
            self._changed.wait_for(lambda: self._task is not None or self._is_closed)
        if self._task is not None:
            self._feed(self._task)

    def _feed(self, task: Task) -> None:
        try:
            batch, self._first = cast("pa.RecordBatch", self._first), None
            schema = batch.schema
            offsets = Offsets(schema)
            while self._put(task, offsets.repaired(batch)):
                self.rows += batch.num_rows
                self._in_iterator = True
                item = next(self._batches, None)
                self._in_iterator = False
                if item is None:
                    task.put_end()
                    return
                batch = _as_before(item, schema)
        except BaseException as error:  # noqa: BLE001 - raised again by the task
            self._in_iterator = False
            task.put_failure(error)

    def _put(self, task: Task, batch: pa.RecordBatch) -> bool:
        if self.with_known is not None:
            # Of texts as they came: as bytes they would be another question.
            batch = self.with_known(batch)
        try:
            return task.put(batch)
        except pa.ArrowException as error:
            came = with_bytes(batch)
            if came is batch:
                raise _not_as_declared(batch) from error
        self.has_bytes_for_texts = True
        try:
            return task.put(came)
        except pa.ArrowException as error:
            raise _not_as_declared(came) from error


def _not_as_declared(batch: pa.RecordBatch) -> ConfigurationError:
    name = invalid_column(batch)
    msg = (
        f"input column `{name}` has data that is not what its type says; cast it to binary, or"
        " build it again"
    )
    return ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _as_before(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns a further batch, with the schema of the first.

    Columns of one table may be said to have no nulls in some batches only, as where a part was made
    by another library.
    """
    if batch.schema.equals(schema):
        return batch
    came = [(field.name, field.type) for field in batch.schema]
    is_alike = came == [(field.name, field.type) for field in schema]
    columns = zip(schema, batch.columns, strict=False)
    if is_alike and all(field.nullable or not column.null_count for field, column in columns):
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    msg = f"the input changed its schema from ({_columns(schema)}) to ({_columns(batch.schema)})"
    raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(
        f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema
    )
