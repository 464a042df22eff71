# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
"""Compares enriched flights with a plain join: every row, exactly once, equal values.

The join is Arrow's, over the tables themselves, so it shares nothing with the lookups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from sparkawait.demo.data import FLIGHT_ID, Dataset

__all__ = ["Verdict", "compare", "compare_files", "plain_join"]


@dataclass(frozen=True)
class Verdict:
    """What `compare` found.

    Attributes:
        rows: Rows that the plain join has.
        missing: Those of them that are not in the output.
        repeated: Rows that are in the output once more than they should be.
        unknown: Rows of the output that the plain join does not have.
        different: Rows of the output with a value that the plain join does not have.
        disordered: Partitions that should be in the order of the flights and are not.
    """

    rows: int
    missing: int = 0
    repeated: int = 0
    unknown: int = 0
    different: int = 0
    disordered: int = 0

    @property
    def is_right(self) -> bool:
        """Whether every row is there exactly once, with equal values."""
        return self == Verdict(self.rows)

    def __str__(self) -> str:
        """Says it in a few words."""
        if self.is_right:
            return f"equal to the plain join: all {self.rows:,} rows, each exactly once"
        rows = ("missing", "repeated", "unknown", "different")
        found = [f"{getattr(self, name):,} {name}" for name in rows if getattr(self, name)]
        if self.disordered:
            found.append(f"{self.disordered:,} partitions out of order")
        return f"not equal to the plain join of {self.rows:,} rows: {', '.join(found)}"


def plain_join(dataset: Dataset) -> pa.Table:
    """Returns every flight with the weather of its origin and hour and its aircraft, by number."""
    joined = dataset.flights.join(dataset.weather, ["origin", "time_hour"])
    return joined.join(dataset.aircraft, "tailnum").sort_by(FLIGHT_ID).combine_chunks()


def compare(expected: pa.Table, actual: pa.Table) -> Verdict:
    """Compares the output with the plain join, whatever the order of its rows and columns.

    Args:
        expected: What `plain_join` returned.
        actual: The output.
    """
    numbers = pc.index_in(actual[FLIGHT_ID], expected[FLIGHT_ID].combine_chunks())
    known = actual.filter(pc.is_valid(numbers))
    places = pc.drop_null(numbers)
    distinct = pc.count_distinct(places).as_py()
    return Verdict(
        rows=expected.num_rows,
        missing=expected.num_rows - distinct,
        repeated=known.num_rows - distinct,
        unknown=actual.num_rows - known.num_rows,
        different=_different_rows(expected.take(places), known),
    )


def compare_files(expected: pa.Table, folder: Path, *, in_order: bool) -> Verdict:
    """Compares the Parquet files of one run with the plain join.

    Args:
        expected: What `plain_join` returned.
        folder: Where the files are, one for each partition.
        in_order: Whether each partition has to be in the order of the flights.
    """
    partitions = [parquet.read_table(file) for file in sorted(folder.glob("*.parquet"))]
    verdict = compare(expected, pa.concat_tables(partitions))
    disordered = sum(not _is_in_order(partition) for partition in partitions) if in_order else 0
    return replace(verdict, disordered=disordered)


def _is_in_order(partition: pa.Table) -> bool:
    numbers = partition[FLIGHT_ID].to_numpy()
    return bool((numbers[1:] > numbers[:-1]).all())


def _different_rows(expected: pa.Table, actual: pa.Table) -> int:
    different: Any = pa.chunked_array([[False] * expected.num_rows])
    for name in expected.column_names:
        left, right = expected[name], actual[name].cast(expected[name].type)
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        equal = pc.fill_null(pc.equal(left, right), pa.scalar(value=False))
        same = pc.or_(equal, both_null)
        different = pc.or_(different, pc.invert(same))
    return pc.sum(different).as_py() or 0
