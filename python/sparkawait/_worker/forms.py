# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Whether rows that a stream has kept are of the form that its query has now.

The form of a query is the names and types of the columns that come and of those that leave, and the
number of its calls. Time zones do not count: they say how instants are shown. Pure functions, for
any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, cast

import pyarrow as pa

from sparkawait._checks import fields_within
from sparkawait._core import Carried, encode_carried, simple_string
from sparkawait._plan.plan import Chain
from sparkawait._schema.types import with_zone
from sparkawait.exceptions import ErrorKind, SnapshotError

__all__ = [
    "Columns",
    "check_form",
    "completed_in",
    "forms_of",
    "moved",
    "read_schema",
    "schema_of",
    "viewed",
    "zone_of",
]

Columns: TypeAlias = tuple[tuple[str, str], ...]
"""Names and types of columns."""


def forms_of(fields: Iterable[Any]) -> Columns:
    """Returns names and Spark's types of Arrow fields, those of members of structs, too.

    They are equal where Spark takes a column of the one for one of the other.
    """
    return tuple((field.name, simple_string(field.type)) for field in fields)


def check_form(chain: Chain, columns: Columns, carried: Carried) -> None:
    """Checks that the rows that are carried over are of the form that the query has now.

    Rows in flight fit whatever their calls return: they are called again.

    Args:
        chain: The calls.
        columns: The columns of the rows that come, as `forms_of` gives them.
        carried: What the stream has kept.

    Raises:
        SnapshotError: If they are not.
    """
    if sum(carried.rows) == 0 and not carried.completed:
        return
    before = read_schema(carried.schema)
    is_same = columns == forms_of(before)
    if is_same and carried.completed:
        is_same = len(carried.operators) == len(chain.plans) and _may_leave(chain, before, carried)
    if not is_same:
        msg = (
            "rows in flight have other columns: they were carried over by another form of the"
            " query. Start that once more, end it with sa.drain(query), then start the new one"
        )
        raise SnapshotError(msg, ErrorKind.SNAPSHOT_SCHEMA_MISMATCH)


def _may_leave(chain: Chain, came: pa.Schema, carried: Carried) -> bool:
    """Tells whether completed rows have all that the query puts out, and nothing else.

    What captures failures, or tells of calls, may have been added since: no call is missing there.
    """
    wanted = dict(forms_of(chain.output_schema(came)))
    found = dict(forms_of(read_schema(schema_of(carried.completed[0]))))
    told = {field.name for plan in chain.plans for field in plan.told_fields}
    return found.items() <= wanted.items() and wanted.keys() - found.keys() <= told


def completed_in(chain: Chain, carried: Carried) -> list[bytes]:
    """Returns the rows that are completed, with the columns that the query puts out now.

    Those that were added since are null. To be called behind `check_form`.
    """
    if not carried.completed:
        return []
    wanted = chain.output_schema(read_schema(carried.schema))
    is_wider = len(wanted) > len(read_schema(schema_of(carried.completed[0])))
    return [_widened(it, wanted) if is_wider else it for it in carried.completed]


def _widened(bundle: bytes, wanted: pa.Schema) -> bytes:
    """Returns rows with the columns that are wanted, null where they had none."""
    with pa.ipc.open_stream(pa.py_buffer(bundle)) as stream:
        rows = stream.read_all()
    fields: list[Any] = []
    columns: list[Any] = []
    for field in wanted:
        is_there = field.name in rows.column_names
        fields.append(rows.schema.field(field.name) if is_there else field)
        columns.append(rows[field.name] if is_there else pa.nulls(len(rows), field.type))
    schema = pa.schema(fields, metadata=cast("Any", rows.schema.metadata))
    return _written(pa.Table.from_arrays(columns, schema=schema).to_batches(), schema)


# -- in which time zone the instants of rows are shown: rows of Spark have one, their session's


def zone_of(schema: pa.Schema) -> str | None:
    """Returns the time zone of columns; ``None`` if they have no instants."""
    types: Iterable[Any] = (it.type for field in schema for it in fields_within(field))
    return next((kind.tz for kind in types if pa.types.is_timestamp(kind) and kind.tz), None)


def viewed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the same values in columns whose types say no more than another time zone."""
    if rows.schema.equals(schema):
        return rows
    columns: list[Any] = list(rows.columns)
    for index, field in enumerate(schema):
        if columns[index].type != field.type:
            columns[index] = columns[index].view(field.type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def moved(zone: str, carried: Carried) -> Carried:
    """Returns rows in flight with the same instants in a time zone, for a new task."""
    kept = ("written_at", "shard", "shards", "by", "task", "part", "redone", "token", "address")
    told: dict[str, Any] = {name: getattr(carried, name) for name in kept}
    schema = with_zone(read_schema(carried.schema), zone).serialize().to_pybytes()
    operators: list[bytes] = []
    for operator in carried.operators:
        with pa.ipc.open_stream(pa.py_buffer(operator)) as stream:
            wanted = with_zone(stream.schema, zone)
            operators.append(_written((viewed(rows, wanted) for rows in stream), wanted))
    told |= {"schema": schema, "operators": operators, "completed": [], "completed_rows": 0}
    return Carried.decode(encode_carried(**told))


def read_schema(schema: bytes) -> pa.Schema:
    """Returns columns that were written as Arrow IPC."""
    return pa.ipc.read_schema(pa.py_buffer(schema))


def schema_of(bundle: bytes) -> bytes:
    """Returns the columns of a bundle, as Arrow IPC."""
    with pa.ipc.open_stream(pa.py_buffer(bundle)) as stream:
        return stream.schema.serialize().to_pybytes()


def _written(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
