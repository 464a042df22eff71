# SPDX-License-Identifier: Apache-2.0
"""Lengths of time as users write them, turned into seconds. Pure functions, for any thread."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from numbers import Real
from typing import Any, TypeAlias, cast

from sparkawait._plan.checks import refuse, shown
from sparkawait.exceptions import ErrorKind

__all__ = ["Duration", "optional_duration", "parse_duration", "positive_duration"]

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
        ConfigurationError: If `value` is none of these, negative, not finite or above 1e14
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
        ConfigurationError: If `value` is no duration, or not positive.
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
            f"`{name}` is no duration: {shown(text)}; write a number and a unit"
            " (ns, us, ms, s, min, h, d), as in '5s' or '100ms'",
            _INVALID,
        )
    return sign * total
