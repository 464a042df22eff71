# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The JSON schema that a model is told: of columns, or of a class.

As services want it that hold their models to it: each member of an object is required, and an
object has no others. What may be missing may be null. A service answers 400 to a schema with words
that it does not know, so those stand in the description, where the model reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa

from sparkawait._schema.types import Declared
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["json_schema"]

# What says nothing to a model, or is true of each schema that is sent.
_LEFT_OUT = frozenset(
    {"title", "default", "$defs", "required", "additionalProperties", "discriminator"}
)
_PARTS = frozenset({"properties", "items", "anyOf", "oneOf"})
# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
_OF_CHAT = frozenset(
    {"type", "enum", "const", "description", "format", "pattern", "minItems", "maxItems"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
# https://docs.anthropic.com/en/docs/build-with-claude/structured-outputs
_OF_MESSAGES = frozenset({"type", "enum", "const", "description", "format"})
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)


def json_schema(declared: Declared, *, api: str) -> dict[str, Any]:
    """Returns the JSON schema of what was declared, in the words that the services of `api` know.

    Raises:
        ConfigurationError: If a type has no form in JSON.
    """
    model = declared.model
    if model is not None and hasattr(model.kind, "model_json_schema"):
        given = cast("Any", model.kind).model_json_schema(by_alias=True)
        return _Held(given, _OF_MESSAGES if api == "messages" else _OF_CHAT).whole()
    aliases = declared.aliases
    return _object([(aliases.get(it.name, it.name), it) for it in cast("Any", declared.columns)])


class _Held:
    """A schema of a class, as services hold their models to it."""

    def __init__(self, given: Mapping[str, Any], known: frozenset[str]) -> None:
        self._given = given
        self._known = known

    def whole(self) -> dict[str, Any]:
        found = self._of(self._given, ())
        parts = cast("Mapping[str, Any]", self._given.get("$defs", {}))
        if parts:
            found["$defs"] = {name: self._of(it, ()) for name, it in parts.items()}
        return found

    def _of(self, given: Mapping[str, Any], within: tuple[str, ...]) -> dict[str, Any]:
        given = dict(given)
        name = given.pop("$ref", None)
        if name is not None:
            # A reference stands alone: a description beside it is answered with a 400.
            if name in within or not given.keys() - _LEFT_OUT:
                return {"$ref": name}
            part = cast("Mapping[str, Any]", self._given["$defs"][name.rpartition("/")[2]])
            return self._of({**part, **given}, (*within, name))
        found: dict[str, Any] = {}
        for word, value in given.items():
            if word == "properties":
                found[word] = {key: self._of(it, within) for key, it in value.items()}
            elif word == "items":
                found[word] = self._of(value, within)
            elif word in ("anyOf", "oneOf"):
                found["anyOf"] = [self._of(it, within) for it in value]
            elif self._knows(word, value):
                found[word] = value
        if found.get("type") == "object":
            _close(found, given)
        others = [it for it in given.items() if it[0] not in _PARTS | _LEFT_OUT | found.keys()]
        if others:
            said = [found["description"]] if "description" in found else []
            bounds = ", ".join(f"{word} {value}" for word, value in others)
            found["description"] = "\n\n".join([*said, bounds])
        return found

    def _knows(self, word: str, value: Any) -> bool:
        return word in self._known and (word != "format" or value in _FORMATS)


def _close(found: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Makes all members of an object required, and no others allowed."""
    if "properties" not in found or given.get("additionalProperties"):
        msg = (
            "a member of the class is a map, which no JSON schema of a model has; give a list of"
            " objects with a key and a value"
        )
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
    found["required"] = list(found["properties"])
    found["additionalProperties"] = False


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
    return {"anyOf": [schema, {"type": "null"}]} if nullable else schema


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
