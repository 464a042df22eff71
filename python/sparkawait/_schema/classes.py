# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""The columns that a function returns, read from its return annotation or from a class of rows.

```text
  -> Customer              the fields of a dataclass, NamedTuple, TypedDict, model or attrs class
  -> list[Customer]        the same, 0..n rows
  -> str                   one column, named like the function
```

What is not ``Optional`` is NOT NULL. Pure functions, for any thread of the driver.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import pyarrow as pa

from sparkawait._callables import without_partials
from sparkawait._schema.ddl import LEFT_OUT, SESSION_TIMESTAMP, noted, parse_element
from sparkawait.exceptions import ConfigurationError, ErrorKind

_MANY = (list, tuple, Sequence, Collection, Iterable)
_SCALARS: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    bytearray: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us", tz="UTC"),
    time: pa.time64("ns"),
    timedelta: pa.duration("us"),
}


def schema_of(function: object, name: str, *, batched: bool) -> pa.Schema | None:
    """Returns the columns that the return annotation of `function` names.

    Args:
        function: A coroutine function, or an object that is called like one.
        name: What messages call it; the last part names the column of a scalar.
        batched: Whether it returns a list with one result per row.

    Returns:
        ``None`` if it has no annotation, or one that says nothing, such as ``dict``.

    Raises:
        ConfigurationError: If a part of the annotation has no type in Spark; names it.
    """
    hint = _return_hint(function, name)
    reader = _Reader(name, hint)
    if batched and hint is not None:
        hint = _element(hint)
    if hint is None or hint is Any or _says_nothing(hint):
        return None
    return reader.schema(hint)


def returns_list(function: object, name: str, *, batched: bool) -> bool:
    """Tells whether `function` is annotated to return a list of rows for each row.

    Raises:
        ConfigurationError: As `schema_of`.
    """
    hint = _return_hint(function, name)
    return _element(_element(hint) if batched else hint) is not None


def names_columns(value: object) -> bool:
    """Tells whether `value` is a class of rows: its fields are columns."""
    return _names_of(value) is not None


class RowClass:
    """A class of rows as the schema of something else than a function that makes its instances.

    Attributes:
        schema: The columns of its fields. One with a default may be null where it is read.
        defaults: The fields that need not be given, with their defaults.
        classes: The class, and those within.
        notes: What ``Annotated`` says of its fields and those within.
    """

    def __init__(self, kind: type[Any], name: str) -> None:
        """Reads the class; `name` is the argument that it was given for.

        Raises:
            ConfigurationError: If a field has no type in Spark; names it.
        """
        reader = _Reader(name, kind, is_read=True)
        self.schema = reader.schema(kind)
        self.defaults = _defaults_of(kind)
        self.classes, self.notes = reader.classes, reader.notes


class _Reader:
    """Reads one annotation, or a class, which its messages quote.

    Args:
        name: What has the annotation.
        annotation: The annotation, or the class.
        is_read: Whether rows are read from elsewhere, so that a field may be left out.
    """

    def __init__(self, name: str, annotation: object, *, is_read: bool = False) -> None:
        self._name = name
        self._annotation = annotation
        self._is_read = is_read
        self._open: list[type] = []
        self.classes: list[Any] = []
        self.notes: list[object] = []

    def schema(self, hint: Any) -> pa.Schema:
        element = _element(hint)
        row, nullable = _optional(hint if element is None else element)
        fields = self._fields(row, "")
        if fields is None and element is not None:
            self._refuse(hint, "", "which may be rows or one array; give a schema")
        if fields is None:
            column = self._name.rsplit(".", 1)[-1]
            return pa.schema([self._field(column, hint, "")])
        if nullable:
            self._refuse(hint, "", "but None is not a row; return [] for none, and annotate a list")
        if not fields:
            self._refuse(hint, "", "which has no field")
        return pa.schema(fields)

    def _fields(self, row: Any, path: str) -> list[pa.Field] | None:
        """Returns the fields of a class of rows; ``None`` for another type."""
        names = _names_of(row)
        if names is None:
            return None
        if row in self._open:
            self._refuse(row, path, "which contains itself")
        self._open.append(row)
        self.classes.append(row)
        hints = _hints_of(_origin(row), self._name)
        hints = {one: _filled(hint, row) for one, hint in hints.items()}
        fields = [self._field(one, hints.get(one, Any), path) for one in names]
        self._open.pop()
        if not self._is_read:
            left_out = _left_out_of(row)
            return [
                noted(it.with_nullable(True), LEFT_OUT) if it.name in left_out else it  # noqa: FBT003
                for it in fields
            ]
        defaults = _defaults_of(row)
        return [self._may_be_left_out(it, defaults, path) for it in fields]

    def _may_be_left_out(
        self, field: pa.Field, defaults: Mapping[str, object], path: str
    ) -> pa.Field:
        """Returns a field that is null where it has to get its default."""
        if defaults.get(field.name) is None:
            return field.with_nullable(field.nullable or field.name in defaults)
        where = f"{path}.{field.name}" if path else field.name
        if path:
            self._refuse(self._annotation, where, "whose default nobody fills in there")
        if field.nullable:
            why = "where a null and one that is missing are alike; leave None or its default out"
            self._refuse(self._annotation, where, why)
        return field.with_nullable(True)  # noqa: FBT003

    def _field(self, name: str, hint: Any, path: str) -> pa.Field:
        self.notes += _notes_of(hint)
        inner, nullable = _optional(hint)
        part = self._part(inner, f"{path}.{name}" if path else name)
        return part.with_name(name).with_nullable(nullable)

    def _part(self, hint: Any, path: str) -> pa.Field:
        """Returns the type of a hint, as a field that has no name yet."""
        declared = _declared(hint)
        if declared is not None:
            return parse_element(declared, f"annotation of {path}")
        if get_origin(hint) is Annotated:
            return self._part(get_args(hint)[0], path)
        if hasattr(hint, "__supertype__"):  # a NewType
            return self._part(hint.__supertype__, path)
        if get_origin(hint) is Literal:
            return self._part(_common_type(get_args(hint)), path)
        if hint is Decimal:
            self._refuse(hint, path, "of no precision; write Annotated[Decimal, 'decimal(10,2)']")
        part = pa.field("", _scalar(hint) or self._nested(hint, path))
        # As Spark takes a `datetime` whose column is not declared.
        return noted(part, SESSION_TIMESTAMP if hint is datetime else {})

    def _nested(self, hint: Any, path: str) -> pa.DataType:
        element = _element(hint)
        if element is not None:
            return pa.list_(self._field("element", element, path))
        if _origin(hint) in (dict, Mapping) and len(get_args(hint)) == 2:  # noqa: PLR2004
            key, value = get_args(hint)
            keys = self._part(key, f"{path}.key").with_name("key").with_nullable(False)  # noqa: FBT003
            return pa.map_(cast("Any", keys), cast("Any", self._field("value", value, path)))
        fields = self._fields(hint, path)
        if fields is None:
            self._refuse(hint, path, "which is not a type of Spark; give a schema")
        return pa.struct(fields)

    def _refuse(self, hint: object, path: str, why: str) -> NoReturn:
        where = f" for `{path}`" if path and path != self._name.rsplit(".", 1)[-1] else ""
        is_own = hint is self._annotation
        what = "is" if self._is_read else "is annotated to return"
        msg = f"`{self._name}` {what} `{_shown(self._annotation)}`"
        msg += (
            "" if is_own and not where else f", that is{f' `{_shown(hint)}`' * (not is_own)}{where}"
        )
        msg += f", {why}"
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)


def _return_hint(function: object, name: str) -> Any:
    function = without_partials(function)
    if not inspect.isroutine(function):
        function = type(function).__call__  # pyright: ignore[reportFunctionMemberAccess]
    try:
        annotation = getattr(function, "__annotations__", {}).get("return")
    except NameError as error:  # since Python 3.14, which computes them when they are asked for
        _refuse_name(error, name)
    if annotation is None:
        return None
    function = inspect.unwrap(cast("Any", function))
    # A class that was made in a function, too, if what it returns is made of it.
    closure = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    only_return = types.SimpleNamespace(__annotations__={"return": annotation})
    return _hints_of(only_return, name, getattr(function, "__globals__", None), closure)["return"]


def _hints_of(
    owner: Any,
    name: str,
    names: dict[str, Any] | None = None,
    closure: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    try:
        return get_type_hints(owner, names, cast("Any", closure), include_extras=True)
    except NameError as error:
        _refuse_name(error, name)


def _refuse_name(error: NameError, name: str) -> NoReturn:
    msg = (
        f"the return annotation of `{name}` needs `{error.name}`, which its module does not"
        " have; define it there, or give a schema"
    )
    raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID) from error


def _names_of(row: Any) -> list[str] | None:
    """Returns the columns of a class whose values are rows."""
    row = _origin(row)
    if not isinstance(row, type):
        return None
    model_fields = getattr(row, "model_fields", None)
    if isinstance(model_fields, Mapping):
        return list(cast("Mapping[str, Any]", model_fields))
    if dataclasses.is_dataclass(row):
        return [field.name for field in dataclass_fields(row)]
    if issubclass(row, tuple):
        return list(getattr(row, "_fields", ())) or None
    attributes = getattr(row, "__attrs_attrs__", None)
    if attributes is not None:
        return [attribute.name for attribute in attributes]
    return list(_hints_of(row, row.__name__)) if _is_typed_dict(row) else None


def dataclass_fields(kind: Any) -> list[dataclasses.Field[Any]]:
    """Returns the fields of a dataclass, also of one that came to this process by value.

    `dataclasses.fields` compares objects that mark what is a field. The cloudpickle of Spark 3.5
    copies them with the class, and nothing is a field then. Their names stay.
    """
    found: list[Any] = list(kind.__dataclass_fields__.values())
    return [it for it in found if it._field_type.name == "_FIELD"]  # noqa: SLF001


_GIVEN = object()
"""Stands for a default that is made for each instance."""


def _defaults_of(row: Any) -> dict[str, object]:
    """Returns the fields of a class that need not be given, with their defaults."""
    row = _origin(row)
    fields = getattr(row, "__pydantic_fields__", None) or getattr(row, "model_fields", None)
    if isinstance(fields, Mapping):
        found = cast("Mapping[str, Any]", fields).items()
        return {
            name: _GIVEN if it.default_factory is not None else it.default
            for name, it in found
            if hasattr(it, "is_required") and not it.is_required()
        }
    if dataclasses.is_dataclass(row):
        missing = type(dataclasses.MISSING)
        return {
            it.name: _GIVEN if isinstance(it.default, missing) else it.default
            for it in dataclass_fields(row)
            if it.default is not it.default_factory
        }
    attributes = getattr(row, "__attrs_attrs__", None)
    if attributes is not None:
        nothing = sys.modules["attr"].NOTHING
        return {it.name: it.default for it in attributes if it.default is not nothing}
    if _is_typed_dict(row):
        return dict.fromkeys(_left_out_of(row), cast("object", None))
    return dict(getattr(row, "_field_defaults", {}))


def _left_out_of(row: Any) -> set[str]:
    """Returns the keys that a dict of a ``TypedDict`` need not have."""
    row = _origin(row)
    if not _is_typed_dict(row):
        return set()
    # Not told by the class itself where its annotations are texts.
    hints = _hints_of(row, row.__name__)
    of_mark = {name: _marked(hint) for name, hint in hints.items()}
    marked = {name for name, mark in of_mark.items() if mark == "NotRequired"}
    return marked | {name for name in row.__optional_keys__ if of_mark.get(name) != "Required"}


def _filled(hint: Any, row: Any) -> Any:
    """Returns the hint of a field with what a generic class was given for its variables."""
    values: dict[Any, Any] = dict(
        zip(getattr(_origin(row), "__parameters__", ()), get_args(row), strict=False)
    )
    if isinstance(hint, TypeVar):
        return values.get(hint, hint)
    open_in_it = getattr(hint, "__parameters__", ())
    if not values or not open_in_it or isinstance(hint, type):
        return hint
    return hint[tuple(values.get(one, one) for one in open_in_it)]


def _notes_of(hint: Any) -> list[object]:
    """Returns what ``Annotated`` says, wherever it is in a type."""
    own = list(get_args(hint)[1:]) if get_origin(hint) is Annotated else []
    inner = get_args(hint) if get_origin(hint) is not Literal else ()
    return own + [note for one in inner for note in _notes_of(one)]


def _is_typed_dict(row: type) -> bool:
    return issubclass(row, dict) and hasattr(row, "__required_keys__")


def _scalar(hint: Any) -> pa.DataType | None:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return (
            pa.string() if issubclass(hint, str) else pa.int64() if issubclass(hint, int) else None
        )
    return _SCALARS.get(hint)


def _origin(hint: Any) -> Any:
    return get_origin(hint) or hint


def _marked(hint: Any) -> str | None:
    """Returns the name of what a hint is marked with: `typing` has these in later versions only."""
    return getattr(get_origin(hint), "_name", None)


def _optional(hint: Any) -> tuple[Any, bool]:
    """Returns a type without None, and whether it had it."""
    if _marked(hint) in ("Required", "NotRequired", "ReadOnly"):
        inner, nullable = _optional(get_args(hint)[0])
        return inner, nullable or _marked(hint) == "NotRequired"
    if get_origin(hint) in (Union, types.UnionType):
        others = [one for one in get_args(hint) if one is not type(None)]
        if len(others) == 1 < len(get_args(hint)):
            return _optional(others[0])[0], True
    if get_origin(hint) is Annotated:
        inner, nullable = _optional(get_args(hint)[0])
        return (inner if _declared(hint) is None else hint), nullable
    if get_origin(hint) is Literal and None in get_args(hint):
        others = tuple(one for one in get_args(hint) if one is not None)
        return (Literal[others], True) if others else (hint, False)
    return hint, False


def _declared(hint: Any) -> str | None:
    """Returns the type in Spark's words that an ``Annotated`` gives."""
    if get_origin(hint) is not Annotated:
        return None
    return next((one for one in get_args(hint)[1:] if isinstance(one, str)), None)


def _element(hint: Any) -> Any:
    """Returns what a list of something holds; ``None`` for what is not a list."""
    arguments = get_args(hint)
    if get_origin(hint) is tuple:
        return arguments[0] if len(arguments) == 2 and arguments[1] is ... else None  # noqa: PLR2004
    return arguments[0] if get_origin(hint) in _MANY and len(arguments) == 1 else None


def _says_nothing(hint: Any) -> bool:
    """Whether it is a mapping, or a list, of anything: columns are not named then."""
    inner = _element(hint)
    if inner is not None:
        return inner is Any or _says_nothing(inner)
    is_union = get_origin(hint) in (Union, types.UnionType)
    if is_union:
        return any(_says_nothing(one) for one in get_args(hint))
    return _origin(hint) in (dict, Mapping, *_MANY)


def _common_type(values: Iterable[object]) -> Any:
    found = {type(value) for value in values}
    return found.pop() if len(found) == 1 else Any


def _shown(hint: object) -> str:
    if isinstance(hint, type) and not get_args(hint):
        return hint.__qualname__.rsplit(".", 1)[-1]
    return str(hint).replace("typing.", "")
