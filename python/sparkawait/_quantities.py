# SPDX-License-Identifier: Apache-2.0
"""Lengths of time, sizes and columns, as users write them. Pure functions, for any thread."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import timedelta
from numbers import Real
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

from sparkawait._plan.checks import refuse, shown
from sparkawait.exceptions import ErrorKind

Duration: TypeAlias = str | timedelta | float
"""A length of time: ``"5s"``, ``"1.5 min"``, ``"1h 30min"``, a `timedelta`, or seconds."""

_SECONDS = {
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_INVALID = ErrorKind.DURATION_INVALID
_LONGEST = 1e14
"""Seconds. More than any timedelta, and a length that all clocks can add."""
_SHORTEST = 1e-9
_PART = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Zµμ]+)\s*")


def parse_duration(value: object, name: str) -> float:
    """Returns `value` in seconds.

    Fractions of a millisecond are kept. The string form is one or more numbers with a unit, which
    are added up.

    Args:
        value: ``"100ms"``, ``"1.5 min"``, ``"1h 30min"``, a `timedelta`, or a number of seconds.
        name: The argument it was given for, used in messages.

    Raises:
        ConfigurationError: If `value` has another type, is negative, not finite or above 1e14
            seconds, three million years.

    Examples:
        >>> parse_duration("1.5 min", "timeout")
        90.0
    """
    seconds = _to_seconds(value, name)
    if not math.isfinite(seconds):
        refuse(f"`{name}` must be finite, got {shown(value)}", ErrorKind.DURATION_INVALID)
    if seconds < 0:
        refuse(f"`{name}` must not be negative, got {shown(value)}", ErrorKind.DURATION_INVALID)
    return seconds


def positive_duration(value: object, name: str, *, hint: str = "") -> float:
    """Returns `value` in seconds and refuses zero.

    Args:
        value: As in `parse_duration`.
        name: The argument it was given for, used in messages.
        hint: What to write instead, appended to the message.

    Raises:
        ConfigurationError: If `value` is not a duration, or not positive.
    """
    seconds = _to_seconds(value, name)
    if not seconds > 0 or math.isinf(seconds):
        found = f"{shown(value)}{hint and f'; {hint}'}"
        kind = ErrorKind.TIMEOUT_NOT_POSITIVE
        refuse(f"`{name}` must be positive and finite, got {found}", kind)
    if seconds < _SHORTEST:
        refuse(f"`{name}` must be at least a nanosecond, got {shown(value)}", kind=_INVALID)
    return seconds


def optional_duration(value: object, name: str) -> float | None:
    """Returns `value` in seconds, and ``None`` for no bound; refuses zero."""
    return None if value is None else positive_duration(value, name, hint="None sets no bound")


def _to_seconds(value: object, name: str) -> float:
    if isinstance(value, str):
        seconds = _parse_text(value, name)
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif not isinstance(value, bool) and isinstance(value, Real):
        seconds = _of_number(value)
    else:
        refuse(
            f"`{name}` must be a string with a unit, a timedelta or a number of seconds,"
            f" got `{type(value).__name__}`",
            _INVALID,
        )
    if _LONGEST < seconds < math.inf:
        refuse(f"`{name}` must be at most {_LONGEST:g} seconds, got {shown(value)}", _INVALID)
    return seconds


def _of_number(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if cast("Any", value) > 0 else -math.inf


def _parse_text(text: str, name: str) -> float:
    body = text.strip()
    sign = -1.0 if body.startswith("-") else 1.0
    body = body.removeprefix("-")
    total, position = 0.0, 0
    while match := _PART.match(body, position):
        number, unit = match.groups()
        if unit.lower() not in _SECONDS:
            break
        total += float(number) * _SECONDS[unit.lower()]
        position = match.end()
    if position == 0 or position != len(body):
        refuse(
            f"`{name}` is not a duration: {shown(text)}; write a number and a unit"
            " (ns, us, ms, s, min, h, d), as in '5s' or '100ms'",
            _INVALID,
        )
    return sign * total


# -- sizes in bytes, as users write them. Pure functions, for any thread

Size: TypeAlias = int | str
"""A number of bytes, or a text with a unit, such as ``"64 MB"``."""


class Bytes(int):
    """A number of bytes, where a plain int is a number of something else."""


_UNITS = {"": 1, "b": 1} | {
    unit: 1024**power
    for power, letter in enumerate("kmgt", start=1)
    for unit in (letter, f"{letter}b", f"{letter}ib")
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")


def parse_size(
    value: object, name: str, *, most: int, kind: ErrorKind = ErrorKind.OPTION_INVALID
) -> int:
    """Returns `value` in bytes.

    Units are those of Spark's settings: powers of 1024, in capital or small letters, so that
    ``"64m"``, ``"64 MB"`` and ``"64 MiB"`` are the same.

    Args:
        value: An int of bytes, or a text of a number and a unit (b, kb, mb, gb, tb).
        name: The argument it was given for, used in messages.
        most: The most bytes that it may be.
        kind: What is wrong otherwise.

    Raises:
        ConfigurationError: If `value` has another type, is below one byte or above `most`.

    Examples:
        >>> parse_size("64 MB", "max_bytes", most=2**31 - 1)
        67108864
    """
    if isinstance(value, str):
        size = _parse_size(value, name, kind)
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        refuse(
            f"`{name}` must be an int of bytes or a text such as '64 MB', got {shown(value)}",
            kind,
        )
    if size < 1:
        refuse(f"`{name}` must be at least 1 byte, got {shown(value)}", kind)
    if size > most:
        refuse(f"`{name}` must be at most {most} bytes, got {shown(value)}", kind)
    return size


def _parse_size(text: str, name: str, kind: ErrorKind) -> int:
    match = _SIZE.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    # No size has so many digits, and numbers of thousands of them take long to read.
    if match is None or unit is None or len(match[1]) > 30:  # noqa: PLR2004
        refuse(
            f"`{name}` is not a size: {shown(text)}; write a number and a unit (b, kb, mb, gb),"
            " as in '64 MB'",
            kind,
        )
    number = match[1]
    return int(number) * unit if number.isdecimal() else int(float(number) * unit)


# -- columns of the input, as options name them: by a name or by an expression.
#
# Pure functions, for any thread.


class ColumnExpression(Protocol):
    """A ``Column`` of PySpark, of a classic session or of Spark Connect."""

    def alias(self, *alias: str, **kwargs: Any) -> Any: ...
    def isNotNull(self) -> Any: ...  # noqa: N802 - Spark's own


ColumnLike: TypeAlias = str | ColumnExpression
"""A column: its name, or an expression of PySpark such as ``F.lower("name")``."""

ColumnsLike: TypeAlias = ColumnLike | Sequence[ColumnLike]
"""A column, or several."""


def is_expression(value: object) -> TypeGuard[ColumnExpression]:
    """Tells whether it is a ``Column``, which only Spark can compute."""
    return type(value).__name__ == "Column" and hasattr(value, "alias")


def columns(
    value: object,
    name: str,
    kind: ErrorKind = ErrorKind.OPTION_INVALID,
    whose: str = "",
) -> tuple[ColumnLike, ...]:
    """Returns columns, given as one or as a list.

    Args:
        value: What was given.
        name: The argument it was given for.
        kind: Of the error.
        whose: What the argument belongs to, for the message.

    Raises:
        ConfigurationError: If it is something else, or an empty list.
    """
    several = isinstance(value, (list, tuple))
    given = cast("Sequence[object]", value if several else [value])
    if not given or not all(isinstance(it, str) or is_expression(it) for it in given):
        refuse(f"`{name}`{whose} must be a column name or a list of them, got {shown(value)}", kind)
    return tuple(cast("Sequence[ColumnLike]", given))


def named(
    value: Sequence[ColumnLike], name: str, kind: ErrorKind = ErrorKind.OPTION_INVALID
) -> tuple[str, ...]:
    """Returns columns that are all named, where nobody computes expressions.

    Raises:
        ConfigurationError: If one of them is an expression.
    """
    for column in value:
        if not isinstance(column, str):
            who = "which only calls over DataFrames compute"
            refuse(f"`{name}` is an expression, {who}; name columns", kind)
    return tuple(cast("Sequence[str]", value))
