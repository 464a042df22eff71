# SPDX-License-Identifier: Apache-2.0
"""The three forms of a schema."""

import pyarrow as pa
import pytest

from sparkawait import ConfigurationError
from sparkawait._schema.types import to_schema
from sparkawait.exceptions import ErrorKind


class StructType:
    """What this package uses of PySpark's class of that name."""

    def __init__(self, *fields):
        self.fields = fields

    def jsonValue(self):  # noqa: N802 - PySpark's name
        return {"type": "struct", "fields": list(self.fields)}


def field(name, data_type, nullable=True, **metadata):
    return {"name": name, "type": data_type, "nullable": nullable, "metadata": metadata}


def test_an_arrow_schema_is_taken_as_it_is():
    schema = pa.schema([pa.field("a", pa.large_string(), metadata={"k": "v"})])
    assert to_schema(schema) is schema


def test_ddl_is_parsed():
    assert to_schema("a int") == pa.schema([("a", pa.int32())])


@pytest.mark.parametrize(
    ("spark", "ddl"),
    [
        ("integer", "int"),
        ("long", "bigint"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("interval day to second", "interval day to second"),
        ({"type": "array", "elementType": "string", "containsNull": True}, "array<string>"),
        (
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            "map<string,bigint>",
        ),
        ({"type": "struct", "fields": [field("b", "date", nullable=False)]}, None),
        ({"type": "udt", "sqlType": "double"}, "double"),
    ],
    ids=str,
)
def test_a_struct_type_is_read_through_its_json(spark, ddl):
    expected = to_schema("a struct<b date not null>" if ddl is None else f"a {ddl}")
    assert to_schema(StructType(field("a", spark))) == expected


def test_nullability_of_elements_and_fields_is_kept():
    array = {"type": "array", "elementType": "long", "containsNull": False}
    schema = to_schema(StructType(field("a", array, nullable=False, comment="note")))
    assert not schema.field("a").nullable
    assert not schema.field("a").type.value_field.nullable
    assert schema.field("a").metadata == {b"comment": b"note"}


def test_any_exporter_of_an_arrow_schema_is_taken():
    class Exporter:
        def __arrow_c_schema__(self):
            return pa.schema([("a", pa.int8())]).__arrow_c_schema__()

    assert to_schema(Exporter()) == pa.schema([("a", pa.int8())])


@pytest.mark.parametrize("value", [None, 5, ["a"], {"a": "int"}, StructType], ids=repr)
def test_anything_else_is_refused(value):
    with pytest.raises(ConfigurationError, match="must be a DDL string") as info:
        to_schema(value)
    assert info.value.kind is ErrorKind.SCHEMA_INVALID


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (pa.schema([]), "at least one column"),
        ("a int, a string", "column `a` twice"),
        (StructType(field("a", {"type": "variant2"})), "type that Arrow does not carry"),
    ],
    ids=["empty", "twice", "unknown"],
)
def test_a_schema_that_makes_no_output_is_refused(value, problem):
    with pytest.raises(ConfigurationError, match=problem):
        to_schema(value)
