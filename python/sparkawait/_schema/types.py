# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
# pyright: reportUnknownArgumentType=false
"""The schemas that users give, in any of three forms, as Arrow schemas.

A PySpark `StructType` is read through its JSON form, so PySpark is never imported here.
Pure functions, for any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, cast

import pyarrow as pa

from sparkawait._checks import (
    fields_within,
    is_variant,
    nullable,
    refuse,
    shown,
    warn_once,
    with_leaves,
)
from sparkawait._core import Row
from sparkawait._schema.classes import RowClass, names_columns
from sparkawait._schema.ddl import (
    COLLATION,
    INTERVAL,
    SESSION_TIMESTAMP,
    collated,
    noted,
    parse_element,
    parse_schema,
    without_renames,
)
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
    "with_zone",
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
    _check_sent(schema, f"`{name}`", ErrorKind.SCHEMA_INVALID)
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
    _check_sent([found], f"`{name}`", ErrorKind.SCHEMA_INVALID)
    data_type: Any = found.type
    is_plain = not pa.types.is_struct(data_type) or is_variant(data_type)
    return found if is_plain else to_schema(pa.schema(list(data_type)), name)


def with_zone(schema: pa.Schema, zone: str) -> pa.Schema:
    """Returns `schema` with `zone` for all timestamps that have one, nested ones too."""
    change = partial(_with_zone, zone=zone)
    fields = list(map(with_leaves, schema, repeat(change)))
    metadata = schema.metadata
    return pa.schema(fields, metadata=metadata)  # pyright: ignore[reportArgumentType]


def _with_zone(field: pa.Field, zone: str) -> pa.Field:
    kind: Any = field.type
    is_instant = pa.types.is_timestamp(kind) and kind.tz is not None
    return field.with_type(pa.timestamp(kind.unit, zone)) if is_instant else field


def timestamps_of(schema: pa.Schema, *, are_naive: bool = False) -> pa.Schema:
    """Returns `schema` with what the word ``timestamp`` stands for in a session.

    Args:
        schema: A declared schema.
        are_naive: Whether that is ``timestamp_ntz``.
    """
    metadata = cast("Any", schema.metadata)
    change = partial(_timestamp_of, are_naive=are_naive)
    return pa.schema([with_leaves(field, change) for field in schema], metadata)


def _timestamp_of(field: pa.Field[Any], *, are_naive: bool) -> pa.Field[Any]:
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
    _check_sent(schema, "the input", ErrorKind.INPUT_INVALID)


def _check_sent(columns: Iterable[pa.Field], whose: str, kind: ErrorKind) -> None:
    """Checks that names go through Arrow's C interface, which would end one at a NUL."""
    for column in columns:
        for it in fields_within(column):
            if "\0" in it.name:
                refuse(
                    f"{whose} has a column or field {it.name!r}, with the character NUL; rename it",
                    kind,
                )


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
        warn_once(
            "`%s` has the user-defined type %s: its results are the struct that Spark keeps of it,"
            " which pyspark.ml does not take; for a vector return an array<double>, and make it one"
            " by pyspark.ml.functions.array_to_vector",
            name,
            str(spec.get("pyClass") or spec.get("class")).rsplit(".", 1)[-1],
        )
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


# -- classes as schemas of native functions, with the rules of the class where it has some
#
# ```text
#   fields --> columns       read by the extension module; no Python a row
#   rules  --> `Model`       instances are made of the rows that leave the task
# ```
#
# Most classes have types only, and cost nothing. Runs where the user calls, on the driver.


_OF_NOTES = ("pydantic", "annotated_types")
"""Packages whose notes in ``Annotated`` are rules."""

# -- what pydantic says of a class: its core schema, a tree of dicts

_TYPES = """
    model model-fields model-field dataclass dataclass-args dataclass-field typed-dict
    typed-dict-field nullable default list dict definitions definition-ref any str int float bool
    bytes date datetime time timedelta decimal
"""
"""Those that do no more than columns of their types do."""
_PARTS = frozenset(
    ["schema", "fields", "items_schema", "keys_schema", "values_schema", "definitions", "config"]
)
_SAID = """
    ref metadata serialization cls cls_name model_name dataclass_name name title schema_ref required
    total slots init kw_only frozen repr field_name microseconds_precision generic_origin
    computed_fields serialization_alias serialization_exclude
"""
"""What changes nothing of what is taken."""
_types, _said_only = frozenset(_TYPES.split()), frozenset(_SAID.split())


@dataclass(frozen=True)
class Model:
    """The rules of a class, for the rows that a native function returns.

    Attributes:
        kind: The class.
        schema: Its columns.
        aliases: The names that it is made with, by column, where they are others.
        defaults: The columns that are left out where they are null.
        is_pydantic: Whether pydantic makes its instances.
        has_rules: Whether it takes less than its types say, or makes something else of it.
    """

    kind: type[Any]
    schema: pa.Schema = field(repr=False)
    aliases: Mapping[str, str] = field(repr=False)
    defaults: frozenset[str] = field(repr=False)
    is_pydantic: bool = field(repr=False)
    has_rules: bool = field(repr=False)

    def maker(self) -> Callable[[Mapping[str, Any]], object]:
        """Returns what makes an instance of the columns of a row, or raises what the class does."""
        make = _adapter(self.kind).validate_python if self.is_pydantic else None

        def made(values: Mapping[str, Any]) -> object:
            given = {
                self.aliases.get(name, name): value
                for name, value in values.items()
                if value is not None or name not in self.defaults
            }
            return self.kind(**given) if make is None else make(given)

        return made


@dataclass(frozen=True)
class Declared:
    """What the schema of a native function says.

    Attributes:
        columns: The columns.
        model: The class that they are the fields of, if it was one.
        renamed: What columns are called elsewhere that were written as ``x as y``.
    """

    columns: pa.Schema
    model: Model | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def required(self) -> tuple[str, ...]:
        """The columns that are not null, unless nothing was found."""
        return tuple(it.name for it in cast("Any", self.columns) if not it.nullable)

    @property
    def nullable(self) -> pa.Schema:
        """The columns, nullable as a miss leaves them."""
        return pa.schema(nullable(cast("Any", self.columns)))

    @property
    def rules(self) -> Model | None:
        """The class, if it says more than its types do."""
        return self.model if self.model is not None and self.model.has_rules else None

    @property
    def aliases(self) -> Mapping[str, str]:
        """The names of columns elsewhere, where they are others."""
        return self.renamed if self.model is None else self.model.aliases

    @property
    def paths(self) -> dict[str, str]:
        """JSON paths of the columns that documents have by other names."""
        return {name: f"$[{_quoted(alias)}]" for name, alias in self.aliases.items()}


def declared_by(schema: SchemaLike, *, has_names: bool = False) -> Declared:
    """Reads the schema of a native function.

    Args:
        schema: What was given.
        has_names: Whether what comes has names, so that a column may have another: ``x as y``.

    Raises:
        ConfigurationError: If it is not a schema, or has rules that a native function cannot keep.
    """
    if isinstance(schema, str) and has_names:
        text, renamed = without_renames(schema)
        return Declared(to_schema(text), renamed=renamed)
    if not names_columns(schema):
        return Declared(to_schema(schema))
    kind = cast("type[Any]", schema)
    row = RowClass(kind, "schema")
    columns, left_out = to_schema(row.schema), frozenset(row.defaults)
    own = [it for it in row.classes if _has_own_rules(it)]
    modules = {type(note).__module__.partition(".")[0] for note in row.notes}
    is_model = any(hasattr(it, "__pydantic_validator__") for it in row.classes)
    is_pydantic = is_model or not modules.isdisjoint(_OF_NOTES)
    aliases: dict[str, str] = {}
    if is_pydantic:
        aliases, has_rules = _looked_through(kind)
    elif [it for it in own if it is not kind]:
        _refuse(kind, f"`{own[-1].__name__}` within has rules; make both models of pydantic")
    else:
        has_rules = bool(own) or any(it is not None for it in row.defaults.values())
    return Declared(columns, Model(kind, columns, aliases, left_out, is_pydantic, has_rules))


def _has_own_rules(kind: type[Any]) -> bool:
    attributes = getattr(kind, "__attrs_attrs__", ())
    return hasattr(kind, "__post_init__") or any(it.validator or it.converter for it in attributes)


def _adapter(kind: type[Any]) -> Any:
    # It is there, or nobody could have made the class.
    return import_module("pydantic").TypeAdapter(kind)


def _looked_through(kind: type[Any]) -> tuple[dict[str, str], bool]:
    """Returns the aliases of a class, and whether it has rules.

    Raises:
        ConfigurationError: If a rule cannot be kept.
    """
    try:
        core = _adapter(kind).core_schema
    except Exception as error:
        msg = f"`schema` is `{kind.__name__}`, which pydantic refuses: {error}"
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID) from error
    aliases: dict[str, str] = {}
    for name, it in (getattr(kind, "__pydantic_fields__", None) or {}).items():
        alias = it.validation_alias or it.alias
        if alias is not None and not isinstance(alias, str):
            _refuse(kind, f"`{name}` has several aliases, or a path; give it one name")
        if alias is not None:
            aliases[name] = alias
    said = list(_said(core, 0))
    if any(key.startswith("extra") and value == "forbid" for key, value, _ in said):
        _refuse(kind, "it forbids extra members, which are not read; leave extra='forbid' out")
    named = [(it, depth) for key, it, depth in said if key == "validation_alias"]
    if any(depth > 1 or it not in aliases.values() for it, depth in named):
        why = "a class within it, or a TypedDict, has an alias; name fields as documents do"
        _refuse(kind, why)
    return aliases, any(_is_rule(key, value) for key, value, _ in said)


def _said(part: Any, depth: int) -> Iterator[tuple[str, Any, int]]:
    """Yields all that a core schema says, and how many classes are around it."""
    if isinstance(part, list):
        for one in cast("list[Any]", part):
            yield from _said(one, depth)
    elif isinstance(part, Mapping):
        said = cast("Mapping[str, Any]", part)
        depth += said.get("type") in ("model", "dataclass", "typed-dict")
        for key, value in said.items():
            if key == "fields" and isinstance(value, Mapping):
                yield from _said(list(cast("Mapping[str, Any]", value).values()), depth)
            elif key in _PARTS:
                yield from _said(value, depth)
            elif key not in _said_only:
                yield key, value, depth


def _is_rule(key: str, value: Any) -> bool:
    if key == "type":
        return value not in _types
    if key.startswith("extra") or key == "validation_alias":
        return False
    # What is off says nothing; a bound of 0 and a default of False do.
    return value is not None and (value is not False or key == "default")


def _quoted(name: str) -> str:
    quote = '"' if "'" in name else "'"
    return f"{quote}{name}{quote}"


def _refuse(kind: type[Any], why: str) -> NoReturn:
    msg = f"`schema` is `{kind.__name__}`, whose rules a native function cannot keep: {why}"
    raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
