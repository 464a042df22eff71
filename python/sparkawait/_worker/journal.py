# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""The journal of one task: what is known of its rows, and what it adds.

```text
  input batch --with_known--> the batch, the key of each row, and what is known of it
  completed rows --write--> a file under a name of its own --finish--> one file of the task
```

A file appears as a whole, and nobody changes it. A task writes several files as one before it
deletes them: a crash between the two leaves rows twice, which are one row for each reader.
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol, cast

import pyarrow as pa
from pyarrow import compute, parquet

from sparkawait._core import content_keys
from sparkawait._plan.journal import Folder, JournalPlan, identity_in, reached, stored, whose
from sparkawait._worker.feeder import with_bytes
from sparkawait._worker.known_rows import OK, PARTS, KnownRows, parquet_file, retyped
from sparkawait.exceptions import AsyncIOError, ErrorKind

__all__ = ["KEY", "KNOWN", "TaskJournal", "columns_of"]

pc: Any = compute
_logger = logging.getLogger("sparkawait")

KEY = "__sparkawait_key"
KNOWN = "__sparkawait_known"
_MEGABYTE = 1 << 20
_GROUP_ROWS = 4096
_GROUP_BYTES = _MEGABYTE
_FILES = 64
"""Files of a task, from which on they are put together before its end."""
_LARGE_BYTES = _MEGABYTE
"""A file of this size is left as it is; others become one of twice the size at most."""
_MOST_FOLDERS = 4
_REPEATED = ["function", "version", "at", "attempt", "kind", "message", "cost", "status"]
"""Columns with few values."""

_KNOWN_FIELDS = [
    pa.field("kind", pa.string()),
    pa.field("message", pa.string()),
    pa.field("attempt", pa.int32()),
    pa.field("status", pa.int32()),
    pa.field("cost", pa.float64()),
]


def columns_of(result_schema: pa.Schema) -> pa.Schema:
    """Returns the two columns that a batch gets at its end before it goes to the operator."""
    result = pa.field("result", pa.list_(pa.struct(list(result_schema))))
    return pa.schema(
        [
            pa.field(KEY, pa.binary(16), nullable=False),
            pa.field(KNOWN, pa.struct([*_KNOWN_FIELDS, result])),
        ]
    )


_known: OrderedDict[tuple[Any, ...], KnownRows] = OrderedDict()
"""What the tasks of this process know of folders, the one that was used last behind the others."""


def _known_rows(plan: JournalPlan, folder: Folder, result: Any) -> KnownRows:
    has_age = plan.max_age is not None
    # By the age, too: what was too old for one call was never read, and another may take it.
    which = (plan.path, plan.mark, str(result), plan.max_age, plan.keeps_failures)
    found = _known.pop(which, None)
    if found is None:
        found = KnownRows(folder, result, takes_newest=has_age, keeps_failures=plan.keeps_failures)
    _known[which] = found
    while len(_known) > _MOST_FOLDERS:
        _known.popitem(last=False)
    return found


class Judge(Protocol):
    """Looks at results as the journal does: before they leave."""

    def failures(self, results: pa.RecordBatch, /) -> Mapping[int, tuple[str, str]]:
        """Returns the rows that fail when they leave, with kind and message."""
        ...

    def costs(self, results: pa.RecordBatch, /) -> Any:
        """Returns what the calls have cost; ``None`` if limits know that."""
        ...


class TaskJournal:
    """The journal of a task.

    Args:
        plan: What the plan says of it.
        result_schema: The columns of results, as the operator has them.
        stage: Number of the stage, of the partition and of the attempt, for the names of files.
        partition: See there.
        attempt: See there.
        judge: Finds results that fail when they leave, and why, such as a model's refusal.

    Attributes:
        interval: Seconds after which what is completed is committed.
        max_bytes: Or bytes of it.
        keep_input: Whether rows are written with what they came with.

    Raises:
        ConfigurationError: If the folder is not the one that the driver has opened, or cannot be
            read.
    """

    def __init__(
        self,
        plan: JournalPlan,
        result_schema: pa.Schema,
        *,
        stage: int,
        partition: int,
        attempt: int,
        judge: Judge | None = None,
    ) -> None:
        """Reads the keys of the folder."""
        self._plan, self._judge = plan, judge
        self._folder = plan.folder()
        self._columns = columns_of(result_schema)
        # The mark of a column function says what an empty list of results says.
        fields = list(result_schema)[: -1 if plan.is_one else None]
        self._result_schema = pa.schema(fields)
        self._stored = stored(self._result_schema)
        self._identity: bytes | None = None
        run = uuid.uuid4().hex[:12]
        self._name = f"{run}-s{stage}-p{partition}-a{attempt}"
        self._number = 0
        self._files: list[tuple[str, int]] = []
        self._keeps_apart = False
        is_local = self._folder.is_local
        self.interval = 0.2 if is_local else 2.0
        self.max_bytes = _MEGABYTE if is_local else 8 * _MEGABYTE
        self.keep_input = plan.keep_input
        result = self._stored.field("result").type
        self._rows = _known_rows(plan, self._folder, result)
        reached(plan.path, lambda: self._rows.refresh(self._oldest), at_once=False)

    @property
    def _oldest(self) -> int | None:
        age = self._plan.max_age
        return None if age is None else time.time_ns() // 1000 - round(age * 1e6)

    # -- what is known

    def with_known(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns a batch of input with the keys of its rows, and with what is known of them."""
        keys = self._keys(batch)
        known = self._known(keys)
        schema = pa.schema(
            [*batch.schema, *self._columns], metadata=cast("Any", batch.schema.metadata)
        )
        return pa.RecordBatch.from_arrays([*batch.columns, keys, known], schema=schema)

    def _keys(self, batch: pa.RecordBatch) -> Any:
        if self._identity is None:
            self._identity = identity_in(self._plan, batch.schema)
        read = self._plan.read_from(batch.schema)
        if not read:
            # All rows ask for the same. A batch without columns does not know how many it has.
            one = content_keys(pa.record_batch([pa.nulls(1)], [""]), self._identity)
            return one.take(pa.array([0] * batch.num_rows, pa.int64()))
        fields = [batch.schema.field(at) for at in read]
        columns = [batch.column(at) for at in read]
        return _keys_of(
            pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), self._identity
        )

    def _known(self, keys: Any) -> Any:
        field = self._columns.field(KNOWN)
        found = self._rows.rows(keys, self._oldest)
        if found is None:
            return pa.nulls(len(keys), field.type)
        kinds = found.field("kind")
        is_result = pc.equal(kinds, OK)
        if self._judge is not None:
            # An answer that a model refused is a result until it leaves, and then has its cost.
            is_result = pc.or_(is_result, found.field("result").is_valid())
        kinds = pc.if_else(is_result, pa.scalar(None, pa.string()), kinds)
        arrays = [kinds, *(found.field(it.name) for it in _KNOWN_FIELDS[1:])]
        results = found.field("result")
        is_unknown = pc.is_null(is_result)
        if self._plan.is_one:
            results, is_other = _with_mark(results, self._columns)
            is_unknown = pc.or_(is_unknown, is_other)
        arrays.append(retyped(results, field.type.field("result").type))
        fields = [field.type.field(at) for at in range(field.type.num_fields)]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=is_unknown)

    # -- what is added

    def write(self, entries: pa.RecordBatch) -> None:
        """Commits rows that are completed: they are in the folder when this returns.

        Raises:
            AsyncIOError: If they cannot be written.
        """
        rows = self._table(entries)
        self._number += 1
        self._put(f"9{self._number:06}", [rows])

    def tidy(self) -> None:
        """Puts files together while the task runs, so that its end does not wait for that."""
        small = [it for it in self._files if it[0].rpartition("-")[2].startswith("9")]
        if len(small) >= _FILES or sum(size for _, size in small) >= 2 * _LARGE_BYTES:
            self._merge(small, "8")

    def finish(self) -> None:
        """Puts together what is left of the files of the task."""
        self._merge(self._files, "7")

    def _table(self, entries: pa.RecordBatch) -> pa.Table:
        count = entries.num_rows
        results = entries.column("result")
        if self._plan.is_one:
            results = _without_mark(results)
        kinds, messages, costs = self._judged(results, entries)
        schema = self._stored
        columns: dict[str, Any] = {
            "key": entries.column("key"),
            "function": pa.repeat(self._plan.function, count),
            "version": pa.repeat(self._plan.version, count),
            "at": pa.repeat(pa.scalar(time.time_ns() // 1000, schema.field("at").type), count),
            "attempt": entries.column("attempt"),
            "kind": pc.fill_null(kinds, OK),
            "message": messages,
            "result": results,
            "cost": costs,
            "status": entries.column("status"),
            "request_id": _request_ids(results),
        }
        if self.keep_input and "input" in entries.schema.names:
            columns["input"] = entries.column("input")
            schema = stored(self._result_schema, pa.schema(list(columns["input"].type)))
        arrays = [retyped(columns[it.name], it.type) for it in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _judged(self, results: Any, entries: pa.RecordBatch) -> tuple[Any, Any, Any]:
        """Returns kinds, messages and costs, as the judge sees them."""
        kinds, messages, costs = (entries.column(it) for it in ("kind", "message", "cost"))
        if self._judge is None:
            return kinds, messages, costs
        flat, owners = results.flatten(), pc.list_parent_indices(results)
        rows = pa.RecordBatch.from_struct_array(flat)
        told, said = kinds.to_pylist(), messages.to_pylist()
        for row, (kind, message) in self._judge.failures(rows).items():
            told[owners[row].as_py()], said[owners[row].as_py()] = str(kind), message
        each = self._judge.costs(rows)
        if each is not None:
            # A call has one answer. What others have called for costs nothing.
            own = pc.index_in(pa.array(range(len(results)), owners.type), owners)
            is_called = pc.not_equal(entries.column("attempt"), 0)
            costs = pc.if_else(is_called, each.take(own), pc.multiply(each.take(own), 0.0))
        return pa.array(told, pa.string()), pa.array(said, pa.string()), costs

    def _put(self, number: str, tables: Iterable[pa.Table], parts: Iterable[str] = ()) -> None:
        name = f"{self._name}-{number}.parquet"
        data = encoded(tables, parts)
        try:
            self._folder.write(name, data)
        except (OSError, pa.ArrowException) as error:
            msg = (
                f"the journal at {self._folder.path} cannot be written on the host"
                f" {socket.gethostname()} with {whose(self._plan.path)}: {error}; rows that are not"
                " in it are called for again"
            )
            raise AsyncIOError(msg, ErrorKind.JOURNAL_INVALID) from error
        self._files.append((name, data.size))

    def _merge(self, files: list[tuple[str, int]], level: str) -> None:
        """Puts files together. What goes wrong leaves them as they are."""
        part: list[str] = []
        size = 0
        for name, bytes_of in [it for it in files if it[1] < _LARGE_BYTES]:
            if size + bytes_of > 2 * _LARGE_BYTES:
                self._merge_part(part, level)
                part, size = [], 0
            part.append(name)
            size += bytes_of
        self._merge_part(part, level)

    def _merge_part(self, names: list[str], level: str) -> None:
        if len(names) < 2 or self._keeps_apart:  # noqa: PLR2004
            return
        # They are written once more at most, also where that fails.
        self._files = [it for it in self._files if it[0] not in names]
        try:
            self._number += 1
            # Before its parts in the order of names, so that it is taken where both are there.
            self._put(f"{level}{self._number:06}", self._groups_of(names), names)
            for name in names:
                self._folder.delete(name)
        except (OSError, pa.ArrowException, AsyncIOError) as error:
            self._keeps_apart = True
            _logger.warning(
                "files of the journal at %s stay apart, as they could not be put together: %s",
                self._folder.path,
                error,
            )

    def _groups_of(self, names: list[str]) -> Iterator[pa.Table]:
        for name in names:
            with self._folder.open(name) as source, parquet_file(source) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, use_threads=False)


def encoded(tables: Iterable[pa.Table], parts: Iterable[str] = ()) -> Any:
    """Returns the bytes of a file with the rows of some tables, in row groups of one size.

    Args:
        tables: The rows.
        parts: The files that they come from, which readers of the file may delete.
    """
    metadata = {PARTS: " ".join(parts).encode()}
    sink = pa.BufferOutputStream()
    writer: parquet.ParquetWriter | None = None
    held: list[pa.Table] = []
    for table in tables:
        if writer is None:
            writer = _writer(sink, table.schema.with_metadata(metadata))
        held.append(table)
        rows, size = sum(it.num_rows for it in held), sum(it.nbytes for it in held)
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            _write_groups(writer, held)
            held = []
    if writer is not None:
        if held:
            _write_groups(writer, held)
        writer.close()
    return sink.getvalue()


def _write_groups(writer: parquet.ParquetWriter, tables: list[pa.Table]) -> None:
    rows = pa.concat_tables(tables)
    each = max(rows.nbytes // max(rows.num_rows, 1), 1)
    writer.write_table(rows, row_group_size=max(min(_GROUP_ROWS, _GROUP_BYTES // each), 1))


def _writer(sink: Any, schema: pa.Schema) -> parquet.ParquetWriter:
    paths = _leaves(schema.remove_metadata())
    options: dict[str, Any] = {
        # A column that is compressed costs a context for each row group. The others are short as
        # they stand, and keys are random.
        "compression": {path: "zstd" if "." in path else "none" for path in paths},
        "use_dictionary": _REPEATED,
        "write_statistics": ["at", "kind"],
    }
    try:
        return parquet.ParquetWriter(sink, schema, write_page_checksum=True, **options)
    except TypeError:  # PyArrow 14
        return parquet.ParquetWriter(sink, schema, **options)


@lru_cache(maxsize=8)
def _leaves(schema: pa.Schema) -> list[str]:
    """Returns the columns of a file, those within others with the names of all."""
    sink = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), sink)
    columns = parquet.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [columns.column(at).path for at in range(len(columns))]


# -- keys of rows, also of those whose texts are not UTF-8


def _keys_of(batch: pa.RecordBatch, identity: bytes) -> Any:
    count = batch.num_rows
    with suppress(pa.ArrowException):
        # A row that is alone has nothing of the texts of its neighbours.
        return content_keys(batch if count != 1 else batch.take(pa.array([0])), identity)
    if count <= 1:
        return content_keys(with_bytes(batch), identity)
    # A row has the key that it has in any other batch.
    halves = batch.slice(0, count // 2), batch.slice(count // 2)
    return pa.concat_arrays([_keys_of(it, identity) for it in halves])


def _request_ids(results: Any) -> Any:
    """Returns the `request_id` of the first row of each list; null where there is none."""
    row = results.type.value_type
    at = row.get_field_index("request_id")
    if at < 0 or not (pa.types.is_string(row.field(at).type)):
        return pa.nulls(len(results), pa.string())
    counts = pc.fill_null(pc.list_value_length(results), 0)
    first = pc.subtract(pc.cumulative_sum(counts), counts)
    # Where there is no row, the next one is of another list.
    first = pc.if_else(pc.greater(counts, 0), first, pa.scalar(None, first.type))
    return results.flatten().field(at).take(first)


# -- results of column functions: one row or null, where a journal has a list of rows


def _without_mark(results: Any) -> Any:
    """Returns lists without the rows that have no mark."""
    rows = results.flatten()
    marks = pc.fill_null(_last(rows), False)  # noqa: FBT003
    fields = [rows.type.field(at) for at in range(rows.type.num_fields - 1)]
    children = [rows.field(at) for at in range(len(fields))]
    kept = pa.StructArray.from_arrays(children, fields=fields).filter(marks)
    # Where a list ends, so many rows before it are kept.
    behind = pc.cumulative_sum(marks.cast(pa.int32()))
    ends = pa.concat_arrays([pa.array([0], pa.int32()), behind]).take(results.offsets)
    return pa.ListArray.from_arrays(ends, kept, mask=results.is_null())


def _with_mark(results: Any, columns: pa.Schema) -> tuple[Any, Any]:
    """Returns lists of one row with a mark, and whether there were several."""
    row = columns.field(KNOWN).type.field("result").type.value_type
    fields = [row.field(at) for at in range(row.num_fields)]
    counts = pc.fill_null(pc.list_value_length(results), 0)
    has_row = pc.greater(counts, 0)
    firsts = pc.subtract(pc.cumulative_sum(counts), counts)
    rows = results.flatten().take(pc.if_else(has_row, firsts, pa.scalar(None, firsts.type)))
    marks = pc.if_else(has_row, True, pa.scalar(None, pa.bool_()))  # noqa: FBT003
    children = [retyped(rows.field(at), fields[at].type) for at in range(len(fields) - 1)]
    marked = pa.StructArray.from_arrays([*children, marks], fields=fields)
    ends = pa.array(range(len(results) + 1), pa.int32())
    made = pa.ListArray.from_arrays(ends, marked, mask=results.is_null())
    return made, pc.greater(counts, 1)


def _last(rows: Any) -> Any:
    return rows.field(rows.type.num_fields - 1)
