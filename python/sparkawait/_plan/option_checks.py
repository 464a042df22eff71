# SPDX-License-Identifier: Apache-2.0
"""Checks of single options of the wait functions; each returns the value in one form.

What depends on several options, or on the function, is checked in `options`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, TypeVar

from sparkawait._plan.checks import MAX_BYTES, MAX_COUNT, ObjectOf, choice, flag, refuse, shown
from sparkawait.adaptive import Adaptive
from sparkawait.cache import Cache
from sparkawait.capture import Capture
from sparkawait.carry_over import CarryOver
from sparkawait.channels import Channels
from sparkawait.circuit_breaker import CircuitBreaker
from sparkawait.columns import ColumnLike, columns
from sparkawait.durations import optional_duration
from sparkawait.exceptions import ErrorKind
from sparkawait.hedge import Hedge
from sparkawait.output_batches import OutputBatches
from sparkawait.retry import ONLY_REFUSED, AsyncRetryStrategy, exponential_backoff
from sparkawait.sizes import Bytes, parse_size
from sparkawait.watermark import WatermarkStrategy

__all__ = [
    "anything",
    "boolean",
    "calls",
    "count",
    "one_of",
    "optional",
    "route",
    "rows_or_bytes",
    "seconds",
    "size",
    "the_cache",
    "the_carry_over",
    "the_channels",
    "the_circuit_breaker",
    "the_hedge",
    "the_on_error",
    "the_output_batches",
    "the_retry",
    "the_watermark",
]

_T = TypeVar("_T")
_logger = logging.getLogger("sparkawait")
_LONG = 10_000
"""Seconds that somebody may have meant as milliseconds."""


def anything(value: Any, name: str) -> Any:  # noqa: ARG001 - a check gets the name
    """Returns what can be checked with the function only."""
    return value


def optional(check: Callable[[object, str], _T]) -> Callable[[object, str], _T | None]:
    """Returns a check that ``None`` passes."""
    return lambda value, name: None if value is None else check(value, name)


def seconds(value: object, name: str) -> float | None:
    """Returns a length of time that is not zero; ``None`` for no bound."""
    found = optional_duration(value, name)
    if found is not None and found >= _LONG and not isinstance(value, str | timedelta):
        _warn_of_seconds(name, found)
    return found


@functools.cache
def _warn_of_seconds(name: str, seconds: float) -> None:
    """Says so once a process."""
    _logger.warning(
        '`%s=%g` is %.1f h, as a number is seconds; did you mean "%gs"?',
        name,
        seconds,
        seconds / 3600,
        seconds / 1000,
    )


def count(kind: ErrorKind = ErrorKind.OPTION_INVALID) -> Callable[[object, str], int]:
    """Returns a check for a number of rows or calls, at least one."""

    def check(value: object, name: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            refuse(f"`{name}` must be an int, got {shown(value)}", kind)
        if value < 1:
            refuse(f"`{name}` must be at least 1, got {shown(value)}", kind)
        if value > MAX_COUNT:
            refuse(f"`{name}` must be at most {MAX_COUNT}, got {shown(value)}", kind)
        return value

    return check


def calls(value: object, name: str) -> int | Adaptive | None:
    """Returns a number of calls, or what finds it."""
    if value is None or isinstance(value, Adaptive):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"`{name}` must be an int or a sparkawait.Adaptive, got {shown(value)}"
        refuse(msg, ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE)
    return count(ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE)(value, name)


def rows_or_bytes(value: object, name: str) -> int | Bytes:
    """Returns a number of rows, or of bytes where a text gives them with a unit."""
    if isinstance(value, str):
        if value.strip().replace(".", "", 1).isdecimal():
            msg = f"`{name}` must be an int of rows or a text with a unit such as '256 MB'"
            refuse(f"{msg}, got {shown(value)}", ErrorKind.CAPACITY_NOT_POSITIVE)
        return Bytes(parse_size(value, name, most=MAX_BYTES))
    return count(ErrorKind.CAPACITY_NOT_POSITIVE)(value, name)


def size(value: object, name: str) -> int:
    """Returns a size in bytes."""
    return parse_size(value, name, most=MAX_BYTES)


def one_of(*words: str) -> Callable[[object, str], Any]:
    """Returns a check for one of some words."""
    return lambda value, name: choice(value, name, *words)


def boolean(value: object, name: str) -> bool:
    """Returns ``True`` or ``False``."""
    return flag(value, name)


def route(value: object, name: str) -> tuple[ColumnLike, ...] | None:
    """Returns where the channel of a row is found."""
    return None if value is None else columns(value, name, ErrorKind.CHANNELS_INVALID)


def the_on_error(value: object, name: str) -> Literal["fail", "null", "drop"] | Capture:
    """Returns what becomes of a row that failed; ``"capture"`` is a `Capture`."""
    if isinstance(value, Capture):
        return value
    if not isinstance(value, str) or value not in ("fail", "null", "drop", "capture"):
        known = "'fail', 'null', 'drop', 'capture', or a sparkawait.Capture"
        refuse(f"`{name}` must be one of {known}, got {shown(value)}")
    return Capture() if value == "capture" else value


def the_output_batches(value: object, name: str) -> OutputBatches:
    """Returns how output is cut into batches."""
    if value is None:
        return OutputBatches()
    if not isinstance(value, OutputBatches):
        refuse(f"`{name}` must be a sparkawait.OutputBatches, got {shown(value)}")
    return value


def _or_none(cls: Callable[[], _T]) -> Callable[[bool], _T | None]:
    return lambda value: cls() if value else None


def _retries(count: int) -> AsyncRetryStrategy | None:
    return None if count == 0 else exponential_backoff(count)


_LIMIT = ErrorKind.RATE_LIMIT_INVALID
the_cache = ObjectOf(
    Cache,
    "a sparkawait.Cache, True, or a text such as '10min' for its `expire_after_write`",
    ErrorKind.CACHE_INVALID,
    {bool: _or_none(Cache), str: lambda time: Cache(expire_after_write=time)},
)
the_carry_over = ObjectOf(
    CarryOver, "a sparkawait.CarryOver or True", short={bool: _or_none(CarryOver)}
)
the_channels = ObjectOf(
    Channels,
    "a sparkawait.Channels, or an int for its `count`",
    ErrorKind.CHANNELS_INVALID,
    {int: lambda count: Channels(count=count)},
)
the_circuit_breaker = ObjectOf(
    CircuitBreaker, "a sparkawait.CircuitBreaker or True", _LIMIT, {bool: _or_none(CircuitBreaker)}
)
the_hedge = ObjectOf(
    Hedge,
    "a sparkawait.Hedge, True, or a text such as 'p95' or '300ms' for its `after`",
    short={bool: _or_none(Hedge), str: lambda after: Hedge(after=after)},
)
the_retry = ObjectOf(
    AsyncRetryStrategy,
    "made by sparkawait.retry, a number of retries, or 0 for none",
    ErrorKind.RETRY_INVALID,
    {int: _retries},
    default=ONLY_REFUSED,
)
the_watermark = ObjectOf(
    WatermarkStrategy, "made by sparkawait.WatermarkStrategy", ErrorKind.WATERMARK_INVALID
)
