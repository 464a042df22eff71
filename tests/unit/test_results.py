# SPDX-License-Identifier: Apache-2.0
"""Results of functions as Arrow columns."""

from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pytest

from sparkawait import ErrorKind, ResultError
from sparkawait.ddl import parse_schema
from sparkawait.results import ResultBuilder, as_mappings


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
    built = build("a int", [{"a": 1}, {"a": "x"}, {}, None, {"a": 5}])
    assert built.rows == [0, 4]
    assert sorted(row for row, _ in built.failures) == [1, 2, 3]
    assert built.batch.column("a").to_pylist() == [1, 5]


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


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("int", 1.5),
        ("int", Decimal("1.5")),
        ("int", True),
        ("tinyint", 300),
        ("decimal(10,2)", Decimal("1.555")),
        ("date", datetime(2026, 1, 1, 12)),  # noqa: DTZ001 - naive on purpose
        ("date", 5),
        ("timestamp", 1700000000),
        ("timestamp_ntz", "2026-01-01"),
        ("interval day to second", 5),
        ("array<string>", "text"),
        ("array<string>", {"k": "v"}),
        ("array<int>", [1, 1.5]),
        ("array<array<int>>", [[1], [1.5]]),
        ("struct<a: int>", {"a": 1.5}),
        ("map<string,int>", {"a": 1.5}),
        ("map<int,string>", {1.5: "a"}),
    ],
    ids=repr,
)
def test_a_value_is_refused_rather_than_stored_wrong(ddl, value):
    assert message(f"c {ddl}", {"c": value}).startswith("column `c` is declared as")


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("int", 2.0),
        ("bigint", np.int64(5)),
        ("double", 5),
        ("double", np.float64(0.5)),
        ("date", datetime(2026, 1, 1)),  # noqa: DTZ001 - naive on purpose
        ("date", date(2026, 1, 1)),
        ("timestamp_ntz", np.datetime64("2026-01-01T00:00:00", "us")),
        ("array<int>", (1, 2.0, None)),
        ("array<int>", np.array([1, 2])),
        ("struct<a: int, b: string>", {"a": 1.0}),
    ],
    ids=repr,
)
def test_a_value_that_loses_nothing_is_taken(ddl, value):
    assert build(f"c {ddl}", [{"c": value}]).failures == []


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
        (None, ErrorKind.RESULT_IS_NONE, r"returned None; return a mapping, or \[\] for no row"),
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
        as_mappings(result)
    assert info.value.kind is kind
