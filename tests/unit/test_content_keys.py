# SPDX-License-Identifier: Apache-2.0
"""Keys of rows by their content: the same in each process, whatever the layout is."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from sparkawait._core import content_keys
from sparkawait.exceptions import ConfigurationError, ErrorKind

ROWS = {"id": [7, None, 7], "name": ["Grün", "", "Grün"]}
TYPES = pa.schema([("id", pa.int64()), ("name", pa.string())])
BATCH = pa.RecordBatch.from_pydict(ROWS, TYPES)

PROGRAM = """
import sys
import pyarrow as pa
from sparkawait._core import content_keys
batch = pa.ipc.open_stream(sys.stdin.buffer).read_next_batch()
print([it.hex() for it in content_keys(batch, b"f").to_pylist()])
"""


def test_equal_rows_have_equal_keys_in_another_process_too():
    keys = content_keys(BATCH, b"f")
    assert keys.type == pa.binary(16)
    first, second, third = keys.to_pylist()
    assert first == third
    assert first != second
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as stream:
        stream.write_batch(BATCH)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=sink.getvalue().to_pybytes(),
        check=True,
        capture_output=True,
    )
    assert result.stdout.decode().strip() == str([it.hex() for it in keys.to_pylist()])


def test_a_layout_is_no_part_of_a_key():
    keys = content_keys(BATCH, b"f")
    longer = pa.RecordBatch.from_pydict({name: [None, *it] for name, it in ROWS.items()}, TYPES)
    assert content_keys(longer.slice(1), b"f") == keys
    for other in (pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        name = BATCH["name"].cast(other)
        assert content_keys(pa.record_batch([BATCH["id"], name], ["id", "name"]), b"f") == keys


def test_who_is_asked_and_the_names_of_columns_are_part_of_a_key():
    keys = [content_keys(BATCH, b"f"), content_keys(BATCH, b"g")]
    keys.append(content_keys(BATCH.rename_columns(["id", "title"]), b"f"))
    keys.append(content_keys(BATCH.select(["name", "id"]), b"f"))
    assert len({it.to_pylist()[0] for it in keys}) == len(keys)


def test_a_batch_without_rows_or_columns_has_as_many_keys_as_rows():
    assert content_keys(BATCH.slice(0, 0), b"f").to_pylist() == []
    assert len(set(content_keys(BATCH.select([]), b"f").to_pylist())) <= 1


def test_a_type_without_an_encoding_is_refused_by_its_column():
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(
        ConfigurationError, match=r"column `odd` has or contains .*`Union"
    ) as caught:
        content_keys(pa.record_batch([union], ["odd"]), b"f")
    assert caught.value.kind is ErrorKind.TYPE_REFUSED
