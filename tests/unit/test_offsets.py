# SPDX-License-Identifier: Apache-2.0
"""Columns that come without offsets get them; all others are left alone."""

import pyarrow as pa
import pytest

import sparkawait.arrow
from sparkawait import Tuning, async_function
from sparkawait._worker.feeder import Offsets

# No byte, where others follow that are no offsets.
NOTHING = pa.py_buffer(b"\xff" * 16).slice(0, 0)
TEXTS = pa.Array.from_buffers(pa.string(), 0, [None, NOTHING, NOTHING])
NUMBERS = pa.Array.from_buffers(
    pa.list_(pa.int32()), 0, [None, NOTHING], children=[pa.array([], pa.int32())]
)
ENTRIES = pa.StructArray.from_arrays([TEXTS, TEXTS], names=["key", "value"])
ONE_EMPTY = pa.py_buffer((0).to_bytes(8, "little"))


def one_empty(data_type, child):
    return pa.Array.from_buffers(data_type, 1, [None, ONE_EMPTY], children=[child])


BROKEN = [
    one_empty(pa.list_(pa.string()), TEXTS),
    one_empty(pa.list_(pa.list_(pa.int32())), NUMBERS),
    one_empty(pa.map_(pa.string(), pa.string()), ENTRIES),
    pa.StructArray.from_arrays(
        [pa.array([7]), one_empty(pa.list_(pa.string()), TEXTS)], names=["number", "texts"]
    ),
]


@async_function("shown string")
async def show(row):
    return {"shown": repr(row["value"])}


FORMS = {
    "list": lambda batch: [batch],
    "batch": lambda batch: batch,
    "table": lambda batch: pa.Table.from_batches([batch]),
    "reader": lambda batch: pa.RecordBatchReader.from_batches(batch.schema, [batch]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("column", BROKEN, ids=lambda column: str(column.type))
def test_a_column_without_values_passes_and_can_be_read(column, form):
    batch = pa.RecordBatch.from_arrays([column, pa.array(["other"])], ["value", "text"])

    (out,) = sparkawait.arrow.ordered_wait(
        FORMS[form](batch), show, tuning=Tuning(buffer_timeout=None)
    )

    out.validate(full=True)
    assert out.column("value").to_pylist() == column.to_pylist()
    assert out.column("shown").null_count == 0


def test_a_batch_without_rows_passes():
    empty = pa.RecordBatch.from_arrays([TEXTS], ["value"])
    full = pa.RecordBatch.from_arrays([pa.array(["a"])], ["value"])

    assert [b.num_rows for b in sparkawait.arrow.ordered_wait([empty, full], show)] == [1]


def test_a_batch_that_lacks_nothing_is_the_same_object():
    nested = pa.array([[{"a": "x", "b": None}], [], None])
    columns = [nested, pa.array(["a", "", None]), pa.nulls(3), pa.array([1, 2, 3])]
    batch = pa.RecordBatch.from_arrays(columns, list("abcd"))

    assert Offsets(batch.schema).repaired(batch) is batch
