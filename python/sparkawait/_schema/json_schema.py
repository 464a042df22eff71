# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The JSON schema that a model is told: of columns, or of a class.

As services want it that hold their models to it: each member of an object is required, and an
object has no others. What may be missing may be null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa

from sparkawait._schema.types import Declared
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["json_schema"]

_LEFT_OUT = frozenset({"title", "default"})


def json_schema(declared: Declared) -> dict[str, Any]:
    """Returns the JSON schema of what was declared.

    Raises:
        ConfigurationError: If a type has no form in JSON.
    """
    model = declared.model
    if model is not None and hasattr(model.kind, "model_json_schema"):
        return _strict(cast("Any", model.kind).model_json_schema(by_alias=True))
    aliases = declared.aliases
    return _object([(aliases.get(it.name, it.name), it) for it in cast("Any", declared.columns)])


def _strict(schema: Any) -> Any:
    """Returns a schema in which all members are required, and no others are there."""
    if isinstance(schema, list):
        return [_strict(it) for it in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    given = cast("Mapping[str, Any]", schema)
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("properties", "$defs"):
            found[name] = {key: _strict(it) for key, it in value.items()}
        elif name not in _LEFT_OUT:
            found[name] = _strict(value)
    if isinstance(given.get("properties"), Mapping):
        found["required"] = list(given["properties"])
        found["additionalProperties"] = False
    return found


def _object(fields: list[tuple[str, pa.Field[Any]]]) -> dict[str, Any]:
    members = {name: _of(it.type, it.name, nullable=it.nullable) for name, it in fields}
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def _of(kind: Any, name: str, *, nullable: bool) -> dict[str, Any]:
    schema: dict[str, Any]
    if pa.types.is_struct(kind):
        schema = _object([(it.name, it) for it in kind])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_field
        schema = {"type": "array", "items": _of(inner.type, name, nullable=inner.nullable)}
    else:
        schema = {"type": _scalar(kind, name)}
        if pa.types.is_date(kind):
            schema["format"] = "date"
        if pa.types.is_timestamp(kind):
            schema["format"] = "date-time"
    if nullable:
        schema["type"] = [schema["type"], "null"]
    return schema


def _scalar(kind: Any, name: str) -> str:
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "string"
    msg = (
        f"column `{name}` has the type {kind}, which no JSON schema of a model has; maps are arrays"
        " of structs there, and bytes are texts"
    )
    raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
