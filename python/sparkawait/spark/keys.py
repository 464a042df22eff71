# SPDX-License-Identifier: Apache-2.0
"""Columns whose values are compared: the key of the key-ordered mode, a cache's, a channel's.

Two rows have one key where Spark's ``GROUP BY`` puts them in one group. What cannot be compared so
is refused. To be called on the driver.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql.types import ArrayType, DataType, StringType, StructType, UserDefinedType

from sparkawait._plan.checks import refuse
from sparkawait._plan.plan import Plan
from sparkawait.exceptions import ErrorKind

__all__ = ["check_keys", "why_no_key"]

_BINARY = "UTF8_BINARY"
# By name, because no version of Spark has all of them.
_NOT_COMPARED = frozenset(
    {"CalendarIntervalType", "GeographyType", "GeometryType", "MapType", "VariantType"}
)


def check_keys(plan: Plan, schema: StructType) -> None:
    """Checks the columns of `schema` by whose values `plan` tells rows apart.

    Raises:
        ConfigurationError: If Spark does not group by one of them, or groups by its collation.
    """
    for branch in plan.branches:
        check_keys(branch, schema)
    for option, columns, kind in (
        ("key", plan.key or (), ErrorKind.OPTION_INVALID),
        ("cache", plan.cache_key, ErrorKind.CACHE_INVALID),
        ("channel", plan.route or (), ErrorKind.CHANNELS_INVALID),
    ):
        for column in columns:
            if column in plan.hidden:
                continue  # looked at when it was made
            found = schema[column].dataType
            why = why_no_key(found)
            if why is not None:
                refuse(f"`{option}` names column `{column}`, a {found.simpleString()}, {why}", kind)


def why_no_key(found: DataType) -> str | None:
    """Says why values of a type are no keys; `None` if they are."""
    if isinstance(found, StructType):
        members = [why_no_key(field.dataType) for field in found.fields]
        return next((why for why in members if why is not None), None)
    if isinstance(found, ArrayType):
        return why_no_key(found.elementType)
    if isinstance(found, UserDefinedType):
        return why_no_key(cast("Any", found).sqlType())
    if (
        isinstance(found, StringType)
        and getattr(found, "collation", "UTF8_BINARY") != "UTF8_BINARY"
    ):
        return (
            "whose equal values may be written differently; give a column such as"
            " `lower(name) collate utf8_binary` instead"
        )
    if type(found).__name__ in _NOT_COMPARED:
        return "whose values cannot be compared"
    return None
