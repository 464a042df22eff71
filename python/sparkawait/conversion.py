# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""What PyArrow would not take, or would take silently wrong, on its way into a column.

PyArrow cuts 1.5 to 1 for an integer column, drops the time of day for a date, reads a number as
microseconds since 1970, explodes a string into a list, and refuses a dict for a map. Columns whose
values all have the expected Python type are not looked at further. No state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

__all__ = ["Conversion", "conversion_to"]

_NONE = type(None)


class Conversion:
    """Prepares the values of one column, or of one part of a nested column.

    Args:
        plain: Types whose values need nothing done.
        one: Prepares a value of another type, or raises.
    """

    def __init__(self, plain: set[type], one: Callable[[Any], Any]) -> None:
        """Takes both parts of the rule."""
        self._plain = plain
        self.one = one

    def all(self, values: Iterable[Any]) -> Sequence[Any]:
        """Prepares many values.

        Raises:
            TypeError: If one of them cannot be stored without loss.
        """
        values = values if isinstance(values, (list, tuple)) else list(values)
        values = cast("Sequence[Any]", values)
        if self._plain.issuperset(map(type, values)):
            return values
        return [None if value is None else self.one(value) for value in values]


def conversion_to(data_type: pa.DataType) -> Conversion | None:
    """Returns the conversion for a column of `data_type`; ``None`` if PyArrow needs no help."""
    for matches, make in _RULES:
        if matches(data_type):
            return make(data_type)
    return None


def _whole(value: Any) -> Any:
    if isinstance(value, (float, Decimal)) and value != int(value):
        raise TypeError
    return value


def _no_number(value: Any) -> Any:
    if isinstance(value, (int, float)):
        raise TypeError
    return value


def _day(value: Any) -> Any:
    if isinstance(value, datetime) and value.time() != time():
        raise TypeError
    return _no_number(value)


def _list_conversion(data_type: pa.ListType) -> Conversion:
    element = conversion_to(data_type.value_type)

    def one(value: Any) -> Any:
        if isinstance(value, (str, bytes, Mapping)):
            raise TypeError
        return value if element is None else element.all(value)

    return Conversion({_NONE, list, tuple} if element is None else {_NONE}, one)


def _map_conversion(data_type: pa.MapType) -> Conversion:
    key, item = conversion_to(data_type.key_type), conversion_to(data_type.item_type)

    def one(value: Any) -> Any:
        pairs = list(value.items() if isinstance(value, Mapping) else value)
        keys: Sequence[Any] = [k for k, _ in pairs]
        items: Sequence[Any] = [v for _, v in pairs]
        keys = keys if key is None else key.all(keys)
        items = items if item is None else item.all(items)
        return list(zip(keys, items, strict=True))

    return Conversion({_NONE}, one)


def _struct_conversion(data_type: pa.StructType) -> Conversion | None:
    members = {field.name: conversion_to(field.type) for field in data_type}
    converted = {name: member for name, member in members.items() if member is not None}
    if not converted:
        return None

    def one(value: Any) -> Any:
        result = dict(value)
        for name, member in converted.items():
            if result.get(name) is not None:
                result[name] = member.one(result[name])
        return result

    return Conversion({_NONE}, one)


_Rule = tuple[Callable[[pa.DataType], bool], Callable[[Any], Conversion | None]]
_RULES: list[_Rule] = [
    (pa.types.is_integer, lambda _: Conversion({int, _NONE}, _whole)),
    (pa.types.is_timestamp, lambda _: Conversion({datetime, _NONE}, _no_number)),
    (pa.types.is_date, lambda _: Conversion({date, _NONE}, _day)),
    (pa.types.is_duration, lambda _: Conversion({timedelta, _NONE}, _no_number)),
    (pa.types.is_map, _map_conversion),
    (pa.types.is_struct, _struct_conversion),
    (pa.types.is_list, _list_conversion),
    (pa.types.is_large_list, _list_conversion),
]
