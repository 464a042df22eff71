# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""The schemas that users give, in any of three forms, as Arrow schemas.

A PySpark `StructType` is read through its JSON form, so PySpark is never imported here.
Pure functions, for any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, cast

import pyarrow as pa

from sparkawait._plan.checks import shown
from sparkawait._plan.ddl import COLLATION, collated, parse_schema, parse_type
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["COLLATION", "SchemaLike", "to_result", "to_schema"]


class SparkType(Protocol):
    """A type of PySpark, such as a ``StructType``."""

    def jsonValue(self) -> Any: ...  # noqa: N802 - Spark's name


class ArrowSchema(Protocol):
    """Any schema that can be handed over by Arrow's C interface."""

    def __arrow_c_schema__(self) -> object: ...


SchemaLike: TypeAlias = str | pa.Schema | SparkType | ArrowSchema
"""A DDL string such as ``"name string, tier int not null"``, a `pyarrow.Schema`, a PySpark
``StructType``, or any other object with ``__arrow_c_schema__``."""


def to_schema(value: object, name: str = "schema") -> pa.Schema:
    """Returns the Arrow schema that `value` describes.

    Args:
        value: A DDL string such as ``"temp double, wind double"``, a `pyarrow.Schema`, any object
            with ``__arrow_c_schema__``, or a PySpark ``StructType``.
        name: The argument it was given for, used in messages.

    Raises:
        ConfigurationError: If `value` is none of these, has no column, or has a column twice.

    Examples:
        >>> to_schema("id bigint not null, name string").names
        ['id', 'name']
    """
    schema = _convert(value, name)
    if not schema.names:
        msg = f"`{name}` must have at least one column"
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
    twice = duplicate(schema.names)
    if twice is not None:
        msg = f"`{name}` has column `{twice}` twice"
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
    return schema


def to_result(value: object, name: str = "schema") -> pa.Schema | pa.DataType:
    """Returns the columns that `value` describes, or the type of a plain column.

    Args:
        value: As for `to_schema`; or a type alone: ``"long"``, a `pyarrow.DataType` or a PySpark
            ``DataType``. A struct is a list of columns.
        name: The argument it was given for, used in messages.

    Raises:
        ConfigurationError: If `value` is none of these.

    Examples:
        >>> to_result("array<int>")
        ListType(list<element: int32>)
        >>> to_result("struct<a: int>").names
        ['a']
    """
    json_value = cast("Callable[[], object] | None", getattr(value, "jsonValue", None))
    found: Any = None
    if isinstance(value, str):
        try:
            return to_schema(value, name)
        except ConfigurationError:
            try:
                found = parse_type(value, name)
            except ConfigurationError:
                found = None
            if found is None:
                raise
    elif isinstance(value, pa.DataType):
        found = value
    elif callable(json_value) and not isinstance(value, type):
        found = _type_of_json(json_value(), name)
    if found is None or pa.types.is_struct(found):
        return to_schema(value if found is None else pa.schema(list(found)), name)
    return found


def duplicate(names: list[str]) -> str | None:
    """Returns the first name that appears a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _convert(value: object, name: str) -> pa.Schema:
    if isinstance(value, pa.Schema):
        return value
    if isinstance(value, str):
        return parse_schema(value, name)
    json_value = cast("Callable[[], object] | None", getattr(value, "jsonValue", None))
    if callable(json_value) and not isinstance(value, type):
        return _struct_of_json(json_value(), name)
    if hasattr(value, "__arrow_c_schema__"):
        try:
            return pa.schema(cast("Any", value))
        except (pa.ArrowException, TypeError, ValueError) as error:
            msg = f"`{name}` is no schema: {error}"
            raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID) from error
    msg = (
        f"`{name}` must be a DDL string, a pyarrow.Schema or a StructType,"
        f" got `{type(value).__name__}`"
    )
    raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)


def _struct_of_json(value: object, name: str) -> pa.Schema:
    data_type = _type_of_json(value, name)
    if not pa.types.is_struct(data_type):
        msg = f"`{name}` must be a StructType, got the Spark type {shown(value)}"
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
    return pa.schema(list(data_type))


def _type_of_json(
    value: object, name: str, path: str = "", collations: Mapping[str, str] = MappingProxyType({})
) -> pa.DataType:
    """Converts Spark's JSON form of a type, a string or a dict with ``type``.

    Args:
        value: The type.
        name: The argument that it was given for.
        path: Where the type is within a field, as `collations` names such places.
        collations: Those of strings in the field.
    """
    if isinstance(value, str):
        return parse_type(value, name)
    spec = cast("dict[str, Any]", value)

    def part(which: str, place: str, *, nullable: bool) -> pa.Field:
        inside = f"{path}.{place}" if path else place
        data_type = _type_of_json(spec[which], name, inside, collations)
        return collated(pa.field(place, data_type, nullable=nullable), collations.get(inside))

    kind = spec["type"]
    if kind == "struct":
        return pa.struct([_field_of_json(field, name) for field in spec["fields"]])
    if kind == "array":
        return pa.list_(part("elementType", "element", nullable=spec["containsNull"]))
    if kind == "map":
        key = part("keyType", "key", nullable=False)
        item = part("valueType", "value", nullable=spec["valueContainsNull"])
        return pa.map_(cast("Any", key), cast("Any", item))
    if kind == "udt":
        return _type_of_json(spec["sqlType"], name)
    msg = f"`{name}` has a type that Arrow does not carry: {shown(kind)}"
    raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)


def _field_of_json(spec: dict[str, Any], name: str) -> pa.Field:
    metadata = spec.get("metadata", {})
    # As `icu.UNICODE_CI`: the provider, and the name that SQL knows.
    places = cast("dict[str, str]", metadata.get("__COLLATIONS", {}))
    collations = {place: found.partition(".")[2] for place, found in places.items()}
    comment = metadata.get("comment")
    data_type = _type_of_json(spec["type"], name, spec["name"], collations)
    field = pa.field(
        spec["name"],
        data_type,
        nullable=spec["nullable"],
        metadata={"comment": comment} if comment is not None else None,
    )
    return collated(field, collations.get(spec["name"]))
