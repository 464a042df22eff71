# SPDX-License-Identifier: Apache-2.0
"""Schemas are read as Spark reads them: `StructType.fromDDL` says the same, or both refuse."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparkawait import ConfigurationError
from sparkawait._schema.ddl import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

CASED = st.sampled_from([str, str.upper, str.title])
PLAIN = [
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
    *("float", "real", "double", "string", "binary", "date", "timestamp", "timestamp_ltz"),
    *("timestamp_ntz", "void", "null", "decimal", "dec", "numeric", "decimal(5)", "dec(38,38)"),
    *("decimal(39,1)", "decimal(3, 4)", "decimal(0)", "decimal(5,2,1)", "char(3)", "varchar( 7 )"),
    *(
        "varchar",
        "char(0)",
        "varchar(-1)",
        "character(2)",
        "interval day",
        "interval day to second",
    ),
    *("interval hour to minute", "interval second to day", "interval day to day", "interval"),
    *("string collate UTF8_LCASE", "string collate `unicode_ci`", "string(5)", "bool", "text"),
]
NAMES = [
    *("a", "b", "`a b`", "`a``b`", "_x", "1a", "12", "date", "comment", "not", "select", "struct"),
    *("A", "`é`", "``", "a-b", "a.b", "`a.b`", "1e3", "key"),
]
COMMENTS = [
    *(
        "''",
        "'it''s'",
        "'it\\'s'",
        '"say ""so"""',
        "'a\\nb\\t\\\\'",
        "'\\u00e9'",
        "'\\101'",
        "'\\%\\_'",
    ),
    *("'é'", "'a' 'b'", "x", "'open", "'\\q'", "r'\\n'", "'--'"),
]


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["plain"] * 5 + ["array", "map", "struct"])) if depth else "plain"
    if kind == "array":
        return f"array<{draw(types(depth - 1))}>"
    if kind == "map":
        return f"map<{draw(types(depth - 1))},{draw(types(depth - 1))}>"
    if kind == "struct":
        return f"struct<{draw(columns(depth - 1, most=2))}>"
    return draw(CASED)(draw(st.sampled_from(PLAIN)))


@st.composite
def columns(draw: st.DrawFn, depth: int = 2, most: int = 3) -> str:
    texts: list[str] = []
    for _ in range(draw(st.integers(0, most))):
        name, between = draw(st.sampled_from(NAMES)), draw(st.sampled_from([" ", ": ", ":", "  "]))
        suffix = draw(st.sampled_from(["", "", "", " not null", " NULL", " default 1"]))
        comment = draw(st.sampled_from(["", "", " comment "]))
        comment = comment and comment + draw(st.sampled_from(COMMENTS))
        texts.append(f"{name}{between}{draw(types(depth))}{suffix}{comment}")
    return draw(st.sampled_from([",", ", ", " , "])).join(texts)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text = draw(columns())
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.sampled_from([*"<>(),:`' ", "--", "/* */"])) + text[at:]


def read_by_spark(text: str) -> Any:
    """What Spark makes of it; ``None`` if it refuses."""
    from pyspark.sql.types import StructType

    try:
        return StructType.fromDDL(text)
    except Exception:  # noqa: BLE001 - errors of Java and of Python, with and without Connect
        return None


def read(text: str) -> Any:
    try:
        return parse_schema(text)
    except ConfigurationError:
        return None


def plain(schema: Any) -> Any:
    """The schema with the types that Arrow has: intervals have no fields."""
    units = re.compile('"interval [a-z]+( to [a-z]+)?"')
    return json.loads(units.sub('"interval day to second"', schema.json()))


def is_beyond(text: str, schema: Any) -> bool:
    """Whether Spark reads what is refused on purpose: it has no use as the schema of results."""
    has_comment = "--" in text or "/*" in text
    parts = ('"name":""', '"keyType":"void"', '"nullable":false,"type":"void"', '"interval"')
    has_part = any(part in schema.json() for part in (*parts, '"decimal(0,'))
    has_length = re.search(r'"(var)?char\(\d+\)"', schema.json()) is not None
    from pyspark.sql.types import StructType

    # A text that is one type, and no column, is that type.
    has_nothing = isinstance(schema, StructType) and not len(schema)
    return has_nothing or has_comment or has_part or has_length or "default" in text


def is_generous(text: str, schema: Any) -> bool:
    """Whether more is read than Spark does: what is refused later, or is clear all the same."""
    lower = text.lower()
    names = [name.lower() for name in schema.names]
    has_alias = re.search(r"\b(bool|null)\b", lower) is not None
    has_number = re.search(r"(^|[<,])\s*\d+(e\d+)?\b", lower) is not None
    has_twice = len(set(names)) < len(names)
    return has_alias or has_number or has_twice or "collate" in lower


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(columns() | damaged())
@example("a int comment 'it''s \\'s', b array<struct<c: decimal(5,2) not null comment \"x\">>")
@example("`a``b` string, c interval hour to minute, d map<string, void>")
@example("a varchar(3)")
def test_a_schema_is_what_spark_reads(spark: SparkSession, text: str) -> None:
    from sparkawait.spark.schemas import to_spark

    assert spark is not None
    expected, found = read_by_spark(text), read(text)
    if expected is None:
        assert found is None or is_generous(text, found)
    elif found is None:
        assert is_beyond(text, expected)
    else:
        assert plain(to_spark(found)) == plain(expected)


@pytest.mark.parametrize("text", ["varchar(3)", "char(3)", "array<varchar(3)>", "string"])
def test_texts_with_a_length_are_refused_where_spark_refuses_them_from_python(
    spark: SparkSession, text: str
) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    assert spark is not None
    try:
        takes = bool(to_arrow_schema(StructType.fromDDL(f"a {text}")))
    except PySparkException:
        takes = False

    assert (read(f"a {text}") is not None) == takes == (text == "string")
