# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Columns whose offsets are missing because they have no value, as Spark 3.5 sends them.

An array without values has one offset, 0. Arrow's Java writers used to leave it out; whoever reads
the array through the C interface, which does not tell the lengths of buffers, then reads whatever
lies in memory there. No state.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["Offsets"]


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
