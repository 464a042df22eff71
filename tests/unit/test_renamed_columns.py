# SPDX-License-Identifier: Apache-2.0
"""Columns of native functions that are called otherwise elsewhere: ``"x as y int"``."""

import re

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._schema.ddl import without_renames
from sparkawait.testing import LookupServer


@pytest.mark.parametrize(
    ("written", "kept", "renamed"),
    [
        ("x int", "x int", {}),
        ("x as y int", "y int", {"y": "x"}),
        ("X AS y int not null comment 'as z int'", "y int not null comment 'as z int'", {"y": "X"}),
        ("a int, x as y struct<as: int, b: int>", "a int, y struct<as: int, b: int>", {"y": "x"}),
        (
            "`a``, b` as `c d` decimal(7, 3), as int",
            "`c d` decimal(7, 3), as int",
            {"c d": "a`, b"},
        ),
        ("as as as int", "as int", {"as": "as"}),
        ("x struct<a as b int>", "x struct<a as b int>", {}),
    ],
)
def test_a_column_is_called_by_its_last_name(written, kept, renamed):
    assert without_renames(written) == (kept, renamed)


def test_a_member_of_a_document_is_a_column_of_another_name():
    documents = {n: {"id": 1000 + n, "a.b": f"v{n}", "name": f"n{n}"} for n in range(31)}
    rows = pa.table({"id": list(range(31)), "name": ["mine"] * 31})
    schema = "id as other bigint not null, `a.b` as v string, name as `its name` string"
    with LookupServer({"docs": documents}) as server:
        get = sa.http.get(server.url + "/docs/{id}", schema, client=sa.http.Client(proxy=False))
        out = sa.arrow.ordered_wait(rows, get).to_table()
    assert out.to_pylist() == [
        {"id": n, "name": "mine", "other": 1000 + n, "v": f"v{n}", "its name": f"n{n}"}
        for n in range(31)
    ]


def test_a_path_wins_over_the_other_name():
    get = sa.http.get("https://h/{x}", "a as b int, c as d int", paths={"b": "$.deep.a"})
    assert dict(get.options.paths) == {"b": "$.deep.a", "d": "$['c']"}


def test_a_field_of_a_hash_is_a_column_of_another_name():
    read = sa.redis.hash("redis://h", "{x}", "name as who string, n int")
    assert [it for it, _ in read.arguments] == ["HMGET", "{x}", "name", "n"]
    assert read.result_schema.names == ["who", "n"]


@pytest.mark.parametrize(
    "make",
    [
        lambda schema: sa.redis.get("redis://h", "{x}", schema=schema),
        lambda schema: sa.redis.hash("redis://h", "{x}", schema, fields="all"),
        lambda schema: sa.postgres.lookup("host=h", "select $1", ["x"], schema=schema),
        lambda schema: sa.async_function(schema)(lambda row: 1),
    ],
    ids=["text", "whole hash", "statement", "Python"],
)
def test_what_has_no_names_has_no_others(make):
    with pytest.raises(sa.ConfigurationError, match="unknown or unsupported type 'as'"):
        make("a as b string")


HINTS = {
    "a function": (sa.async_function("x int")(lambda row: 1), "return it by another name, or"),
    "HTTP": (sa.http.get("https://h/{x}", "x int"), "write `x as new_x` in its schema, or"),
    "SQL": (
        sa.postgres.lookup("host=h", "select $1 as x", ["x"], schema="x int"),
        "write `x as new_x` in its statement, or",
    ),
}


@pytest.mark.parametrize("whose", HINTS)
def test_a_column_that_is_there_already_is_refused_with_the_rename_to_write(whose):
    function, words = HINTS[whose]
    message = (
        f"returned column `x` is already a column of the input; {words} rename that of the input:"
        " df.withColumnRenamed('x', 'x_before')"
    )
    with pytest.raises(sa.ConfigurationError, match=re.escape(message)) as info:
        sa.arrow.ordered_wait(pa.table({"x": [1]}), function).to_table()
    assert info.value.kind is sa.exceptions.ErrorKind.COLUMN_CLASH
