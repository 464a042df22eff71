# SPDX-License-Identifier: Apache-2.0
"""Results of functions as Arrow columns."""

import enum
import itertools
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sparkawait._schema.ddl import parse_schema
from sparkawait._values.records import rows_of
from sparkawait._values.results import ResultBuilder
from sparkawait.exceptions import ErrorKind, ResultError


class Point(NamedTuple):
    x: int
    y: int


class Level(enum.IntEnum):
    HIGH = 2


class Colour(str, enum.Enum):
    RED = "red"


def build(ddl, results, required=()):
    return ResultBuilder(parse_schema(ddl), required).build(list(range(len(results))), results)


def message(ddl, result, required=()):
    ((_, error),) = build(ddl, [result], required).failures
    assert isinstance(error, ResultError)
    assert error.kind is ErrorKind.RESULT_SCHEMA_MISMATCH
    return str(error)


def test_one_mapping_per_row_needs_no_counts():
    built = build("a int, b string", [{"a": 1, "b": "x"}, {"b": None, "a": 2}])
    assert built.counts is None
    assert built.batch.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_lists_have_counts():
    built = build("a int", [[], {"a": 1}, [{"a": 2}, {"a": 3}], ()])
    assert built.counts == [0, 1, 2, 0]
    assert built.batch.column("a").to_pylist() == [1, 2, 3]


def test_any_mapping_will_do():
    built = build("a int", [MappingProxyType({"a": 1})])
    assert built.batch.to_pylist() == [{"a": 1}]


def test_no_results_make_an_empty_batch():
    built = build("a int, b string", [[], []])
    assert (built.batch.num_rows, built.batch.schema) == (0, parse_schema("a int, b string"))


def test_rows_that_do_not_fit_are_left_out():
    good = {"a": 1, "b": 1}
    built = build("a int, b int", [good, {"a": "x", "b": 1}, {}, None, good])
    assert built.rows == [0, 4]
    assert sorted(row for row, _ in built.failures) == [1, 2, 3]
    assert built.batch.column("a").to_pylist() == [1, 1]


def test_the_message_names_the_column_and_keeps_the_value_out():
    text = message("a int, b double", {"a": 1, "b": "secret"})
    assert text == "column `b` is declared as double, got a value of type `str`"


def test_a_missing_column_is_named():
    assert message("a int, b int", {"a": 1}) == "column `b` is missing from the result"


def test_a_null_in_a_column_that_is_not_null_is_refused():
    text = message("a int, b int not null", {"a": None, "b": None}, required=["b"])
    assert text == "column `b` is declared as not null, got None"


def test_a_mapping_that_raises_fails_its_row_alone():
    class Broken(dict):
        def __getitem__(self, key):
            raise RuntimeError

    built = build("a int", [Broken(), {"a": 1}])
    assert (built.rows, [row for row, _ in built.failures]) == ([1], [0])


UTC = timezone.utc


ZEROS = Decimal("1.5" + "0" * 40)
"""Has more digits than any column, of which none is lost."""


def unique(value, numbers=itertools.count()):  # noqa: B008 - one count
    """Names a parameter; NumPy 1 shows its numbers as Python does."""
    return f"{next(numbers)} {value!r}"


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("boolean", 1),
        ("boolean", "true"),
        ("int", 1.5),
        ("int", Decimal("1.5")),
        ("int", Decimal("NaN")),
        ("int", float("inf")),
        ("int", np.float32(1.7)),
        ("int", np.float64(1.7)),
        ("int", True),
        ("int", np.True_),
        ("int", np.ma.masked),
        ("double", np.ma.masked),
        ("boolean", np.ma.masked),
        ("int", "5"),
        ("int", Fraction(1, 2)),
        ("int", 2**31),
        ("bigint", 2**63),
        ("bigint", np.uint64(2**63)),
        ("tinyint", 300),
        ("double", True),
        ("double", 2**53 + 1),
        ("double", Decimal("1.5")),
        ("double", "1.5"),
        ("float", 2**24 + 1),
        ("decimal(10,2)", Decimal("1.555")),
        ("decimal(10,2)", Decimal(123456789)),
        ("decimal(10,2)", Decimal("NaN")),
        ("decimal(10,2)", 1.5),
        ("decimal(10,2)", True),
        ("string", b"bytes"),
        ("string", 5),
        ("string", "\ud800"),
        ("binary", 5),
        ("binary", [1, 2]),
        ("date", datetime(2026, 1, 1, 12)),  # noqa: DTZ001 - naive on purpose
        ("date", np.datetime64("2026-01-01T12")),
        ("date", 5),
        ("date", "2026-01-01"),
        ("timestamp", 1700000000),
        ("timestamp", date(2026, 1, 1)),
        ("timestamp", np.datetime64("2026-01-01T00:00:00", "us")),
        ("timestamp_ntz", "2026-01-01"),
        ("timestamp_ntz", np.datetime64("2026-01-01T00:00:00.000000001")),
        ("timestamp_ntz", pd.Timestamp("2026-01-01T00:00:00.000000001")),
        ("interval day to second", 5),
        ("interval day to second", np.timedelta64(1, "ns")),
        ("array<string>", "text"),
        ("array<string>", {"k": "v"}),
        ("array<string>", {"k"}),
        ("array<int>", b"12"),
        ("array<int>", bytearray(b"12")),
        ("array<int>", [1, 1.5]),
        ("array<int>", [1, np.float32(1.5)]),
        ("array<int>", np.array([1.5])),
        ("array<array<int>>", [[1], [1.5]]),
        ("array<timestamp>", [1700000000]),
        ("struct<a: int>", {"a": 1.5}),
        ("struct<a: int>", {"a": np.float32(1.5)}),
        ("struct<a: int>", "a"),
        ("struct<a: int>", (1, 2)),
        ("struct<a: int, b: int>", Point(1, 2)),
        ("struct<a: int not null>", {"a": None}),
        ("struct<a: int not null>", {}),
        ("map<string,int>", {"a": 1.5}),
        ("map<string,int>", {"a": np.float32(1.5)}),
        ("map<int,string>", {1.5: "a"}),
        ("map<string,int>", {None: 1}),
        ("map<string,int>", [("a", 1), ("a", 2)]),
        ("map<date,int>", [(date(2024, 7, 1), 1), (datetime.fromisoformat("2024-07-01"), 2)]),
        ("map<double,int>", [(float("nan"), 1), (float("nan"), 2)]),
        ("map<string,int>", ["ab"]),
        ("map<string,int>", "ab"),
    ],
    ids=unique,
)
def test_a_value_is_refused_rather_than_stored_wrong(ddl, value):
    assert message(f"c {ddl}", {"c": value}).startswith("column `c` is declared as")


def test_the_message_says_where_in_a_nested_value():
    text = message("c array<struct<m: map<string,int>>>", {"c": [{"m": {"k": 1.5}}]})
    assert text.endswith("a value of type `float` that is not whole (in `c.element.m.value`)")


NOT_NULL = {
    "array": (pa.list_(pa.field("element", pa.int32(), nullable=False)), [1, None]),
    "map": (
        pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
        {"a": None},
    ),
    "struct": (pa.struct([pa.field("x", pa.int32(), nullable=False)]), {"x": None}),
    "array in struct": (
        pa.struct([("l", pa.list_(pa.field("element", pa.int32(), nullable=False)))]),
        {"l": [None]},
    ),
}


@pytest.mark.parametrize("case", NOT_NULL)
def test_a_null_where_a_nested_member_allows_none_fails_its_row_alone(case):
    data_type, value = NOT_NULL[case]
    builder = ResultBuilder(pa.schema([("c", data_type)]))
    built = builder.build([0, 1, 2], [{"c": None}, {"c": value}, {"c": None}])
    assert built.rows == [0, 2]
    ((_, error),) = built.failures
    assert "got None for a NOT NULL member (in `c." in str(error)


@pytest.mark.parametrize(
    ("ddl", "value", "stored"),
    [
        ("boolean", np.True_, True),
        ("int", 2.0, 2),
        ("int", Decimal("2.0"), 2),
        ("int", np.float32(2), 2),
        ("int", Level.HIGH, 2),
        ("bigint", np.int64(5), 5),
        ("double", 5, 5.0),
        ("double", np.float64(0.5), 0.5),
        ("double", np.float32(0.1), float(np.float32(0.1))),
        ("double", np.int8(5), 5.0),
        ("float", 0.1, float(np.float32(0.1))),
        ("decimal(10,2)", 5, Decimal("5.00")),
        ("decimal(10,2)", np.int64(5), Decimal("5.00")),
        ("decimal(10,2)", Decimal("1E+2"), Decimal("100.00")),
        ("decimal(10,2)", Decimal("1.5" + "0" * 53), Decimal("1.50")),
        ("array<decimal(38,2)>", [Decimal("-7." + "0" * 97), None], [Decimal("-7.00"), None]),
        ("string", np.str_("text"), "text"),
        ("string", Colour.RED, "red"),
        ("binary", bytearray(b"ab"), b"ab"),
        ("binary", memoryview(b"ab"), b"ab"),
        ("binary", "é", "é".encode()),
        ("date", datetime(2026, 1, 1), date(2026, 1, 1)),  # noqa: DTZ001 - naive on purpose
        ("date", date(2026, 1, 1), date(2026, 1, 1)),
        ("date", np.datetime64("2026-01-01"), date(2026, 1, 1)),
        ("date", pd.NaT, None),
        ("timestamp", pd.Timestamp("2026-01-01", tz="UTC"), datetime(2026, 1, 1, tzinfo=UTC)),
        ("timestamp", pd.NaT, None),
        (
            "timestamp_ntz",
            np.datetime64("2026-01-01T00:00:00", "us"),
            datetime.fromisoformat("2026-01-01"),
        ),
        (
            "timestamp_ntz",
            datetime.fromisoformat("2026-01-01T12:00:00+05:30"),
            datetime.fromisoformat("2026-01-01T12:00:00"),
        ),
        ("timestamp_ntz", np.datetime64("NaT"), None),
        ("interval day to second", np.timedelta64(1, "h"), timedelta(hours=1)),
        ("interval day to second", pd.Timedelta("1h"), timedelta(hours=1)),
        ("array<int>", (1, 2.0, None), [1, 2, None]),
        ("array<int>", np.array([1, 2]), [1, 2]),
        ("array<double>", np.array([1, 2], np.float32), [1.0, 2.0]),
        ("array<date>", np.array(["2026-01-01"], "datetime64[D]"), [date(2026, 1, 1)]),
        ("struct<a: int, b: string>", {"a": 1.0}, {"a": 1, "b": None}),
        ("struct<a: int, b: string>", (1, "x"), {"a": 1, "b": "x"}),
        ("struct<x: int, y: int>", Point(1, 2), {"x": 1, "y": 2}),
        ("array<struct<y: int, x: int>>", [Point(1, 2)], [{"y": 2, "x": 1}]),
        ("map<string,int>", {np.str_("k"): np.int8(1)}, [("k", 1)]),
        ("decimal(10,2)", ZEROS, Decimal("1.50")),
        ("array<decimal(10,2)>", [None, ZEROS], [None, Decimal("1.50")]),
        ("map<string,decimal(10,2)>", {"k": ZEROS}, [("k", Decimal("1.50"))]),
        (
            "struct<d: decimal(10,2), m: map<string,int>>",
            {"d": ZEROS, "m": {"k": 1}},
            {"d": Decimal("1.50"), "m": [("k", 1)]},
        ),
    ],
    ids=unique,
)
def test_a_value_that_loses_nothing_is_taken(ddl, value, stored):
    built = build(f"c {ddl}", [{"c": value}])
    assert built.failures == []
    [read] = built.batch.column(0).to_pylist()
    if isinstance(read, datetime) and read.tzinfo is not None:
        read = read.astimezone(timezone.utc)  # pyarrow has had several classes for it
    assert repr(read) == repr(stored)


@pytest.fixture
def new_york(monkeypatch):
    """Has the process in New York's time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize(
    ("naive", "fold", "instant"),
    [
        ("2026-01-01T12:00:00.000001", 0, "2026-01-01T17:00:00.000001"),
        ("2026-07-01T12:00:00", 0, "2026-07-01T16:00:00"),
        ("2024-11-03T01:30:00", 0, "2024-11-03T05:30:00"),
        ("2024-11-03T01:30:00", 1, "2024-11-03T06:30:00"),
        ("2024-03-10T02:30:00", 0, "2024-03-10T07:30:00"),
        ("0001-01-01T00:00:00", 0, "0001-01-01T04:56:02"),
    ],
)
@pytest.mark.parametrize("ddl", ["timestamp", "array<timestamp>", "struct<t: timestamp>"])
def test_a_naive_datetime_is_in_the_zone_of_the_process(ddl, naive, fold, instant):
    value = datetime.fromisoformat(naive).replace(fold=fold)
    values = {"timestamp": value, "array<timestamp>": [value], "struct<t: timestamp>": (value,)}
    column = build(f"c {ddl}", [{"c": values[ddl]}]).batch.column(0)
    while not pa.types.is_timestamp(column.type):
        column = column.flatten() if pa.types.is_list(column.type) else column.field(0)
    assert column.cast(pa.timestamp("us")).to_pylist() == [datetime.fromisoformat(instant)]


@pytest.mark.usefixtures("new_york")
def test_a_naive_datetime_may_be_in_a_year_in_utc_that_python_does_not_have():
    end = datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
    column = build("c timestamp", [{"c": end}]).batch.column(0)
    assert column.cast(pa.int64()).to_pylist() == [253_402_318_799_999_999]


def test_finer_times_than_the_column_holds_are_refused():
    moment = datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)
    for unit, fits in (("s", False), ("ms", False), ("us", True), ("ns", True)):
        for kind, value in (
            (pa.timestamp(unit, "UTC"), moment),
            (pa.timestamp(unit), moment),
            (pa.duration(unit), timedelta(microseconds=1500)),
        ):
            built = ResultBuilder(pa.schema([("c", kind)])).build([0], [{"c": value}])
            assert (built.failures == []) is fits, kind


@pytest.mark.parametrize(
    ("ddl", "value", "stored"),
    [
        ("map<string,int>", {"k": 1}, [("k", 1)]),
        ("map<string,int>", [("k", 1)], [("k", 1)]),
        ("map<string,int>", None, None),
        ("array<map<string,int>>", [{"k": 1}, None], [[("k", 1)], None]),
        ("struct<m: map<int,int>, n: int>", {"m": {1: 2}, "n": 3}, {"m": [(1, 2)], "n": 3}),
        ("struct<m: map<int,int>>", None, None),
        ("map<string,map<string,int>>", {"a": {"b": 1}}, [("a", [("b", 1)])]),
    ],
    ids=["map", "pairs", "null", "in-array", "in-struct", "null-struct", "in-map"],
)
def test_a_mapping_is_a_value_of_a_map_column(ddl, value, stored):
    built = build(f"a {ddl}", [{"a": value}])
    assert built.failures == []
    assert built.batch.to_pylist() == [{"a": stored}]


@pytest.mark.parametrize(
    ("result", "kind", "words"),
    [
        (
            None,
            ErrorKind.RESULT_IS_NONE,
            r"returned None; return a mapping \{'a': .., 'b': ..\}, or \[\] for no row",
        ),
        ("text", ErrorKind.RESULT_NOT_A_LIST, "got `str`"),
        (b"bytes", ErrorKind.RESULT_NOT_A_LIST, "got `bytes`"),
        (3.5, ErrorKind.RESULT_NOT_A_LIST, "got `float`"),
        ({1, 2}, ErrorKind.RESULT_NOT_A_LIST, "got `set`"),
        (iter([]), ErrorKind.RESULT_NOT_A_LIST, "got `list_iterator`"),
        ([{"a": 1}, None], ErrorKind.RESULT_NOT_A_LIST, "item 1 .* got `NoneType`"),
        (pa.table({"a": [1]}), ErrorKind.RESULT_NOT_A_LIST, "got `Table`"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_row_is_refused_with_what_to_return(result, kind, words):
    with pytest.raises(ResultError, match=words) as info:
        rows_of(result, ["a", "b"])
    assert info.value.kind is kind


@dataclass
class AsDataclass:
    x: int
    y: str


@attrs.define
class AsAttrs:
    x: int
    y: str


class AsNamedTuple(NamedTuple):
    x: int
    y: str


class SparkRow(tuple):
    """As `pyspark.sql.Row` is, with names or without."""

    __slots__ = ()

    def __new__(cls, *values, **named):
        return super().__new__(cls, values or named.values())

    def __getattr__(self, name):
        if name == "__fields__":
            return ["x", "y"]
        raise AttributeError(name)


class Model:
    """As a model of pydantic is."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def model_dump(self):
        return {"x": self.x, "y": self.y}


class Record:
    """As a row of asyncpg is: no Mapping, but it has keys and items."""

    def __init__(self, x, y):
        self._cells = {"x": x, "y": y}

    def keys(self):
        return self._cells.keys()

    def __getitem__(self, name):
        return self._cells[name]


FORMS = [AsDataclass, AsAttrs, AsNamedTuple, SparkRow, Model, Record]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_row_may_be_returned_as(form):
    one = form(1, "a")
    built = build("y string, x int", [one, [one, one], []])
    assert (built.failures, built.counts) == ([], [1, 2, 0])
    assert built.batch.to_pylist() == [{"y": "a", "x": 1}] * 3


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_struct_may_be_given_as(form):
    built = build("s struct<y: string, x: int>", [{"s": form(1, "a")}])
    assert built.failures == []
    assert built.batch.to_pylist() == [{"s": {"y": "a", "x": 1}}]


class Promise:
    def __await__(self):
        """What a coroutine is, of which the interpreter does not warn."""


def test_a_single_column_may_be_returned_as_its_value():
    built = build("n int", [5, None, [6, 7], [], {"n": 8}])
    assert (built.failures, built.counts) == ([], [1, 1, 2, 0, 1])
    assert built.batch.column("n").to_pylist() == [5, None, 6, 7, 8]
    assert message("n int not null", None, required=["n"]).endswith("not null, got None")
    assert message("n int", "x") == "column `n` is declared as int, got a value of type `str`"
    assert message("n int", Promise()).endswith("a value of type `Promise`; await it")
    assert build("v array<double>", [np.array([1.5])]).batch.to_pylist() == [{"v": [1.5]}]


def test_a_list_is_rows_even_for_a_single_array():
    ((_, error),) = build("tags array<string>", [["a", "b"]]).failures
    assert str(error) == (
        "a list that the function returns is a list of rows;"
        " return a mapping {'tags': ..} with the list as value"
    )


def test_a_single_column_that_is_missing_is_named_with_the_way_out():
    text = message("m map<string,int>", {"a": 1})
    assert text == "column `m` is missing from the result; return {'m': ..}"


def test_a_tuple_without_names_is_refused():
    ((_, error),) = build("a int, b int", [(1, 2)]).failures
    assert str(error) == (
        "the function returned a tuple, which does not name its columns;"
        " return a mapping {'a': .., 'b': ..}, a NamedTuple or a dataclass"
    )


def test_two_values_of_one_name_are_refused():
    class Twice(tuple):
        __slots__ = ()
        __fields__ = ("a", "a")

    ((_, error),) = build("a int, b int", [Twice((1, 2))]).failures
    assert str(error) == "a returned `Twice` has two values of one name"
