# SPDX-License-Identifier: Apache-2.0
"""Whatever schema is written as DDL is read back as that schema."""

from contextlib import suppress

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparkawait import ConfigurationError
from sparkawait._schema.ddl import parse_schema
from sparkawait._schema.types import timestamps_of

PRIMITIVES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval day to second": pa.duration("us"),
    "void": pa.null(),
}
COMMENT = "comment"


@st.composite
def decimals(draw):
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    return f"decimal({precision},{scale})", pa.decimal128(precision, scale)


def nested(inner):
    """Pairs of DDL and Arrow type that hold others."""
    arrays = inner.map(lambda t: (f"array<{t[0]}>", pa.list_(pa.field("element", t[1]))))
    keys = inner.filter(lambda t: not pa.types.is_null(t[1]))
    maps = st.tuples(keys, inner).map(
        lambda pair: (f"map<{pair[0][0]},{pair[1][0]}>", pa.map_(pair[0][1], pair[1][1]))
    )
    structs = st.lists(fields(inner), max_size=3, unique_by=lambda f: f[1].name).map(
        lambda members: (
            f"struct<{', '.join(ddl for ddl, _ in members)}>",
            pa.struct([field for _, field in members]),
        )
    )
    return arrays | maps | structs


def cased(text):
    return st.sampled_from([text, text.upper(), text.title()])


@st.composite
def fields(draw, types):
    """Pairs of DDL and Arrow field."""
    name = draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8))
    ddl, data_type = draw(types)
    colon = draw(st.sampled_from([" ", ": ", " : "]))
    not_null = not pa.types.is_null(data_type) and draw(st.booleans())
    comment = draw(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
    text = f"`{name.replace('`', '``')}`{colon}{ddl}"
    if not_null:
        text += f" {draw(cased('not null'))}"
    if comment is not None:
        escaped = comment.replace("\\", "\\\\").replace("'", "''")
        text += f" {draw(cased(COMMENT))} '{escaped}'"
    metadata = None if comment is None else {COMMENT: comment}
    return text, pa.field(name, data_type, nullable=not not_null, metadata=metadata)


LEAVES = st.sampled_from(list(PRIMITIVES.items())) | decimals()
TYPES = st.recursive(LEAVES, nested, max_leaves=6)


@given(st.lists(fields(TYPES), min_size=1, max_size=5, unique_by=lambda field: field[1].name))
def test_a_schema_survives_being_written_as_ddl(columns):
    parsed = timestamps_of(parse_schema(", ".join(ddl for ddl, _ in columns)))
    assert parsed.equals(pa.schema([field for _, field in columns]), check_metadata=True)


@given(st.text(max_size=60))
def test_any_text_is_a_schema_or_refused(text):
    with suppress(ConfigurationError):
        parse_schema(text)


@given(st.lists(st.sampled_from([*PRIMITIVES, *"<>(),:`'", "struct", "array", "map", "a", "1"])))
def test_any_sequence_of_words_is_a_schema_or_refused(words):
    with suppress(ConfigurationError):
        parse_schema(" ".join(words))
