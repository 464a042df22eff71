# SPDX-License-Identifier: Apache-2.0
"""What Arrow types have inside of them is found and changed at any depth, and nothing else is."""

import pyarrow as pa

from sparkawait._checks import fields_within, with_leaves

LEAF = pa.field("leaf", pa.int16(), nullable=False, metadata={b"note": b"kept"})
NESTED = pa.field(
    "nested",
    pa.struct(
        [
            LEAF,
            pa.field("list", pa.list_(LEAF)),
            pa.field("large", pa.large_list(LEAF), nullable=False),
            pa.field("three", pa.list_(LEAF, 3), metadata={b"of": b"three"}),
            pa.field("map", pa.map_(pa.field("key", pa.string(), nullable=False), LEAF)),
            pa.field("empty", pa.struct([])),
        ]
    ),
    metadata={b"outer": b"7"},
)


def wider(field):
    return field.with_type(pa.int64()) if field.type == pa.int16() else field


def test_all_fields_are_found_from_the_outside_in():
    names = [field.name for field in fields_within(NESTED)]

    assert names[:2] == ["nested", "leaf"]
    assert [names.count(name) for name in ("leaf", "key", "empty")] == [5, 1, 1]
    assert list(fields_within(LEAF)) == [LEAF]


def test_a_change_of_nothing_changes_nothing():
    same = with_leaves(NESTED, lambda field: field)

    assert same.equals(NESTED, check_metadata=True)


def test_leaves_are_changed_wherever_they_are_and_keep_what_they_have_beside_their_types():
    changed = with_leaves(NESTED, wider)

    leaves = [field for field in fields_within(changed) if field.name == "leaf"]
    assert len(leaves) == 5
    assert {str(leaf.type) for leaf in leaves} == {"int64"}
    assert all(leaf.equals(LEAF.with_type(pa.int64()), check_metadata=True) for leaf in leaves)
    assert changed.type.field("three").type.list_size == 3
    assert changed.metadata == NESTED.metadata
