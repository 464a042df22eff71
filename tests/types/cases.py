# SPDX-License-Identifier: Apache-2.0
"""The values that go over every path: types of Spark with null and edges, written in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

__all__ = ["CASES", "NOT_UTF8", "Case", "cases_of", "with_units"]


@dataclass(frozen=True)
class Case:
    """One value.

    Attributes:
        type: Its type in Spark's DDL.
        name: What is special about it; unique within the type.
        sql: An expression that makes it.
        since: The first version of Spark that has the type.
    """

    type: str
    name: str
    sql: str
    since: tuple[int, int] = (3, 5)


def _whole(data_type: str, bits: int) -> dict[str, str]:
    """Both ends of an integer type, and its null."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return {
        "min": f"cast('{low}' as {data_type})",
        "max": f"cast('{high}' as {data_type})",
        "zero": f"cast(0 as {data_type})",
    }


def _floating(data_type: str) -> dict[str, str]:
    return {
        name: f"cast('{text}' as {data_type})"
        for name, text in {
            "NaN": "NaN",
            "infinity": "Infinity",
            "-infinity": "-Infinity",
            "0.0": "0.0",
            "-0.0": "-0.0",
            "0.1": "0.1",
            "1e7": "1e7",
            "smallest": "1.4e-45" if data_type == "float" else "4.9e-324",
            "largest": "3.4028235e38" if data_type == "float" else "1.7976931348623157e308",
        }.items()
    }


# Both changes of daylight saving time in New York among them.
_INSTANTS = {
    "epoch": "timestamp'1970-01-01 00:00:00 UTC'",
    "microsecond": "timestamp'2024-07-01 12:00:00.000001 UTC'",
    "before 1970": "timestamp'1969-12-31 23:59:59.999999 UTC'",
    "spring forward": "timestamp'2024-03-10 07:30:00 UTC'",
    "fall back, first": "timestamp'2024-11-03 05:30:00 UTC'",
    "fall back, second": "timestamp'2024-11-03 06:30:00 UTC'",
    "far past": "timestamp'1883-11-18 00:00:00 UTC'",
    "far future": "timestamp'9998-12-31 12:00:00 UTC'",
}
_WALL_CLOCK = {
    "epoch": "timestamp_ntz'1970-01-01 00:00:00'",
    "microsecond": "timestamp_ntz'2024-07-01 12:00:00.000001'",
    "hour that New York skips": "timestamp_ntz'2024-03-10 02:30:00'",
    "hour that New York has twice": "timestamp_ntz'2024-11-03 01:30:00'",
    "year 1": "timestamp_ntz'0001-01-01 00:00:00'",
    "year 9999": "timestamp_ntz'9999-12-31 23:59:59.999999'",
}
_THREE_DEEP = "struct<a: array<struct<m: map<string, bigint>, t: timestamp>>, d: decimal(10,2)>"

_VALUES: dict[str, dict[str, str]] = {
    "boolean": {"true": "true", "false": "false"},
    "tinyint": _whole("tinyint", 8),
    "smallint": _whole("smallint", 16),
    "int": _whole("int", 32),
    "bigint": _whole("bigint", 64) | {"2^53+1": "9007199254740993L"},
    "float": _floating("float"),
    "double": _floating("double"),
    "decimal(10,2)": {
        "scale": "cast('1.20' as decimal(10,2))",
        "min": "cast('-99999999.99' as decimal(10,2))",
    },
    "decimal(38,18)": {
        "largest": "cast('99999999999999999999.999999999999999999' as decimal(38,18))",
        "smallest": "cast('0.000000000000000001' as decimal(38,18))",
        "zero": "cast('0' as decimal(38,18))",
    },
    "decimal(38,0)": {"largest": f"cast('{'9' * 38}' as decimal(38,0))"},
    "string": {
        "empty": "''",
        "NUL": "concat('a', char(0), 'b')",
        "emoji": "'naïve 日本 👩‍👩‍👧'",
        "quotes": "concat('\"', chr(92), chr(10), '/<&')",
        "10 MB": "repeat('x', 10000000)",
    },
    "char(5)": {"padded": "cast('ab' as char(5))"},
    "varchar(5)": {"short": "cast('ab' as varchar(5))"},
    "binary": {"bytes": "X'00FF41'", "empty": "X''"},
    "date": {
        "year 1": "date'0001-01-01'",
        "before 1582": "date'1582-10-04'",
        "1582": "date'1582-10-15'",
        "epoch": "date'1970-01-01'",
        "year 9999": "date'9999-12-31'",
    },
    "timestamp": _INSTANTS,
    "timestamp_ntz": _WALL_CLOCK,
    "interval day to second": {
        "mixed": "interval '1 02:03:04.000005' day to second",
        "negative": "interval '-1 02:03:04.000005' day to second",
        "zero": "interval '0' day",
    },
    "interval year to month": {"mixed": "interval '1-2' year to month"},
    "array<int>": {"nulls inside": "array(1, null, 3)", "empty": "cast(array() as array<int>)"},
    "array<string>": {"empty": "cast(array() as array<string>)", "texts": "array('a', '', null)"},
    "array<timestamp>": {"instant": "array(timestamp'2024-11-03 05:30:00 UTC', null)"},
    "array<array<int>>": {"empty inside": "array(cast(array() as array<int>), array(1), null)"},
    "map<string,bigint>": {
        "null inside": "map('a', 9007199254740993L, 'b', null)",
        "empty": "cast(map() as map<string,bigint>)",
    },
    "map<int,string>": {"number as key": "map(1, 'a', 2, null)"},
    "struct<x: int, y: string>": {
        "values": "named_struct('x', 1, 'y', 'a')",
        "nulls inside": "named_struct('x', cast(null as int), 'y', cast(null as string))",
    },
    _THREE_DEEP: {
        "values": (
            "named_struct('a', array(named_struct('m', map('k', 9007199254740993L),"
            " 't', timestamp'2024-11-03 06:30:00 UTC'), null), 'd', cast('1.20' as decimal(10,2)))"
        )
    },
    "void": {},
    "variant": {"object": 'parse_json(\'{"a": [1, 2.5, "x", null]}\')'},
    "time": {"microsecond": "time'12:34:56.000001'"},
}
_SINCE = {"variant": (4, 0), "time": (4, 1)}


def _cases() -> Iterator[Case]:
    for data_type, values in _VALUES.items():
        since = _SINCE.get(data_type, (3, 5))
        for name, sql in values.items():
            yield Case(data_type, name, sql, since)
        yield Case(data_type, "null", f"cast(null as {data_type})", since)


CASES: tuple[Case, ...] = tuple(_cases())
NOT_UTF8 = Case("string", "not UTF-8", "cast(X'FF41' as string)")
"""Apart from the others: Spark shows it, and everything in its row, as something else."""


def cases_of(version: tuple[int, int]) -> list[Case]:
    """Returns the cases that a version of Spark has the types for."""
    return [case for case in CASES if case.since <= version]


def with_units(cases: Iterable[Case]) -> Iterator[Case]:
    """Yields cases, intervals with all units: their type is all that Spark sends of these."""
    for case in cases:
        is_interval = case.type == "interval day to second"
        yield replace(case, sql=f"cast({case.sql} as {case.type})") if is_interval else case
