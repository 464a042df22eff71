# SPDX-License-Identifier: Apache-2.0
"""Results that are large together: built in parts, and a row that is too large fails alone."""

import pytest

from sparkawait._schema.ddl import parse_schema
from sparkawait._values import results
from sparkawait._values.results import ResultBuilder, TooLargeError
from sparkawait.exceptions import ErrorKind

MEGABYTE = 1 << 20


def groups(ddl, answers, rows=None):
    builder = ResultBuilder(parse_schema(ddl))
    return list(builder.groups(range(len(answers)) if rows is None else rows, answers))


def rows_of(built):
    return [row for group in built for row in group.rows]


@pytest.fixture
def small_columns(monkeypatch):
    """Lets a column hold a thousand bytes instead of 2 GiB."""
    whole = results._array

    def array(values, data_type):
        made = whole(values, data_type)
        if made.nbytes > 1000:
            raise TooLargeError
        return made

    monkeypatch.setattr(results, "_array", array)


def test_groups_have_about_16_megabytes_by_the_size_of_the_rows_before(monkeypatch):
    monkeypatch.setattr(results, "_FIRST_ROWS", 64)
    built = groups("a string", [{"a": "x" * MEGABYTE}] * 100)

    assert [len(group.rows) for group in built] == [64, 15, 15, 6]
    assert rows_of(built) == list(range(100))


def test_small_results_are_one_group_once_their_size_is_known():
    builder = ResultBuilder(parse_schema("a int"))
    sizes = [len(group.rows) for group in builder.groups(range(5000), [{"a": 1}] * 5000)]
    assert sizes == [256, 4744]


@pytest.mark.parametrize("shape", [dict, list])
def test_results_too_large_for_one_column_are_built_in_parts(small_columns, shape):
    answers = [{"a": "x" * 90} if shape is dict else [{"a": "x" * 45}] * 2 for _ in range(40)]

    built = groups("a string", answers)

    assert len(built) > 1
    assert rows_of(built) == list(range(40))
    assert not any(group.failures for group in built)
    assert sum(group.batch.num_rows for group in built) == (40 if shape is dict else 80)


@pytest.mark.parametrize("answer", [{"a": "x" * 2000}, [{"a": "x" * 600}] * 2], ids=["one", "many"])
def test_a_row_that_is_too_large_fails_alone(small_columns, answer):
    built = groups("a string", [{"a": "y"}, answer, {"a": "z"}])

    assert rows_of(built) == [0, 2]
    (failure,) = [failure for group in built for failure in group.failures]
    assert failure[0] == 1
    assert failure[1].kind is ErrorKind.RESULT_TOO_LARGE
    assert "more than 2 GiB in one column" in str(failure[1])


def test_a_row_that_does_not_fit_is_still_told_from_one_that_is_too_large(small_columns):
    built = groups("a string", [{"a": "y" * 900}, {"b": 1}, {"a": "x" * 2000}, {"a": "z" * 900}])

    kinds = {row: error.kind for group in built for row, error in group.failures}
    assert kinds == {1: ErrorKind.RESULT_SCHEMA_MISMATCH, 2: ErrorKind.RESULT_TOO_LARGE}
    assert rows_of(built) == [0, 3]


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("map<string, string>", lambda length: {"k" * (length // 2): "x" * (length // 2)}),
        ("array<string>", lambda length: ["é" * (length // 5)] * 5),
        ("array<binary>", lambda length: [b"x" * (length // 2), None, b"x" * (length // 2)]),
        ("struct<a: array<struct<b: binary>>>", lambda length: {"a": [{"b": b"x" * length}]}),
    ],
)
def test_maps_and_lists_are_measured_before_pyarrow_gets_them(monkeypatch, ddl, value):
    monkeypatch.setattr(results, "_MOST_CHARACTERS", 700)
    monkeypatch.setattr(results, "_MOST_BYTES", 2100)
    small, large, too_large = ({"a": value(length)} for length in (100, 1000, 2300))

    built = groups(f"a {ddl}", [small, small, large, too_large, small])

    assert rows_of(built) == [0, 1, 2, 4]
    assert [row for group in built for row, _ in group.failures] == [3]


def test_a_list_beyond_2_gib_fails_its_row():
    """PyArrow would never return."""
    large = [{"a": [b"x" * (31 * MEGABYTE)] * 67}, {"a": [b"y"]}]
    built = groups("a array<binary>", large)

    assert rows_of(built) == [1]
    ((_, error),) = [failure for group in built for failure in group.failures]
    assert error.kind is ErrorKind.RESULT_TOO_LARGE


def test_texts_are_found_in_maps_and_lists_wherever_those_are():
    def has_text(ddl):
        return results._has_nested_text(parse_schema(f"a {ddl}").field("a").type, is_inside=False)

    assert has_text("array<struct<m: map<string, int>>>")
    assert has_text("struct<a: array<binary>>")
    assert not has_text("struct<a: struct<b: string>, c: array<array<int>>>")
    assert results._characters([{"m": {"ab": b"c"}}, None, 7, ("d",)]) == 5
    assert results._bytes(["é", b"c"]) == 3
