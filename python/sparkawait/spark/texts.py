# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Rows that Spark wrote as JSON, as Arrow columns: what pandas would not carry without loss.

Spark writes them with `OPTIONS`, so that each text stands for exactly one value of its type. Pure
functions, for any thread.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["OPTIONS", "PROBE", "PROBE_TEXT", "parse_rows"]

_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
OPTIONS = {
    "ignoreNullFields": "false",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": _TIME,
    "timestampNTZFormat": _TIME,
    "timeZone": "UTC",
}
"""Options of Spark's ``to_json``."""
PROBE = "named_struct('t', timestamp'1582-10-10 00:00:00.000001 UTC', 'd', date'1582-10-10')"
"""An expression whose text tells whether Spark writes times as `OPTIONS` say: the calendar of its
legacy formatters does not have this day."""
PROBE_TEXT = '{"t":"1582-10-10T00:00:00.000001","d":"1582-10-10"}'

_INTERVAL = re.compile(r"INTERVAL '(?P<sign>-?)(?P<numbers>[\d :.]+)' (?P<start>\w+)(?: TO \w+)?")
_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_Read = Callable[[Any], Any]


def parse_rows(texts: Iterable[str], data_type: pa.DataType) -> pa.Array:
    """Returns the structs that `texts` were written from.

    Raises:
        ConfigurationError: If a type cannot be read back exactly, or a value is outside of what
            Python has.
    """
    read = _reader(data_type)
    try:
        values = [
            read(json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=list))
            for text in texts
        ]
    except ValueError as error:
        msg = (
            f"an argument of type {data_type} has a value that Python's types do not hold, such as"
            " a time outside of the years 1 to 9999"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID) from error
    return pa.array(values, data_type)


def _reader(data_type: Any) -> _Read:
    """Returns what makes Python values of the parts of a document."""
    read = _reader_of_values(data_type)
    return lambda value: None if value is None else read(value)


def _reader_of_values(data_type: Any) -> _Read:
    for matches, simple in _SIMPLE:
        if matches(data_type):
            return simple
    if pa.types.is_timestamp(data_type):
        return _instant if data_type.tz is not None else datetime.fromisoformat
    if pa.types.is_list(data_type):
        element = _reader(data_type.value_type)
        return lambda values: [element(value) for value in values]
    if pa.types.is_struct(data_type):
        return _struct_reader(data_type)
    if pa.types.is_map(data_type):
        key, item = _key_reader(data_type), _reader(data_type.item_type)
        return lambda pairs: [(key(name), item(value)) for name, value in pairs]
    return _refuse(data_type)


def _struct_reader(data_type: Any) -> _Read:
    names = [field.name for field in data_type]
    if len(set(names)) < len(names):
        return _refuse(data_type)
    members = [(field.name, _reader(field.type)) for field in data_type]
    names = [name for name, _ in members]

    def read_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if [name for name, _ in pairs] != names:
            msg = (
                "before Spark 4.1 no column of a column function, and no member of a struct in it,"
                " can have a name with a type in it, such as `a:int,b`; rename it"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        return {name: read(value) for (name, read), (_, value) in zip(members, pairs, strict=True)}

    return read_members


def _key_reader(data_type: Any) -> _Read:
    """Keys are always texts."""
    key_type = data_type.key_type
    if pa.types.is_boolean(key_type):
        return lambda text: text == "true"
    if any(matches(key_type) for matches, _ in _SIMPLE[1:5]):
        return _reader(key_type)
    return _refuse(data_type)


def _refuse(data_type: Any) -> _Read:
    msg = (
        f"before Spark 4.1 a column function cannot have an argument of type {data_type}, which"
        " does not arrive exactly; use ordered_wait, or cast the argument"
    )
    raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _same(value: Any) -> Any:
    return value


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def _interval(text: str) -> timedelta:
    """Reads ``INTERVAL '-1 02:03:04.000005' DAY TO SECOND``; the start says what comes first."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError
    first = _UNITS.index(match["start"])
    numbers = map(Decimal, re.split("[ :]", match["numbers"]))
    units = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(microseconds=1))
    total = timedelta()
    for number, unit in zip(numbers, units[first:], strict=False):
        micros = unit.microseconds == 1
        total += unit * int(number * 1_000_000 if micros else number)
    return -total if match["sign"] else total


# The kinds of keys stand together.
_SIMPLE: list[tuple[Callable[[Any], bool], _Read]] = [
    (pa.types.is_boolean, _same),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_string, _same),
    (pa.types.is_null, _same),
    (pa.types.is_binary, b64decode),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_duration, _interval),
]
