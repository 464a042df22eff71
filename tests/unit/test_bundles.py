# SPDX-License-Identifier: Apache-2.0
"""Bundles of rows on their way to the shards of a stream: each row is in one, in its order."""

import pyarrow as pa
import pytest

from sparkawait._worker.step import pack, unpack

INT_32 = 2**31


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 200])
def test_rows_of_a_hash_go_to_the_shard_that_spark_would_take(shards):
    hashes = [-INT_32, INT_32 - 1, -1, 0, 1, -3, 13, *(17 * n * (-1) ** n for n in range(99))]
    batch = pa.record_batch(
        {"id": range(len(hashes)), "hash": pa.array(hashes, pa.int32())},
        schema=pa.schema([("id", pa.int64()), ("hash", pa.int32())]),
    )
    keys = range(1000, 1000 + shards)

    (bundles,) = pack([batch], keys, partition=5, turn=3, is_keyed=True)

    found = {}
    for bundle in bundles.to_pylist():
        for rows in unpack([bundle["payload"]]):
            assert rows.schema.names == ["id"]
            found[bundle["shard"]] = rows.column("id").to_pylist()
    # Python's modulo has the sign of the divisor, as that of a shuffle.
    expected = {
        1000 + shard: [id_ for id_, it in enumerate(hashes) if it % shards == shard]
        for shard in range(shards)
    }
    assert found == {key: ids for key, ids in expected.items() if ids}
    assert [bundle["seq"] for bundle in bundles.to_pylist()] == list(range(bundles.num_rows))
