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

__all__ = ["check_keys"]

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
    route = plan.route
    channels = () if route is None else route.columns
    for option, columns, kind in (
        ("key", plan.key or (), ErrorKind.OPTION_INVALID),
        ("cache", plan.cache_key, ErrorKind.CACHE_INVALID),
        ("channel", channels, ErrorKind.CHANNELS_INVALID),
    ):
        for column in columns:
            found = schema[column].dataType
            why = _why_not(found)
            if why is not None:
                is_hidden = option == "channel" and route is not None and route.hidden
                what = "is a" if is_hidden else f"names column `{column}`, a"
                refuse(f"`{option}` {what} {found.simpleString()}, {why}", kind)


def _why_not(found: DataType) -> str | None:
    """Says why values of a type are no keys; `None` if they are."""
    if isinstance(found, StructType):
        members = [_why_not(field.dataType) for field in found.fields]
        return next((why for why in members if why is not None), None)
    if isinstance(found, ArrayType):
        return _why_not(found.elementType)
    if isinstance(found, UserDefinedType):
        return _why_not(cast("Any", found).sqlType())
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
