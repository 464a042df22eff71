# SPDX-License-Identifier: Apache-2.0
"""Spark's DDL as Arrow schemas."""

import pyarrow as pa
import pytest

from sparkawait import ConfigurationError
from sparkawait._schema.ddl import parse_element, parse_schema
from sparkawait.exceptions import ErrorKind

UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boolean", pa.bool_()),
        ("tinyint", pa.int8()),
        ("byte", pa.int8()),
        ("smallint", pa.int16()),
        ("short", pa.int16()),
        ("int", pa.int32()),
        ("INTEGER", pa.int32()),
        ("bigint", pa.int64()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("string collate UTF8_LCASE", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", UTC),
        ("timestamp_ltz", UTC),
        ("timestamp_ntz", pa.timestamp("us")),
        ("interval day to second", pa.duration("us")),
        ("interval hour", pa.duration("us")),
        ("void", pa.null()),
        ("decimal", pa.decimal128(10, 0)),
        ("dec(5)", pa.decimal128(5, 0)),
        ("numeric(38, 18)", pa.decimal128(38, 18)),
        ("array<int>", pa.list_(pa.field("element", pa.int32()))),
        ("map<string,array<double>>", None),
        ("struct<>", pa.struct([])),
        ("struct<a: int, b string not null>", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_type_of_spark_that_arrow_carries_is_read(text, expected):
    if text.startswith("map"):
        expected = pa.map_(pa.string(), pa.list_(pa.field("element", pa.float64())))
    if text.startswith("struct<a"):
        expected = pa.struct(
            [pa.field("a", pa.int32()), pa.field("b", pa.string(), nullable=False)]
        )
    assert parse_element(text).type == expected


def test_a_column_list_is_read():
    assert parse_schema("temp double,\n wind DOUBLE not null") == pa.schema(
        [pa.field("temp", pa.float64()), pa.field("wind", pa.float64(), nullable=False)]
    )


def test_a_struct_is_a_column_list():
    assert parse_schema("struct<a: int, b: string>") == parse_schema("a int, b string")


def test_columns_may_be_called_like_types_and_keywords():
    names = parse_schema("struct int, map string, `not` date, comment int, array array<int>").names
    assert names == ["struct", "map", "not", "comment", "array"]


def test_backticks_quote_names():
    assert parse_schema("`a b` int, `c``d` int, `é-ü` int").names == ["a b", "c`d", "é-ü"]


def test_comments_are_kept_as_metadata():
    schema = parse_schema("""a int not null comment 'it''s, a "note"', b int COMMENT "x\\ty" """)
    assert schema.field("a").metadata == {b"comment": b'it\'s, a "note"'}
    assert schema.field("b").metadata == {b"comment": b"x\ty"}


@pytest.mark.parametrize(
    ("literal", "comment"),
    [
        ("'\\u00e9\\U0001F600\\101\\Z'", "é😀A\x1a"),
        ("'\\ud83d\\ude00'", "😀"),
        ("'\\ud83d'", "\ufffd"),
        ("'100\\% a\\_b'", "100\\% a\\_b"),
        ("'a' \"b\"", "ab"),
        ("r'a\\nb'", "a\\nb"),
        ("'it\\''s'", None),
        ('\'say ""so""\'', 'say ""so""'),
    ],
)
def test_comments_have_the_escapes_of_spark(literal, comment):
    if comment is None:
        with pytest.raises(ConfigurationError):
            parse_schema(f"a int comment {literal}")
    else:
        schema = parse_schema(f"a int comment {literal}")
        assert schema.field("a").metadata == {b"comment": comment.encode()}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a column name, got the end"),
        ("double", "column `double` has no type"),
        ("a", "column `a` has no type"),
        ("a int,", "expected a column name, got the end"),
        ("a int b int", "unexpected 'b'"),
        ("a foo", "unknown or unsupported type 'foo'"),
        ("a geometry", "unknown or unsupported type 'geometry'"),
        ("a-b int", "unexpected '-'; quote such names with backticks"),
        ("a array", "expected '<'"),
        ("a array<int", "expected '>', got the end"),
        ("a map<string>", "expected ','"),
        ("a decimal(39)", "precision <= 38"),
        ("a decimal(3, 4)", "scale <= precision"),
        ("a decimal(x)", "expected a number"),
        ("a decimal(5, 2, 1)", r"expected '\)'"),
        ("a varchar", "takes no char and varchar"),
        ("a varchar( 20 )", "write string"),
        ("a array<struct<b: char(3)>>", "write string"),
        ("a interval year to month", "only day-time intervals"),
        ("a void not null", "cannot be NOT NULL"),
        ("a map<void,int>", "keys of a map cannot be void"),
        ("a int not", "expected NULL after NOT"),
        ("a int comment x", "expected a quoted comment"),
        ("`` int", "must not be empty"),
        ("'a' int", "expected a column name"),
        ("a `int`", "expected a type"),
    ],
)
def test_what_is_no_column_list_is_refused(text, problem):
    with pytest.raises(ConfigurationError, match=problem) as info:
        parse_schema(text)
    assert info.value.kind is ErrorKind.SCHEMA_INVALID


def test_a_note_shows_where_the_mistake_is():
    with pytest.raises(ConfigurationError) as info:
        parse_schema("id bigint, price dubble")
    assert info.value.__notes__[1:] == ["id bigint, price dubble\n" + " " * 17 + "^"]
