# SPDX-License-Identifier: Apache-2.0
"""Results of a function, against udfs of Spark: the pickled one, and the one over Arrow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from pyspark.sql.types import _parse_datatype_string

import sparkawait as sa
from tests.types.paths import Cell, Path, Refused, Rule
from tests.types.workers import VERSION, ZONES, classic_udf, zones

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NEW_YORK = ZoneInfo("America/New_York")
UTC = dt.timezone.utc
WALL = dt.datetime.fromisoformat
NAN = float("nan")
ROUNDED = {0.1: 1, 0.10000000149011612: 2}

VALUES: dict[str, dict[str, Any]] = {
    "boolean": {"True": True, "None": None, "1": 1, "a string": "true"},
    "tinyint": {"127": 127, "128": 128, "1.0": 1.0},
    "int": {
        "5": 5,
        "2^31": 2**31,
        "1.5": 1.5,
        "2.0": 2.0,
        "True": True,
        "a string": "5",
        "Decimal 1.5": Decimal("1.5"),
        "Decimal 2": Decimal(2),
    },
    "bigint": {"2^53+1": 2**53 + 1, "2^63-1": 2**63 - 1, "2^63": 2**63, "1e300": 1e300},
    "float": {"0.1": 0.1, "NaN": float("nan"), "infinity": float("inf"), "1e300": 1e300, "5": 5},
    "double": {
        "0.1": 0.1,
        "NaN": float("nan"),
        "5": 5,
        "2^53+1": 2**53 + 1,
        "True": True,
        "Decimal 1.5": Decimal("1.5"),
        "a string": "1.5",
    },
    "decimal(10,2)": {
        "1.20": Decimal("1.20"),
        "1E+2": Decimal("1E+2"),
        "1.555": Decimal("1.555"),
        "too large": Decimal(123456789),
        "5": 5,
        "1.5": 1.5,
        "a string": "1.5",
    },
    "string": {"text": "naïve 👩", "empty": "", "NUL": "a\0b", "5": 5, "True": True, "None": None},
    "binary": {
        "bytes": b"\x00\xff",
        "bytearray": bytearray(b"\x00\xff"),
        "a string": "é",
        "5": 5,
    },
    "date": {
        "year 1": dt.date(1, 1, 1),
        "1582": dt.date(1582, 10, 4),
        "midnight": WALL("2024-01-31T00:00:00"),
        "with a time": WALL("2024-01-31T23:00:00"),
        "5": 5,
        "a string": "2024-01-31",
    },
    "timestamp": {
        "naive": WALL("2024-07-01T12:00:00.000001"),
        "naive, in the hour that is skipped": WALL("2024-03-10T02:30:00"),
        "naive, before 1970": WALL("1969-12-31T23:59:59.999999"),
        "naive, year 1": WALL("0001-01-02T00:00:00"),
        "aware": dt.datetime(2024, 7, 1, 12, tzinfo=UTC),
        "aware, first": dt.datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=0),
        "aware, second": dt.datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=1),
        "a date": dt.date(2024, 7, 1),
        "5": 5,
        "a string": "2024-07-01 12:00:00",
    },
    "timestamp_ntz": {
        "naive": WALL("2024-07-01T12:00:00.000001"),
        "year 9999": WALL("9999-12-31T23:59:59.999999"),
        "aware": dt.datetime(2024, 7, 1, 12, tzinfo=NEW_YORK),
        "a date": dt.date(2024, 7, 1),
        "5": 5,
    },
    "interval day to second": {
        "mixed": dt.timedelta(1, 7384, 5),
        "negative": -dt.timedelta(1, 7384, 5),
        "5": 5,
    },
    "array<int>": {
        "list": [1, None, 3],
        "tuple": (1, 2),
        "empty": [],
        "1.5 inside": [1, 1.5],
        "True inside": [True],
        "a string": "ab",
        "bytes": b"ab",
        "a dict": {1: 2},
    },
    "array<timestamp>": {"naive": [WALL("2024-07-01T12:00:00")], "numbers": [5]},
    "array<array<int>>": {"lists": [[1], [], None]},
    "map<string,int>": {"dict": {"a": 1, "b": None}, "empty": {}, "1.5 inside": {"a": 1.5}},
    "map<int,string>": {"dict": {1: "a"}, "1.5 as key": {1.5: "a"}},
    # Keys that Python tells apart, and the column does not.
    "map<date,int>": {"a day and its midnight": {dt.date(2024, 7, 1): 1, WALL("2024-07-01"): 2}},
    "array<map<date,int>>": {
        "a day and its midnight": [{WALL("2024-07-01"): 1, dt.date(2024, 7, 1): 2}, None]
    },
    "map<struct<d: date>,int>": {
        "a day and its midnight": {(dt.date(2024, 7, 1),): 1, (WALL("2024-07-01"),): 2}
    },
    "map<timestamp,int>": {
        "one instant in two zones": {
            dt.datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=1): 1,
            dt.datetime(2024, 11, 3, 6, 30, tzinfo=UTC): 2,
        },
        "two instants of one clock": {
            dt.datetime(2024, 11, 3, 5, 30, tzinfo=UTC): 1,
            dt.datetime(2024, 11, 3, 6, 30, tzinfo=UTC): 2,
        },
    },
    "map<timestamp_ntz,int>": {
        "aware and naive": {WALL("2024-07-01T12:00:00"): 1, WALL("2024-07-01T12:00:00+05:30"): 2}
    },
    "map<double,int>": {"NaN twice": {NAN: 1, -NAN: 2}},
    "map<float,int>": {"NaN twice": {NAN: 1, -NAN: 2}, "equal when rounded": ROUNDED},
    "map<struct<x: double>,int>": {"NaN inside twice": {(NAN,): 1, (-NAN,): 2}},
    "map<binary,int>": {"text and bytes": {"a": 1, b"a": 2}},
    "struct<x: int, y: string>": {
        "dict": {"x": 1, "y": "a"},
        "dict in another order": {"y": "a", "x": 1},
        "dict with more": {"x": 1, "y": "a", "z": 2},
        "dict with less": {"x": 1},
        "tuple": (1, "a"),
        "short tuple": (1,),
        "1.5 inside": {"x": 1.5, "y": "a"},
    },
    "struct<a: array<struct<m: map<string, bigint>, t: timestamp>>>": {
        "dicts": {"a": [{"m": {"k": 2**53 + 1}, "t": WALL("2024-07-01T12:00:00")}, None]}
    },
}
NUMPY: dict[str, dict[str, Any]] = {
    "boolean": {"np.bool_": np.True_},
    "int": {
        "np.int64": np.int64(5),
        "np.float32 1.7": np.float32(1.7),
        "np.float32 2": np.float32(2),
        "np.bool_": np.True_,
    },
    "double": {"np.float32": np.float32(0.1), "np.float64": np.float64(0.1)},
    "array<int>": {"np.array": np.array([1, 2]), "np.array of 1.7": np.array([1.7], np.float32)},
    "map<string,int>": {"np.float32 1.7 inside": {"a": np.float32(1.7)}},
    "struct<x: int, y: string>": {"np.float32 1.7 inside": {"x": np.float32(1.7), "y": "a"}},
}


def _cells(values: dict[str, dict[str, Any]]) -> tuple[Cell, ...]:
    return tuple((data_type, name) for data_type, named in values.items() for name in named)


def _is_number(ours: str | None, oracle: str | None) -> bool:
    return oracle is None and ours in {"1", "2", "5.0", "5.00"}


def _is_last_entry(ours: str, oracle: str) -> bool:
    """Whether `oracle` has one key, be it twice, and `ours` the second of two entries."""
    keys = {entry.split(" -> ")[0] for entry in oracle[1:-1].split(", ")}
    return len(keys) == 1 and ours == f"{{{keys.pop()} -> 2}}"


SILENT = "`udf` makes it null in silence"
PATHS = (
    Path(
        "Result of a Python function",
        "`udf`, pickled",
        _cells(VALUES),
        (
            Rule("boolean", "1|a string", "refused", SILENT),
            Rule(
                "tinyint|int|bigint",
                r"128|2\^31|2\^63|1e300",
                "refused",
                "out of range; `udf` keeps the lower bits or makes it null",
            ),
            Rule(
                "tinyint|int",
                r"1\.0|2\.0|Decimal 2",
                "differs",
                f"the same number, which is whole; {SILENT}",
                _is_number,
            ),
            Rule(
                "float|double|decimal.*",
                "5",
                "differs",
                f"the same number; {SILENT}",
                _is_number,
            ),
            Rule("float", "1e300", "refused", "out of range; `udf` makes it infinite"),
            Rule("int", r"1\.5|True|a string|Decimal 1\.5", "refused", SILENT),
            Rule("double", r"2\^53\+1", "refused", f"it would be rounded; {SILENT}"),
            Rule("double", r"True|Decimal 1\.5|a string", "refused", SILENT),
            Rule("decimal.*", r"1\.555", "refused", "it would be rounded, as `udf` does"),
            Rule("decimal.*", r"1\.5|a string", "refused", SILENT),
            Rule("string", "5|True", "refused", "`udf` takes the text that Java makes of it"),
            Rule("binary", "5", "refused", SILENT),
            Rule("date", "with a time", "refused", "`udf` drops the time of day"),
            Rule("array<int>", "a string|a dict", "refused", SILENT),
            Rule(
                "map<(float|binary|struct<x: double>),int>",
                "equal when rounded|text and bytes|NaN inside twice",
                "differs",
                "of equal keys the last one counts; `udf` makes a map that has a key twice",
                _is_last_entry,
            ),
            Rule(
                "map<(float|double),int>",
                "NaN twice",
                "differs",
                "of equal keys the last one counts, as elsewhere; `udf` has the first",
                _is_last_entry,
            ),
            Rule("array<int>", "bytes", "refused", "`udf` makes an array of numbers of it"),
            Rule(
                "array.*|map.*|struct.*",
                ".*(inside|as key)",
                "refused",
                "as a value alone would be; `udf` makes it null, or 0 as a key",
            ),
        ),
        "A function returns a mapping, a dataclass, a NamedTuple, a `Row`, a TypedDict, a model of"
        " pydantic, a class of attrs, or a list of these for 0..n rows; for a single column also"
        " its value. A naive `datetime` for a `timestamp` is in the time zone of the worker, as in"
        " `udf`; in the hour that is there twice `fold` says which one it is, where `udf` takes"
        " either. A value that does not fit fails its own row. The word `timestamp` in a schema,"
        " and the annotation `datetime`, mean what `spark.sql.timestampType` says, for results of"
        " services and stores too; a `TimestampType()` always has a zone. A value of a user-defined"
        " type, such as a `DenseVector`, is stored as the struct inside, which is the type of its"
        " column, too.",
    ),
    Path(
        "Result of a Python function from NumPy",
        "`udf` over Arrow",
        _cells(NUMPY),
        (
            Rule("int", r"np\.float32 1\.7|np\.bool_", "refused", "`udf` makes 1 of it"),
            Rule(".*<.*", r".* 1\.7.*", "refused", "`udf` makes 1 of it"),
        ),
        "Scalars and arrays of NumPy are what Python's own values would be. The pickled `udf` does"
        " not take them.",
    ),
)


@pytest.mark.parametrize(("session", "worker"), ZONES, ids=lambda zone: zone)
def test_results_of_a_python_function(spark, session, worker):
    with zones(spark, session, worker):
        PATHS[0].check(_outcomes(spark, VALUES, arrow=False), VERSION)


def test_results_of_numpy(spark):
    with zones(spark, *ZONES[0]):
        PATHS[1].check(_outcomes(spark, NUMPY, arrow=True), VERSION)


def _outcomes(
    spark: SparkSession, values: dict[str, dict[str, Any]], *, arrow: bool
) -> Iterator[tuple[Cell, tuple[Any, Any]]]:
    ours = _ours(spark, values)
    returned = [(kind, value) for kind, named in values.items() for value in named.values()]
    oracle = _of_udfs(spark, returned, arrow=arrow)
    yield from zip(_cells(values), zip(ours, oracle, strict=True), strict=True)


def _ours(spark: SparkSession, values: dict[str, dict[str, Any]]) -> list[Any]:
    """Has one job return a row for each value, with a column for each type."""
    schema = ", ".join(f"c{i} {kind}" for i, kind in enumerate(values))
    cells = [(i, value) for i, named in enumerate(values.values()) for value in named.values()]
    empty = {f"c{i}": None for i in range(len(values))}

    @sa.async_function(schema)
    async def answer(row):
        column, value = cells[row.id]
        return {**empty, f"c{column}": value}

    out = sa.ordered_wait(
        spark.range(0, len(cells), numPartitions=1), answer, on_error="capture", capacity=7
    )
    shown = [_text(f"c{i}", kind) for i, kind in enumerate(values)]
    rows = out.selectExpr("id", "error", *shown).orderBy("id").collect()
    return [
        Refused(row.error.message) if row.error else row[f"c{column}"]
        for row, (column, _) in zip(rows, cells, strict=True)
    ]


def _of_udfs(spark: SparkSession, returned: list[tuple[str, Any]], *, arrow: bool) -> list[Any]:
    """Has a udf return each value, in one job, without those that Spark's Python refuses."""
    refused = {} if arrow else {i: why for i, one in enumerate(returned) if (why := _refusal(one))}
    others = [one for i, one in enumerate(returned) if i not in refused]
    found = iter(_of_job(spark, others, arrow=arrow))
    return [refused[i] if i in refused else next(found) for i in range(len(returned))]


def _refusal(returned: tuple[str, Any]) -> Refused | None:
    kind, value = returned
    try:
        _parse_datatype_string(kind).toInternal(value)
    except Exception as error:  # noqa: BLE001 - it is the outcome
        return Refused(repr(error))
    return None


def _of_job(spark: SparkSession, returned: list[tuple[str, Any]], *, arrow: bool) -> list[Any]:
    """Tries all at once; if that fails, one of them is to be found."""
    columns = [
        classic_udf(lambda _, value=value: value, kind, arrow=arrow)("id").alias(f"c{i}")
        for i, (kind, value) in enumerate(returned)
    ]
    frame = spark.range(0, 1, numPartitions=1).select("id", *columns)
    shown = frame.selectExpr(*(_text(f"c{i}", kind) for i, (kind, _) in enumerate(returned)))
    try:
        return list(shown.first())
    except Exception as error:  # noqa: BLE001 - it is the outcome of one of them
        if len(returned) == 1:
            return [Refused(repr(error))]
    half = len(returned) // 2
    parts = (returned[:half], returned[half:])
    return [one for part in parts for one in _of_job(spark, part, arrow=arrow)]


def _text(column: str, kind: str) -> str:
    shown = f"hex({column})" if kind == "binary" else f"cast({column} as string)"
    return f"{shown} as {column}"
