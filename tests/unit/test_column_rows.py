# SPDX-License-Identifier: Apache-2.0
"""A column of a native function has null where a row was left out, and for no other reason."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkawait.exceptions import ErrorKind, InternalError

columns = pytest.importorskip("sparkawait.spark.columns")

EMPTY = pa.record_batch({"y": pa.array([], pa.int64())})


def column_of(batches, *, came, left_out):
    """The column for batches of numbered rows, whose results are ten times their numbers."""
    output = (pa.record_batch({"number": pa.array(rows, pa.int64())}) for rows in batches)

    def results(batch):
        rows = batch.column(0).to_pylist()
        return pa.record_batch({"y": pa.array([10 * row for row in rows], pa.int64())})

    counts = columns.Counts(lambda: came, lambda: left_out)
    parts = columns.one_for_each(output, 0, results, EMPTY, counts)
    return [value for part in parts for value in part.column(0).to_pylist()]


def test_rows_that_were_left_out_are_null_wherever_they_stand():
    assert column_of([[0, 2], [5]], came=7, left_out=4) == [0, None, 20, None, None, 50, None]
    assert column_of([], came=3, left_out=3) == [None] * 3
    assert column_of([], came=0, left_out=0) == []
    assert column_of([[0, 1, 2]], came=3, left_out=0) == [0, 10, 20]


@pytest.mark.parametrize(
    ("batches", "left_out", "found"),
    [([[0, 1, 2, 3, 4, 5, 6]], 0, 7), ([], 13, 0), ([[0, 2], [5]], 3, 3), ([[0, 2]], 30, 2)],
)
def test_a_row_that_is_missing_fails_the_column_in_words(batches, left_out, found):
    said = f"31 rows came, {found} have results and {left_out} were left out without one"

    with pytest.raises(InternalError, match=said) as info:
        column_of(batches, came=31, left_out=left_out)

    assert info.value.kind is ErrorKind.INTERNAL
