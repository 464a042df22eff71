# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""What the folder of a journal has, as this process knows it: a table of keys, and rows on demand.

```text
  files --keys--> KeyTable: key -> file, row        when a task begins, those that are new
    |
    +--row groups--> rows of keys that were found   for each batch of input; the last 4 MB are kept
```

The tasks of a process share it, and take turns.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from time import sleep
from typing import Any, TypeAlias, TypeVar, cast

import pyarrow as pa
from pyarrow import compute, parquet

from sparkawait._checks import warn_once
from sparkawait._core import KeyTable
from sparkawait._plan.journal import Folder

__all__ = ["OK", "PARTS", "KnownRows", "parquet_file", "retyped"]

pc: Any = compute
SUFFIX = ".parquet"
OK = "ok"
"""The kind of a row that has a result."""
_TYPES = {
    "key": pa.binary(16),
    "at": pa.timestamp("us", "UTC"),
    "kind": pa.string(),
    "message": pa.string(),
    "attempt": pa.int32(),
    "status": pa.int32(),
    "cost": pa.float64(),
}
_INDEXED = ["key", "at", "kind", "attempt"]
READ = [*_TYPES, "result"]
"""The columns that a row is known by."""
_KEPT_BYTES = 4 << 20
_OPEN_FILES = 8
_SMALL_BYTES = 8 << 20
"""A file up to this size is read in one go."""
_READERS = 16
_TELLING_BYTES = 256 << 20
_LOOKS = 3
_PAUSES = (0.1, 0.5)
"""Seconds before a store is asked again that has not answered."""
PARTS = b"sparkawait.parts"
"""Names the files that were put together in one, in the metadata of that."""
_T = TypeVar("_T")


def _is_file(name: str) -> bool:
    """Whether a file has rows, by its name; those that are being written have others."""
    return name.endswith(SUFFIX) and name[0] not in "._"


def parquet_file(source: Any) -> parquet.ParquetFile:
    """Opens a file whose pages are checked when they are read.

    Raises:
        ArrowException: If it is not whole.
    """
    try:
        return parquet.ParquetFile(source, page_checksum_verification=True)
    except TypeError:  # PyArrow 14
        return parquet.ParquetFile(source)


def _patiently(work: Callable[[], _T]) -> _T:
    """Returns what `work` reads from a store, which may be too busy to answer once."""
    for pause in _PAUSES:
        with suppress(OSError):
            try:
                return work()
            except FileNotFoundError:
                break
        sleep(pause)
    return work()


class _Source:
    """A file that is read. It knows whether the store has failed, or the file is not whole.

    Attributes:
        error: Why it could not be read.
    """

    def __init__(self, file: Any) -> None:
        """Takes an open file."""
        self._file = file
        self._rows: parquet.ParquetFile | None = None
        self.error: Exception | None = None

    @property
    def rows(self) -> parquet.ParquetFile:
        """What has its rows."""
        if self._rows is None:
            self._rows = parquet_file(pa.PythonFile(cast("Any", self), "r"))
        return self._rows

    def read(self, count: int = -1) -> Any:
        """Reads from where the file is."""
        at = self._file.tell()

        def read() -> Any:
            self._file.seek(at)
            return self._file.read(None if count < 0 else count)

        try:
            return _patiently(read)
        except Exception as error:
            self.error = error
            raise

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._file.closed

    def seek(self, position: int, whence: int = 0) -> int:
        """Goes to a position."""
        return self._file.seek(position, whence)

    def tell(self) -> int:
        """Returns the position."""
        return self._file.tell()

    def close(self) -> None:
        """Closes the file."""
        self._rows = None
        self._file.close()


_Stamp: TypeAlias = tuple[int | None, int | None]
"""The size and the time of a file."""


@dataclass
class _File:
    """A file whose keys are in the table.

    Attributes:
        name: Its name.
        stamp: Its size and time.
        starts: The first row of each row group.
    """

    name: str
    stamp: _Stamp
    starts: list[int]


class KnownRows:
    """The rows of a folder, by their keys.

    Args:
        folder: The folder.
        result: The type of results.
        takes_newest: Of several rows with one key, whether the newest one counts; else the oldest.
        keeps_failures: Whether rows that were called and have failed are known.
    """

    def __init__(
        self, folder: Folder, result: Any, *, takes_newest: bool, keeps_failures: bool
    ) -> None:
        """Reads nothing yet."""
        self._folder, self._result = folder, result
        self._takes_newest, self._keeps_failures = takes_newest, keeps_failures
        self._lock = threading.RLock()
        self._next = 0
        self._groups: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._kept_bytes = 0
        self._opened: OrderedDict[int, _Source] = OrderedDict()
        self._begin()

    def _begin(self) -> None:
        self._table = KeyTable(self._takes_newest)
        self._files: dict[int, _File] = {}
        self._unused: dict[str, _Stamp] = {}
        self._parts: set[str] = set()
        self._forget_groups(set())

    def __len__(self) -> int:
        return len(self._table)

    # -- keys

    def refresh(self, oldest: int | None) -> None:
        """Reads the keys of files that are new, and forgets those of files that are gone.

        Args:
            oldest: Rows from before are not known; in microseconds.

        Raises:
            OSError: If the folder, or a file of it, cannot be reached.
        """
        with self._lock:
            for _ in range(_LOOKS):
                if self._look(oldest):
                    break
            self._table.settle()
            pa.default_memory_pool().release_unused()
            if self._table.size > _TELLING_BYTES:
                warn_once(
                    "the journal at %s has %d rows, whose keys take %d MB of each Python worker;"
                    " keep the input (`keep_input=True`), and leave out what is known before the"
                    " call, by a left anti-join with spark.read.parquet(..)",
                    self._folder.path,
                    len(self._table),
                    self._table.size >> 20,
                )

    def _look(self, oldest: int | None) -> bool:
        """Returns whether all files were there that had been listed."""
        listed = {it: stamp for it, stamp in self._folder.names().items() if _is_file(it)}
        gone = [at for at, it in self._files.items() if listed.get(it.name) != it.stamp]
        if gone:
            # What a task puts together is in a file with the same beginning. What others have
            # deleted may have hidden rows of other files.
            tasks = {_task_of(name) for name in listed}
            if all(_task_of(self._files[at].name) in tasks for at in gone):
                self._table.forget(gone)
                for at in gone:
                    del self._files[at]
                self._forget_groups(set(self._files))
            else:
                self._begin()
        known = {it.name for it in self._files.values()}
        new = [
            (name, stamp)
            for name, stamp in sorted(listed.items())
            if name not in known and self._unused.get(name) != stamp
        ]
        are_whole = True
        for name, stamp, source in self._sources(new):
            if name in self._parts:
                continue
            if source is None or not self._add(name, stamp, source, oldest):
                are_whole = False
        # Their task has died between the two steps.
        for name in self._parts & {*listed}:
            with suppress(OSError):
                self._folder.delete(name)
        return are_whole

    def _sources(self, files: list[Any]) -> Iterator[tuple[str, Any, Any]]:
        """Yields files with what to read them from; ``None`` for those that are gone."""
        if self._folder.is_local or len(files) <= 1:
            for name, stamp in files:
                yield name, stamp, self._source(name, stamp)
            return
        with ThreadPoolExecutor(_READERS, "sparkawait-journal") as readers:
            # As many at a time as the memory bears.
            for start in range(0, len(files), 2 * _READERS):
                part = files[start : start + 2 * _READERS]
                read = readers.map(self._source, *zip(*part, strict=True))
                for (name, stamp), source in zip(part, read, strict=True):
                    yield name, stamp, source

    def _source(self, name: str, stamp: _Stamp) -> _Source | None:
        size, source = stamp[0], None
        try:
            source = _Source(_patiently(lambda: self._folder.open(name)))
            if size is None or size > _SMALL_BYTES or self._folder.is_local:
                return source
            with closing(source):
                return _Source(pa.BufferReader(source.read()))
        except FileNotFoundError:
            return None
        except OSError:
            if source is not None and self._is_gone(name, source):
                return None
            raise

    def _is_gone(self, name: str, source: _Source) -> bool:
        """Returns whether a file that was not read to its end is gone, or else is not whole.

        Raises:
            OSError: If it is there, and the store does not answer: it is as good as before.
        """
        if source.error is None:
            return False
        if name in self._folder.names():
            raise source.error
        return True

    def _add(self, name: str, stamp: _Stamp, source: _Source, oldest: int | None) -> bool:
        """Reads the keys of a file; returns whether it was there until its end."""
        number, self._next = self._next, self._next + 1
        starts: list[int] = []
        try:
            with closing(source):
                file = source.rows
                schema = file.schema_arrow
                _check_columns(schema, self._result)
                first = 0
                for group in range(file.num_row_groups):
                    starts.append(first)
                    rows = file.read_row_group(group, _INDEXED, use_threads=False)
                    self._add_rows(number, name, first, rows, oldest)
                    first += rows.num_rows
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            self._table.forget([number])
            if isinstance(error, MemoryError):
                raise  # which says nothing of the file
            if self._is_gone(name, source):
                return False
            self._leave_out(name, stamp, error)
        else:
            self._files[number] = _File(name, stamp, starts)
            self._parts |= {*(schema.metadata or {}).get(PARTS, b"").decode().split()}
        return True

    def _add_rows(
        self, number: int, name: str, first: int, rows: pa.Table, oldest: int | None
    ) -> None:
        rows = rows.combine_chunks()
        times = _one(rows["at"]).cast(_TYPES["at"]).cast(pa.int64())
        times = pc.fill_null(times, 0)
        are_results = pc.equal(_one(rows["kind"]).cast(pa.string()), OK)
        counts = are_results
        if self._keeps_failures:
            # What kept a row from its call, such as a budget, may be over: nobody was asked.
            attempts = pc.fill_null(_one(rows["attempt"]).cast(_TYPES["attempt"]), 1)
            was_called = pc.or_(are_results, pc.greater(attempts, 0))
            counts = pc.and_(pc.is_valid(are_results), pc.fill_null(was_called, False))  # noqa: FBT003
        if oldest is not None:
            counts = pc.and_(counts, pc.greater_equal(times, oldest))
        counts = pc.fill_null(counts, False)  # noqa: FBT003 - a value
        used = pc.if_else(counts, are_results, pa.scalar(None, pa.bool_()))
        keys = _cast(rows["key"], _TYPES["key"])
        self._table.add(number, name, first, keys, times, used)

    def _leave_out(self, name: str, stamp: _Stamp, error: Exception) -> None:
        self._unused[name] = stamp
        warn_once(
            "the file %s of the journal at %s is not used, as it is not whole or not of a journal:"
            " %s",
            name,
            self._folder.path,
            str(error).splitlines()[0] if str(error) else type(error).__name__,
        )

    # -- rows

    def rows(self, keys: Any, oldest: int | None) -> Any | None:
        """Returns what is known of each key, as structs of `READ`; ``None`` if that is nothing.

        Args:
            keys: The keys of a batch.
            oldest: Rows from before are not known; in microseconds.
        """
        with self._lock:
            for _ in range(_LOOKS):
                if not len(self._table):
                    return None
                places = self._table.find(keys).to_pylist()
                if not any(it is not None for it in places):
                    return None
                found = self._taken(places)
                if found is not None:
                    return _checked(found, keys, oldest)
                # A file is gone: its task has put its rows together with others, most likely.
                self.refresh(oldest)
            return None

    def _taken(self, places: list[int | None]) -> Any | None:
        """Returns the rows at some places; ``None`` if one of their files cannot be read."""
        by_group: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for position, place in enumerate(places):
            if place is not None:
                number, row = place >> 32, place & 0xFFFF_FFFF
                starts = self._files[number].starts
                group = bisect_right(starts, row) - 1
                by_group.setdefault((number, group), []).append((position, row - starts[group]))
        pieces: list[Any] = []
        indices: list[int | None] = [None] * len(places)
        taken = 0
        for (number, group), rows in by_group.items():
            held = self._group(number, group)
            if held is None:
                return None
            first, last = rows[0][1], rows[-1][1]
            if [row for _, row in rows] == list(range(first, last + 1)):
                pieces.append(held.slice(first, len(rows)))
            else:
                pieces.append(held.take(pa.array([row for _, row in rows], pa.int64())))
            for position, _ in rows:
                indices[position] = taken
                taken += 1
        all_rows = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        if indices == list(range(len(indices))):
            return all_rows
        return all_rows.take(pa.array(indices, pa.int64()))

    def _group(self, number: int, group: int) -> Any | None:
        held = self._groups.get((number, group))
        if held is not None:
            self._groups.move_to_end((number, group))
            return held
        known = self._files[number]
        source = None
        try:
            source = self._opened_file(number)
            rows = source.rows.read_row_group(group, READ, use_threads=False)
            # Others may have written the same as other types: Spark has no bytes of one width.
            columns = [_cast(rows[name], it) for name, it in _TYPES.items()]
            columns.append(retyped(_one(rows["result"]), self._result))
            held = cast("Any", pa.StructArray.from_arrays(columns, READ))
        except FileNotFoundError:
            self._forget(number)
            return None
        except (pa.ArrowException, OSError, ValueError) as error:
            if source is None or isinstance(error, MemoryError):
                raise  # the store cannot be reached, say: its files are as good as before
            self._close(number)
            is_gone = self._is_gone(known.name, source)
            self._forget(number)
            if not is_gone:
                self._leave_out(known.name, known.stamp, error)
            return None
        self._groups[number, group] = held
        self._kept_bytes += held.nbytes
        while self._kept_bytes > _KEPT_BYTES and len(self._groups) > 1:
            _, dropped = self._groups.popitem(last=False)
            self._kept_bytes -= dropped.nbytes
        return held

    def _opened_file(self, number: int) -> _Source:
        source = self._opened.pop(number, None)
        if source is None:
            source = self._source(self._files[number].name, (None, None))
            if source is None:
                raise FileNotFoundError
        self._opened[number] = source
        while len(self._opened) > _OPEN_FILES:
            self._close(next(iter(self._opened)))
        return source

    def _close(self, number: int) -> None:
        self._opened.pop(number).close()

    def _forget(self, number: int) -> None:
        self._table.forget([number])
        del self._files[number]
        self._forget_groups(set(self._files))

    def _forget_groups(self, kept: set[int]) -> None:
        for place in [it for it in self._groups if it[0] not in kept]:
            self._kept_bytes -= self._groups.pop(place).nbytes
        for number in [it for it in self._opened if it not in kept]:
            self._close(number)


def _task_of(name: str) -> str:
    return name.rpartition("-")[0]


def _one(column: Any) -> Any:
    """Returns the single chunk of a column."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return cast("Any", column.combine_chunks()) if column.num_chunks else pa.array([], column.type)


def _cast(column: Any, data_type: Any) -> Any:
    column = _one(column)
    try:
        return column.cast(data_type)
    except pa.ArrowNotImplementedError:  # PyArrow 14, of bytes
        return pa.array(column.to_pylist(), data_type)


def _check_columns(schema: pa.Schema, result: Any) -> None:
    missing = [name for name in READ if name not in schema.names]
    if missing:
        msg = f"it has no column `{missing[0]}`"
        raise ValueError(msg)
    found = schema.field("result").type
    if _layout(found) != _layout(result):
        msg = f"its column `result` is {found}, and should be {result}"
        raise ValueError(msg)


def _checked(found: Any, keys: Any, oldest: int | None) -> Any:
    """Returns rows, with null for those that are too old by now, or are not of their keys."""
    fits = pc.equal(found.field("key"), keys)
    if oldest is not None:
        at = found.field("at").cast(pa.int64())
        fits = pc.and_(fits, pc.greater_equal(at, oldest))
    if pc.all(pc.or_(pc.fill_null(fits, False), pc.is_null(found))).as_py():  # noqa: FBT003
        return found
    indices = pc.if_else(fits, pa.array(range(len(found)), pa.int64()), pa.scalar(None, pa.int64()))
    return found.take(indices)


# -- columns of one layout as another type: names, zones and what may be null differ


def retyped(array: Any, data_type: Any) -> Any:
    """Returns the same buffers as another type.

    Raises:
        ArrowTypeError: If that has another layout.
    """
    if array.type == data_type:
        return array
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if _layout(array.type) != _layout(data_type):
        msg = f"it has {array.type}, and should have {data_type}"
        raise pa.ArrowTypeError(msg)
    wanted = pa.schema([pa.field("_", data_type)])
    given = pa.RecordBatch.from_arrays([array], names=["_"])
    _, data = given.__arrow_c_array__()
    made = pa.RecordBatch._import_from_c_capsule(wanted.__arrow_c_schema__(), data)  # noqa: SLF001
    return made.column(0)


def _layout(data_type: Any) -> Any:
    children = [data_type.field(at) for at in range(data_type.num_fields)]
    if pa.types.is_struct(data_type):
        return "struct", *((it.name, _layout(it.type)) for it in children)
    if children:
        return data_type.id, *(_layout(it.type) for it in children)
    if pa.types.is_timestamp(data_type):
        return "timestamp", data_type.unit, data_type.tz is None
    return str(data_type)
