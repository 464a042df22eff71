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
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import pyarrow as pa

from sparkawait._core import Row
from sparkawait._plan.arrow_types import fields_within, with_leaves
from sparkawait._plan.checks import refuse, shown
from sparkawait._plan.ddl import (
    COLLATION,
    INTERVAL,
    SESSION_TIMESTAMP,
    collated,
    is_variant,
    noted,
    parse_element,
    parse_schema,
)
from sparkawait._plan.return_types import RowClass, names_columns
from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = [
    "COLLATION",
    "INTERVAL",
    "ReturnsLike",
    "Row",
    "SchemaLike",
    "timestamps_of",
    "to_result",
    "to_schema",
]


class SparkType(Protocol):
    """A type of PySpark, such as a ``StructType``."""

    def jsonValue(self) -> Any: ...  # noqa: N802 - Spark's name


class ArrowSchema(Protocol):
    """Any schema that can be handed over by Arrow's C interface."""

    def __arrow_c_schema__(self) -> object: ...


SchemaLike: TypeAlias = str | pa.Schema | SparkType | ArrowSchema | type[Any]
"""A DDL string such as ``"name string, tier int not null"``, a `pyarrow.Schema`, a PySpark
``StructType``, a class whose fields are columns (a model of pydantic, a dataclass, a TypedDict, a
NamedTuple, a class of attrs), or any other object with ``__arrow_c_schema__``."""

ReturnsLike: TypeAlias = SchemaLike | pa.DataType
"""What a column function returns: columns, or a type alone."""


def to_schema(value: object, name: str = "schema") -> pa.Schema:
    """Returns the Arrow schema that `value` describes.

    Args:
        value: A DDL string such as ``"temp double, wind double"``, a `pyarrow.Schema`, any object
            with ``__arrow_c_schema__``, a PySpark ``StructType``, or a class of rows.
        name: The argument it was given for, used in messages.

    Raises:
        ConfigurationError: If `value` has another type, has no column, or has a column twice.

    Examples:
        >>> to_schema("id bigint not null, name string").names
        ['id', 'name']
    """
    schema = _convert(value, name)
    if not schema.names:
        refuse(f"`{name}` must have at least one column", ErrorKind.SCHEMA_INVALID)
    twice = duplicate(schema.names)
    if twice is not None:
        refuse(f"`{name}` has column `{twice}` twice", ErrorKind.SCHEMA_INVALID)
    return schema


def is_function(value: object) -> TypeIs[Callable[..., Any]]:
    """Tells what is called from what it returns, which may be a class whose fields are columns."""
    return callable(value) and not names_columns(value)


def to_result(value: object, name: str = "schema") -> pa.Schema | pa.Field:
    """Returns the columns that `value` describes, or a plain column, which has no name yet.

    Args:
        value: As for `to_schema`; or a type alone: ``"long"``, a `pyarrow.DataType` or a PySpark
            ``DataType``. A struct is a list of columns.
        name: The argument it was given for, used in messages.

    Raises:
        ConfigurationError: If `value` has another type.

    Examples:
        >>> to_result("array<int>").type
        ListType(list<element: int32>)
        >>> to_result("struct<a: int>").names
        ['a']
    """
    json_value = cast("Callable[[], object] | None", getattr(value, "jsonValue", None))
    found: pa.Field | None = None
    if isinstance(value, str):
        try:
            return to_schema(value, name)
        except ConfigurationError:
            try:
                found = parse_element(value, name)
            except ConfigurationError:
                found = None
            if found is None:
                raise
    elif isinstance(value, pa.DataType):
        found = pa.field("", value)
    elif callable(json_value) and not isinstance(value, type):
        found = _part_of_json(json_value(), name)
    if found is None:
        return to_schema(value, name)
    data_type: Any = found.type
    is_plain = not pa.types.is_struct(data_type) or is_variant(data_type)
    return found if is_plain else to_schema(pa.schema(list(data_type)), name)


def timestamps_of(schema: pa.Schema, *, are_naive: bool = False) -> pa.Schema:
    """Returns `schema` with what the word ``timestamp`` stands for in a session.

    Args:
        schema: A declared schema.
        are_naive: Whether that is ``timestamp_ntz``.
    """
    metadata = cast("Any", schema.metadata)
    changed = [with_leaves(field, lambda it: _timestamp_of(it, are_naive)) for field in schema]
    return pa.schema(changed, metadata)


def _timestamp_of(field: pa.Field[Any], are_naive: bool) -> pa.Field[Any]:  # noqa: FBT001
    notes, kind = dict(field.metadata or {}), field.type
    if not pa.types.is_timestamp(kind) or not notes.items() >= SESSION_TIMESTAMP.items():
        return field
    for note in SESSION_TIMESTAMP:
        del notes[note]
    wanted = pa.timestamp(kind.unit) if are_naive else kind
    return field.with_type(wanted).with_metadata(cast("Any", notes or None))


def duplicate(names: list[str]) -> str | None:
    """Returns the first name that appears a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def check_input_names(schema: pa.Schema) -> None:
    """Checks that a row of the input can have each cell under the name of its column.

    Raises:
        ConfigurationError: If two columns have one name, or a name cannot be sent.
    """
    twice = duplicate(schema.names)
    if twice is not None:
        msg = f"the input has column `{twice}` twice; rename one of them"
        raise ConfigurationError(msg, ErrorKind.COLUMN_CLASH)
    for field in (within for column in schema for within in fields_within(column)):
        if "\0" in field.name:  # Arrow would end the name there
            msg = (
                f"the input has a column or field {field.name!r}, with the character NUL; rename it"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _convert(value: object, name: str) -> pa.Schema:
    if isinstance(value, pa.Schema):
        return value
    if isinstance(value, str):
        return parse_schema(value, name)
    json_value = cast("Callable[[], object] | None", getattr(value, "jsonValue", None))
    if callable(json_value) and not isinstance(value, type):
        return _struct_of_json(json_value(), name)
    if names_columns(value):
        return RowClass(cast("type[Any]", value), name).schema
    if hasattr(value, "__arrow_c_schema__"):
        try:
            return pa.schema(cast("Any", value))
        except (pa.ArrowException, TypeError, ValueError) as error:
            msg = f"`{name}` is not a schema: {error}"
            raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID) from error
    msg = (
        f"`{name}` must be a DDL string, a pyarrow.Schema, a StructType or a class whose fields are"
        f" columns, got `{type(value).__name__}`"
    )
    raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)


def _struct_of_json(value: object, name: str) -> pa.Schema:
    data_type: Any = _part_of_json(value, name).type
    if not pa.types.is_struct(data_type):
        msg = f"`{name}` must be a StructType, got the Spark type {shown(value)}"
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
    return pa.schema(list(data_type))


def _part_of_json(
    value: object, name: str, path: str = "", collations: Mapping[str, str] = MappingProxyType({})
) -> pa.Field:
    """Converts Spark's JSON form of a type, a string or a dict with ``type``, to a nameless field.

    Args:
        value: The type.
        name: The argument that it was given for.
        path: Where the type is within a field, as `collations` names such places.
        collations: Those of strings in the field.
    """
    if isinstance(value, str):
        # A `TimestampType` is one with a zone, whatever the session takes the word for.
        return parse_element("timestamp_ltz" if value == "timestamp" else value, name)
    spec = cast("dict[str, Any]", value)

    def part(which: str, place: str, *, nullable: bool) -> Any:
        inside = f"{path}.{place}" if path else place
        found = _part_of_json(spec[which], name, inside, collations)
        found = found.with_name(place).with_nullable(nullable)
        return collated(found, collations.get(inside))

    kind = spec["type"]
    if kind == "struct":
        return pa.field("", pa.struct([_field_of_json(field, name) for field in spec["fields"]]))
    if kind == "array":
        return pa.field("", pa.list_(part("elementType", "element", nullable=spec["containsNull"])))
    if kind == "map":
        key = part("keyType", "key", nullable=False)
        item = part("valueType", "value", nullable=spec["valueContainsNull"])
        return pa.field("", pa.map_(key, item))
    if kind == "udt":
        return _part_of_json(spec["sqlType"], name)
    msg = f"`{name}` has a type that Arrow does not carry: {shown(kind)}"
    raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)


def _field_of_json(spec: dict[str, Any], name: str) -> pa.Field:
    metadata = spec.get("metadata", {})
    # As `icu.UNICODE_CI`: the provider, and the name that SQL knows.
    places = cast("dict[str, str]", metadata.get("__COLLATIONS", {}))
    collations = {place: found.partition(".")[2] for place, found in places.items()}
    found = _part_of_json(spec["type"], name, spec["name"], collations)
    found = found.with_name(spec["name"]).with_nullable(spec["nullable"])
    comment = metadata.get("comment")
    found = noted(found, {} if comment is None else {b"comment": comment.encode()})
    return collated(found, collations.get(spec["name"]))
