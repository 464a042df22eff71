# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Checks every argument of the wait functions, before anything starts.

Runs where the user calls, on the driver; a wrong value is named with the rule that it breaks.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn, TypedDict, cast

import pyarrow as pa

from sparkawait._plan.checks import flag, shown
from sparkawait._plan.function_checks import check_picklable, declared_schema, to_function
from sparkawait._plan.identity import identity_of
from sparkawait._plan.plan import ERROR_COLUMN, OnError, Output, Plan
from sparkawait._plan.signatures import misfit_of
from sparkawait.cache import Cache
from sparkawait.channels import Channels, Credits, Route
from sparkawait.durations import Duration, parse_duration, positive_duration
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunction, describe, is_async
from sparkawait.native_function import NativeFunction
from sparkawait.retry import AsyncRetryStrategy
from sparkawait.sizes import Size, parse_size
from sparkawait.types import SchemaLike
from sparkawait.watermark import WatermarkStrategy

__all__ = ["Options", "Plan", "resolve", "resolve_unpickled"]


class Options(TypedDict, total=False):
    """The keyword arguments that the wait functions share."""

    schema: SchemaLike
    timeout: Duration | None
    attempt_timeout: Duration | None
    capacity: int
    max_concurrency: int | None
    retry: AsyncRetryStrategy | None
    on_error: OnError
    error_column: str
    on_timeout: Any
    output: Output
    watermark: WatermarkStrategy | None
    buffer_timeout: Duration | None
    max_rows_per_batch: int
    max_bytes_per_batch: Size
    cache: Cache | None
    channel: Any
    channels: Channels | None
    target_latency: Duration | None
    setup_timeout: Duration | None
    blocked_loop_timeout: Duration | None
    warm_up: bool


_DEFAULTS: dict[str, Any] = {
    "schema": None,
    "timeout": "60s",
    "attempt_timeout": None,
    "capacity": 100,
    "max_concurrency": None,
    "retry": None,
    "on_error": "fail",
    "error_column": ERROR_COLUMN,
    "on_timeout": None,
    "output": "append",
    "watermark": None,
    "buffer_timeout": "auto",
    "max_rows_per_batch": 8192,
    "max_bytes_per_batch": "64 MB",
    "cache": None,
    "channel": None,
    "channels": None,
    "target_latency": None,
    "setup_timeout": None,
    "blocked_loop_timeout": None,
    "warm_up": True,
}
_CHANNELS = ErrorKind.CHANNELS_INVALID
_MODES = ("ordered", "unordered", "key_ordered")
_MAX_COUNT = 2**31 - 1  # capacity, batch length and the offsets of columns are 32-bit


def resolve(
    mode: str,
    function: object,
    *,
    input_schema: pa.Schema | None,
    **options: Any,
) -> Plan:
    """Checks `function` and `options` and returns them as a plan for the executors.

    Args:
        mode: ``"ordered"``, ``"unordered"`` or ``"key_ordered"``.
        function: What the user gave.
        input_schema: Schema of the input, or ``None`` when it is known only later.
        **options: As `Options`, and ``key`` in the key-ordered mode.

    Raises:
        ConfigurationError: If anything is wrong, unpicklable functions included.
    """
    plan = resolve_unpickled(mode, function, input_schema=input_schema, **options)
    check_picklable(plan, plan.function_name)
    if plan.cache is None:
        return plan
    return replace(plan, identity=identity_of(plan.function, travels=True))


def resolve_unpickled(
    mode: str,
    function: object,
    *,
    input_schema: pa.Schema | None,
    **options: Any,
) -> Plan:
    """Does what `resolve` does for a plan that stays in this process."""
    if mode not in _MODES:
        _refuse(f"`mode` must be one of {_MODES}, got {shown(mode)}")
    given = _with_defaults(mode, options)
    checked_function = to_function(function)
    capacity = _count(given["capacity"], "capacity", ErrorKind.CAPACITY_NOT_POSITIVE)
    max_concurrency = _max_concurrency(given["max_concurrency"], capacity)
    calls = _calls(checked_function, max_concurrency)
    timeout = _timeout(given["timeout"], "timeout")
    route = _route(given["channel"], given["channels"], checked_function)
    plan = Plan(
        mode=mode,
        function=checked_function,
        declared_schema=declared_schema(checked_function, given["schema"]),
        timeout=timeout,
        attempt_timeout=_attempt_timeout(given["attempt_timeout"], timeout),
        capacity=capacity,
        max_concurrency=calls,
        retry=_retry(given["retry"], timeout, checked_function),
        on_error=_one_of(given["on_error"], "on_error", ("fail", "null", "drop", "capture")),
        on_timeout=given["on_timeout"],
        output=_one_of(given["output"], "output", ("append", "replace")),
        watermark=_watermark(given["watermark"]),
        buffer_timeout=_buffer_timeout(given["buffer_timeout"]),
        max_rows_per_batch=_count(given["max_rows_per_batch"], "max_rows_per_batch"),
        max_bytes_per_batch=parse_size(
            given["max_bytes_per_batch"], "max_bytes_per_batch", most=_MAX_COUNT
        ),
        key=_key(given["key"]) if mode == "key_ordered" else None,
        cache=_cache(given["cache"], checked_function),
        identity="" if given["cache"] is None else identity_of(checked_function, travels=False),
        route=route,
        credits=_credits(given["channels"], route, checked_function, max_concurrency, capacity),
        target_latency=_timeout(given["target_latency"], "target_latency"),
        setup_timeout=_loop_timeout(given, "setup_timeout", checked_function),
        blocked_loop_timeout=_loop_timeout(given, "blocked_loop_timeout", checked_function),
        warm_up=flag(given["warm_up"], "warm_up"),
        error_column=_error_column(given["error_column"], given["on_error"]),
    )
    plan.check_names()
    _check_on_timeout(plan)
    if input_schema is not None:
        plan.check_input(input_schema)
    return plan


def _with_defaults(mode: str, options: dict[str, Any]) -> dict[str, Any]:
    known = {**_DEFAULTS, "key": None} if mode == "key_ordered" else _DEFAULTS
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
            if name == "key":
                hint = "it belongs to key_ordered_wait"
            _refuse(f"unknown option `{name}`; {hint}", ErrorKind.OPTION_UNKNOWN)
    return {**known, **options}


def _count(value: object, name: str, kind: ErrorKind = ErrorKind.OPTION_INVALID) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse(f"`{name}` must be an int, got {shown(value)}", kind)
    if value < 1:
        _refuse(f"`{name}` must be at least 1, got {shown(value)}", kind)
    if value > _MAX_COUNT:
        _refuse(f"`{name}` must be at most {_MAX_COUNT}, got {shown(value)}", kind)
    return value


def _timeout(value: object, name: str) -> float | None:
    return None if value is None else positive_duration(value, name, hint="None sets no bound")


def _loop_timeout(
    given: dict[str, Any], name: str, function: AsyncFunction | NativeFunction
) -> float | None:
    seconds = _timeout(given[name], name)
    if seconds is not None and isinstance(function, NativeFunction):
        _refuse(f"`{name}` cannot be used with a native function, which runs on no event loop")
    return seconds


def _attempt_timeout(value: object, timeout: float | None) -> float | None:
    seconds = _timeout(value, "attempt_timeout")
    if seconds is not None and timeout is not None and seconds > timeout:
        _refuse(
            f"`attempt_timeout` must not be above `timeout`, got {seconds:g} s and {timeout:g} s",
            ErrorKind.ATTEMPT_TIMEOUT_TOO_LONG,
        )
    return seconds


def _max_concurrency(value: object, capacity: int) -> int:
    if value is None:
        return capacity
    kind = ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE
    concurrency = _count(value, "max_concurrency", kind)
    if concurrency > capacity:
        _refuse(
            f"`max_concurrency` must not be above `capacity`, got {concurrency} and {capacity};"
            " a call in flight takes a slot",
            kind,
        )
    return concurrency


def _retry(
    value: object, timeout: float | None, function: AsyncFunction | NativeFunction
) -> AsyncRetryStrategy | None:
    if value is None:
        return None
    if not isinstance(value, AsyncRetryStrategy):
        _refuse(
            f"`retry` must be made by sparkawait.retry, got `{type(value).__name__}`",
            ErrorKind.RETRY_INVALID,
        )
    if timeout is None:
        _refuse("`retry` needs a `timeout`, got None", ErrorKind.RETRY_NEEDS_TIMEOUT)
    has_predicate = value.if_result is not None or value.if_exception is not None
    if has_predicate and isinstance(function, NativeFunction):
        _refuse(
            "`if_result` and `if_exception` cannot be used with a native function",
            ErrorKind.RETRY_INVALID,
        )
    return value


def _one_of(value: object, name: str, allowed: Sequence[str]) -> Any:
    if not isinstance(value, str) or value not in allowed:
        _refuse(f"`{name}` must be one of {', '.join(map(repr, allowed))}, got {shown(value)}")
    return value


def _error_column(value: object, on_error: object) -> str:
    if not isinstance(value, str) or not value:
        _refuse(f"`error_column` must be a name that is not empty, got {shown(value)}")
    if value != ERROR_COLUMN and on_error != "capture":
        _refuse(f"`error_column` needs on_error='capture', got {shown(on_error)}")
    return value


def _watermark(value: object) -> WatermarkStrategy | None:
    if value is not None and not isinstance(value, WatermarkStrategy):
        _refuse(
            "`watermark` must be made by sparkawait.WatermarkStrategy,"
            f" got `{type(value).__name__}`",
            ErrorKind.WATERMARK_INVALID,
        )
    return value


def _buffer_timeout(value: object) -> float | Literal["auto"] | None:
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    try:
        return parse_duration(value, "buffer_timeout")
    except ConfigurationError as error:
        msg = f"{error}; or 'auto', or None for full batches only"
        raise ConfigurationError(msg, error.kind) from None


def _cache(value: object, function: AsyncFunction | NativeFunction) -> Cache | None:
    if value is None:
        return None
    if not isinstance(value, Cache):
        _refuse(
            f"`cache` must be a sparkawait.Cache, got `{type(value).__name__}`",
            ErrorKind.CACHE_INVALID,
        )
    if not value.key and not (isinstance(function, NativeFunction) and function.input_columns):
        _refuse(
            f"`cache` needs the columns that the result of `{function.name}` depends on;"
            " write Cache(.., key=[..])",
            ErrorKind.CACHE_INVALID,
        )
    return value


def _key(value: object) -> tuple[str, ...]:
    return _columns(value, "key")


def _columns(
    value: object, name: str, kind: ErrorKind = ErrorKind.OPTION_INVALID
) -> tuple[str, ...]:
    columns = cast("Sequence[object]", [value] if isinstance(value, str) else value)
    if (
        not isinstance(columns, (list, tuple))
        or not columns
        or not all(isinstance(column, str) for column in columns)
    ):
        _refuse(f"`{name}` must be a column name or a list of them, got {shown(value)}", kind)
    return tuple(cast("Sequence[str]", columns))


def _route(
    channel: object, channels: object, function: AsyncFunction | NativeFunction
) -> Route | None:
    if channel is None and channels is not None:
        is_native = isinstance(function, NativeFunction)
        columns = function.channel_columns if is_native else ()
        if not columns and not (is_native and function.finds_channels):
            _refuse("`channels` needs `channel`, the column of the destination", _CHANNELS)
        return Route(tuple(dict.fromkeys(columns)))
    if channel is None or isinstance(channel, Route):
        return channel
    return Route(_columns(channel, "channel", _CHANNELS))


def _calls(function: AsyncFunction | NativeFunction, max_concurrency: int) -> int:
    """Returns the calls there may be: what a function cannot have on its way is not started."""
    most = function.concurrency if isinstance(function, NativeFunction) else None
    return max_concurrency if most is None else min(most, max_concurrency)


def _credits(
    channels: object,
    route: Route | None,
    function: AsyncFunction | NativeFunction,
    max_concurrency: int,
    capacity: int,
) -> Credits | None:
    if channels is not None and not isinstance(channels, Channels):
        found = type(channels).__name__
        _refuse(f"`channels` must be a sparkawait.Channels, got `{found}`", _CHANNELS)
    if route is None:
        return None
    if isinstance(function, AsyncFunction) and function.batch is not None:
        # Rows that are in one call together have a credit each.
        return (channels or Channels()).resolve(capacity, capacity)
    calls = _calls(function, max_concurrency)
    try:
        return (channels or Channels()).resolve(calls, capacity)
    except ConfigurationError as error:
        if calls == max_concurrency:
            raise
        why = f"`{function.name}` has no more calls than that on their way; raise `connections`"
        msg = f"{error}; {why}"
        raise ConfigurationError(msg, _CHANNELS) from None


def _check_on_timeout(plan: Plan) -> None:
    fallback = plan.on_timeout
    if fallback is None:
        return
    if isinstance(plan.function, NativeFunction):
        _refuse("`on_timeout` cannot be used with a native function", ErrorKind.FALLBACK_INVALID)
    if plan.timeout is None:
        _refuse("`on_timeout` needs a `timeout`, got None", ErrorKind.FALLBACK_INVALID)
    if callable(fallback):
        if is_async(fallback):
            _refuse(
                f"`on_timeout` must be a plain function, which returns at once,"
                f" got `{describe(fallback)}`",
                ErrorKind.FALLBACK_INVALID,
            )
        misfit = misfit_of(fallback, describe(fallback), ["row"])
        if misfit is not None:
            _refuse(f"`on_timeout` does not fit: {misfit}", ErrorKind.FALLBACK_INVALID)
        return
    built = plan.result_builder().build([None], [fallback])
    for _, error in built.failures:
        msg = f"`on_timeout` does not fit the schema: {error}"
        raise ConfigurationError(msg, ErrorKind.FALLBACK_INVALID) from error


def _refuse(message: str, kind: ErrorKind = ErrorKind.OPTION_INVALID) -> NoReturn:
    raise ConfigurationError(message, kind)
