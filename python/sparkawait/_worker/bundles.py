# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Rows of a stream on their way to the shards: few large values instead of many rows.

What is between two stages of a query costs by the row, and a value that holds a thousand rows is
one. Pure functions, for any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from sparkawait._worker.feeder import Offsets

LEAST_ROWS = 1024
"""A batch is cut into more than one bundle if each has so many rows."""

BUNDLES = pa.schema(
    [
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""The key of a shard, where a bundle comes from (partition, and place in it), how many rows it is
to have, and its rows. The numbers of a batch's bundles are together those of the batch."""


class Bundle(NamedTuple):
    """What a step gets of a bundle.

    Attributes:
        rows: How many rows came for it.
        payload: Its rows, as Arrow IPC.
    """

    rows: int
    payload: bytes


def pack(
    batches: Iterable[pa.RecordBatch],
    shards: Sequence[int],
    *,
    partition: int,
    turn: int,
    is_keyed: bool,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of `batches` as bundles, see `BUNDLES`.

    The same rows of the same partition in the same micro-batch give the same bundles.

    Args:
        batches: The rows; with `is_keyed` their last column is the hash of their key.
        shards: The keys of the shards.
        partition: Number of the partition.
        turn: Number of the micro-batch, so that each begins with another shard.
        is_keyed: Whether all rows of a key go to one shard.
    """
    seq = 0
    offsets: Offsets | None = None
    for batch in batches:
        if offsets is None:
            offsets = Offsets(batch.schema)
        repaired = offsets.repaired(batch)
        if is_keyed:
            pieces = _sorted(repaired, len(shards))
        else:
            pieces = _dealt(repaired, len(shards), partition + turn + seq)
        # The first one tells of rows that got lost on the way here, too.
        astray = batch.num_rows - sum(it.num_rows for _, it in pieces)
        bundles = [
            (shards[shard], partition, seq + n, it.num_rows + (0 if n else astray), _ipc(it))
            for n, (shard, it) in enumerate(pieces)
        ]
        seq += len(bundles)
        if bundles:
            columns = [pa.array(column) for column in zip(*bundles, strict=True)]
            arrays = [it.cast(field.type) for it, field in zip(columns, BUNDLES, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=BUNDLES)


def count_rows(payload: bytes) -> int:
    """Returns how many rows a bundle has."""
    return sum(batch.num_rows for batch in unpack([payload]))


def unpack(payloads: Iterable[bytes | pa.Buffer]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of bundles."""
    for payload in payloads:
        with pa.ipc.open_stream(pa.py_buffer(payload)) as stream:
            yield from stream


def _dealt(batch: pa.RecordBatch, shards: int, first: int) -> list[tuple[int, pa.RecordBatch]]:
    """Cuts `batch` into pieces of equal length, for one shard after the other."""
    rows = batch.num_rows
    pieces = min(shards, -(-rows // LEAST_ROWS))
    bounds = [rows * n // pieces for n in range(pieces + 1)] if pieces else [0]
    return [
        ((first + n) % shards, batch.slice(bounds[n], bounds[n + 1] - bounds[n]))
        for n in range(pieces)
    ]


def _sorted(batch: pa.RecordBatch, shards: int) -> list[tuple[int, pa.RecordBatch]]:
    """Puts the rows of each shard together, in their order."""
    *columns, hashes = batch.columns
    index = _modulo(hashes, shards)
    names = batch.schema.names[:-1]
    rows = pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([batch.schema.field(n) for n in range(len(names))])
    )
    found = sorted(cast("list[int]", pc.unique(index).to_pylist()))
    if len(found) == 1:
        return [(found[0], rows)]
    return [(shard, rows.filter(pc.equal(index, pa.scalar(shard, index.type)))) for shard in found]


def _modulo(numbers: Any, divisor: int) -> Any:
    """Returns what is left of each number, never less than zero, as Spark's ``pmod``."""
    by = pa.scalar(divisor, numbers.type)
    # Arrow divides towards zero.
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))
    return pc.if_else(pc.less(rest, pa.scalar(0, numbers.type)), pc.add(rest, by), rest)


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
