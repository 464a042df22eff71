# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Checks of columns that options name; each raises a `ConfigurationError`.

Pure functions, for any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

import pyarrow as pa

from sparkawait._core import simple_string
from sparkawait._plan.suggestions import suggestion
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = [
    "refuse_column",
    "require_column",
    "require_key",
    "require_number",
    "require_number_at",
    "require_timestamp",
]


def require_column(
    schema: pa.Schema, column: str, option: str, *, is_in_text: bool = False
) -> None:
    """Checks that the input has a column; one that a text has in braces may not be meant as one."""
    if column not in schema.names:
        is_text = is_in_text and not re.fullmatch(r"[\w.-]+", column)
        hint = "if the braces are part of the text, write `{{` and `}}`"
        refuse_column(schema.names, column, option, hint if is_text else "")


def refuse_column(columns: Iterable[str], column: str, option: str, hint: str = "") -> NoReturn:
    """Raises a `ConfigurationError` about a column that is none of those of the input."""
    hint = hint or suggestion(column, columns)
    msg = f"`{option}` names column `{column}`, which the input does not have; {hint}"
    raise ConfigurationError(msg, ErrorKind.COLUMN_MISSING)


def require_key(schema: pa.Schema, column: str, option: str, kind: ErrorKind) -> None:
    """Checks that the input has a column whose values can be compared."""
    require_column(schema, column, option)
    found = schema.field(column).type
    if not _is_comparable(found):
        msg = f"`{option}` names column `{column}` of type {found}, whose values cannot be compared"
        raise ConfigurationError(msg, kind)


def _is_comparable(found: pa.DataType) -> bool:
    if pa.types.is_map(found) or pa.types.is_union(found):
        return False
    return all(_is_comparable(found.field(index).type) for index in range(found.num_fields))


def require_number(field: pa.Field, option: str) -> None:
    """Checks that a column has numbers."""
    found, of = field.type, pa.types
    if not (of.is_integer(found) or of.is_floating(found) or of.is_decimal(found)):
        msg = f"`{option}` names `{field.name}`, which is no number but {simple_string(found)}"
        raise ConfigurationError(msg, ErrorKind.RATE_LIMIT_INVALID)


def require_timestamp(schema: pa.Schema, column: str) -> None:
    """Checks that the input has a column of timestamps."""
    require_column(schema, column, "watermark")
    found = schema.field(column).type
    if not pa.types.is_timestamp(found):
        name = simple_string(found)
        msg = f"`watermark` names column `{column}`, which is no timestamp but {name}"
        raise ConfigurationError(msg, ErrorKind.COLUMN_NOT_A_TIMESTAMP)


def require_number_at(schema: pa.Schema, path: str, option: str, function_name: str) -> list[str]:
    """Returns the names on the way to a column of numbers, or to a field inside of one.

    Args:
        schema: What the function returns.
        path: A column, or a column and fields with points between them.
        option: Names the column.
        function_name: What returns it.
    """
    names = [path] if path in schema.names else path.split(".")
    fields, found = list(schema), None
    for name in names:
        found = next((field for field in fields if field.name == name), None)
        if found is None:
            break
        fields = _fields_in(found.type)
    if found is None:
        msg = f"`{option}` names `{path}`, which `{function_name}` does not return"
        raise ConfigurationError(msg, ErrorKind.COLUMN_MISSING)
    require_number(found, option)
    return names


def _fields_in(found: pa.DataType) -> list[pa.Field]:
    if not pa.types.is_struct(found):
        return []
    return [found.field(index) for index in range(found.num_fields)]
