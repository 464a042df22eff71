# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Classes as schemas of native functions, with the rules of the class where it has some.

```text
  fields --> columns       read by the extension module; no Python a row
  rules  --> `Model`       instances are made of the rows that leave the task
```

Most classes have types only, and cost nothing. Runs where the user calls, on the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NoReturn, cast

import pyarrow as pa

from sparkawait._plan.arrow_types import nullable
from sparkawait._plan.ddl import without_renames
from sparkawait._plan.return_types import RowClass, names_columns
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.types import SchemaLike, to_schema

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
