# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Checks what options mean together and for the function, and makes a `Plan` of them.

Runs where the user calls, on the driver; a wrong value is named with the rule that it breaks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

import pyarrow as pa

from sparkawait._plan.callables import check_plain
from sparkawait._plan.capacity import asked_calls, bounds
from sparkawait._plan.chain import check_no_rules, side_by_side
from sparkawait._plan.checks import refuse, shown, warn_once
from sparkawait._plan.facts import Facts
from sparkawait._plan.function_checks import (
    check_picklable,
    declared_schema,
    identity_of,
    to_function,
    why_not_repeated,
)
from sparkawait._plan.option import refuse_unknown
from sparkawait._plan.plan import Plan
from sparkawait._policies import Adaptive
from sparkawait._quantities import columns, is_expression, named
from sparkawait.channels import Channel, Credits
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.function_options import FunctionWithOptions, with_own_options
from sparkawait.functions import AsyncFunction
from sparkawait.native_function import NativeFunction
from sparkawait.retry import AsyncRetryStrategy
from sparkawait.wait_options import WaitOptions

__all__ = ["Plan", "all_given", "resolve", "resolve_unpickled", "tell_of_threads"]

_CHANNELS = ErrorKind.CHANNELS_INVALID
_MODES = ("ordered", "unordered", "key_ordered")


def resolve(
    mode: str,
    function: object,
    **given: Any,
) -> Plan:
    """Does what `resolve_unpickled` does for a plan that travels to the executors.

    Raises:
        ConfigurationError: If anything is wrong, unpicklable functions included.
    """
    plan = resolve_unpickled(mode, function, travels=True, **given)
    check_picklable(plan, plan.function_name)
    return plan


def resolve_unpickled(
    mode: str,
    function: object,
    *,
    input_schema: pa.Schema | None,
    key: object = None,
    hidden: Sequence[str] = (),
    keeps_input: bool = True,
    options: object = None,
    travels: bool = False,
    **given: Any,
) -> Plan:
    """Checks `function` and the options and returns them as a plan for this process.

    Args:
        mode: ``"ordered"``, ``"unordered"`` or ``"key_ordered"``.
        function: What the user gave; a list of several is called for each row side by side.
        input_schema: Schema of the input, or ``None`` when it is known only later.
        key: The columns of the key, in the key-ordered mode.
        hidden: Names of columns, the last of the input, that options were computed into.
        keeps_input: Whether the columns of the input are those of the output, too.
        options: A set of options.
        travels: Whether the plan is pickled, and copies of its functions are called.
        **given: The options that were given besides, which win.

    Raises:
        ConfigurationError: If anything is wrong.
    """
    if mode not in _MODES:
        refuse(f"`mode` must be one of {_MODES}, got {shown(mode)}")
    given, function = all_given(options, given), with_own_options(function)
    if isinstance(function, FunctionWithOptions):
        function, given = function.function, {**function.options.given, **given}
    checked = WaitOptions(**given)
    if key is not None and mode != "key_ordered":
        refuse_unknown("key", (), "it belongs to key_ordered_wait")
    named_key = named(columns(key, "key"), "key") if mode == "key_ordered" else None
    if isinstance(function, (list, tuple)):
        plan = side_by_side(
            mode,
            cast("Sequence[object]", function),
            checked,
            functools.partial(resolve_unpickled, input_schema=input_schema, travels=travels),
            key=named_key,
            hidden=tuple(hidden),
        )
        plan.check_names()
        if input_schema is not None:
            plan.check_input(input_schema)
        return plan
    checked_function, facts = to_function(function)
    _check_together(checked, checked_function, facts)
    _check_named(checked)
    bound = bounds(mode, checked, facts)
    plan = Plan(
        mode=mode,
        function=checked_function,
        declared_schema=declared_schema(checked_function, facts, checked.schema),
        options=checked,
        capacity=bound.rows,
        capacity_bytes=bound.bytes,
        growth=bound.growth,
        max_concurrency=_calls(checked_function, facts, bound.calls, asked_calls(checked)),
        facts=replace(facts, schema=None),
        not_repeated=why_not_repeated(checked_function, facts, checked),
        key=named_key,
        hidden=tuple(hidden),
        keeps_input=keeps_input,
        identity="" if checked.cache is None else identity_of(checked_function, travels=travels),
        route=_route(checked, checked_function),
    )
    if plan.route is not None:
        plan = replace(plan, credits=_credits(plan, bound.calls))
    plan.check_names()
    if checked.carry_over is not None:
        check_no_rules(plan, "carry_over", "give the columns as a text, and check what comes out")
    _check_on_timeout(plan)
    for limit in checked.rate_limit.known:
        plan.result_cost(limit)
    if input_schema is not None:
        plan.check_input(input_schema)
    return plan


def all_given(options: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a set; those that were given besides win over them.

    Raises:
        ConfigurationError: If `options` is not a set.
    """
    if options is None:
        return dict(given)
    if not isinstance(options, WaitOptions):
        refuse(f"`options` must be a sparkawait.WaitOptions, got `{type(options).__name__}`")
    return {**options.given, **given}


def _check_together(
    options: WaitOptions, function: AsyncFunction | NativeFunction, facts: Facts
) -> None:
    """Checks what depends on several options, or on the function."""
    timeout, attempt_timeout = options.timeout, options.attempt_timeout
    if timeout is not None and attempt_timeout is not None and attempt_timeout > timeout:
        refuse(
            "`attempt_timeout` must not be above `timeout`,"
            f" got {attempt_timeout:g} s and {timeout:g} s",
            ErrorKind.ATTEMPT_TIMEOUT_TOO_LONG,
        )
    is_native = isinstance(function, NativeFunction)
    if options.retry is not None and not options.retry.only_refused:
        _check_retry(options.retry, timeout, is_native=is_native)
    batch = facts.batch
    if batch is not None and batch.arrow and options.retry is not None and options.retry.if_result:
        refuse(
            "`if_result` looks at rows, which a function of record batches does not return; raise"
            " an exception in it for `if_exception`",
            ErrorKind.RETRY_INVALID,
        )
    hedges = function.hedges if isinstance(function, NativeFunction) else facts.idempotent
    if options.hedge is not None and not hedges:
        _refuse_hedge(function)
    if options.cache is not None and not options.cache.key:
        _check_cache(function)


def _check_named(options: WaitOptions) -> None:
    """Checks that no column is left to be computed."""
    if options.cache is not None:
        named(options.cache.columns, "key", ErrorKind.CACHE_INVALID)
    for limit in options.rate_limit.known:
        if is_expression(limit.cost):
            named([limit.cost], "cost", ErrorKind.RATE_LIMIT_INVALID)
    if options.watermark is not None:
        named([options.watermark.column], "watermark", ErrorKind.WATERMARK_INVALID)


def _refuse_hedge(function: AsyncFunction | NativeFunction) -> NoReturn:
    if isinstance(function, NativeFunction) and function.idempotent:
        way_out = "its key is one of a request of many rows, so leave `batch` out or `hedge`"
    elif isinstance(function, NativeFunction):
        way_out = f"{function.idempotent_by}" if function.idempotent_by else "leave `hedge` out"
    else:
        way_out = "where that does no harm say idempotent=True, or set `idempotent` of its class"
    refuse(f"`hedge` calls `{function.name}` twice for some rows; {way_out}")


def _check_retry(retry: AsyncRetryStrategy, timeout: float | None, *, is_native: bool) -> None:
    if timeout is None:
        refuse("`retry` needs a `timeout`, got None", ErrorKind.RETRY_NEEDS_TIMEOUT)
    if is_native and (retry.if_result is not None or retry.if_exception is not None):
        refuse(
            "`if_result` and `if_exception` cannot be used with a native function",
            ErrorKind.RETRY_INVALID,
        )


def _check_cache(function: AsyncFunction | NativeFunction) -> None:
    if not (isinstance(function, NativeFunction) and function.input_columns):
        refuse(
            f"`cache` needs the columns that the result of `{function.name}` depends on;"
            " write Cache(.., key=[..])",
            ErrorKind.CACHE_INVALID,
        )


def _route(
    options: WaitOptions, function: AsyncFunction | NativeFunction
) -> tuple[str, ...] | None:
    """Returns the columns of a row's channel; none if a native function knows it."""
    channel = options.channel
    if channel is None:
        return None
    if channel.by:
        return named(channel.by, "channel", _CHANNELS)
    is_native = isinstance(function, NativeFunction)
    found = function.channel_columns if is_native else ()
    if not found and not (is_native and function.finds_channels):
        refuse(
            f"`channel` names no column, and `{function.name}` does not know its destinations;"
            ' name one, as in sparkawait.Channel("tenant", ..)',
            _CHANNELS,
        )
    return tuple(dict.fromkeys(found))


def _calls(
    function: AsyncFunction | NativeFunction,
    facts: Facts,
    max_concurrency: int,
    asked: int | None,
) -> int:
    """Returns the calls there may be: what a function cannot have on its way is not started.

    Warns where they are fewer than the user has `asked` for.
    """
    if not isinstance(function, NativeFunction):
        # How many tasks there are is known elsewhere, see `tell_of_threads`.
        return min(facts.threads or max_concurrency, max_concurrency)
    most = function.concurrency
    if most is None:
        return max_concurrency
    if asked is not None and most < asked:
        warn_once(
            "`max_concurrency` is %d, but `%s` has at most %d calls in flight in a task, as its"
            " `%s` says: raise that, or ask for fewer",
            asked,
            function.name,
            most,
            function.concurrency_option,
        )
    return min(most, max_concurrency)


def tell_of_threads(plan: Plan, tasks: Callable[[], int | None]) -> None:
    """Warns where a plain function has fewer threads than calls were asked for.

    Args:
        plan: The call.
        tasks: Returns how many tasks of it run at once, if that is known.
    """
    for it in plan.operators:
        threads, asked = it.threads, asked_calls(it.options)
        if threads is not None and asked is not None and threads < asked:
            together, at_once = "", tasks()
            if at_once is None:
                together = ", as many times that as tasks run at once"
            elif at_once > 1:
                together = f", {threads * at_once} in the {at_once} tasks that run at once"
            warn_once(
                "`max_concurrency` is %d, but `%s` is a plain function, which is called in at most"
                " %d threads of a task%s; say sparkawait.async_function(%s, threads=%d), ask for"
                " fewer calls, or write it as an `async def`",
                asked,
                it.function.name,
                threads,
                together,
                it.function.name.rsplit(".", 1)[-1],
                asked,
            )


def _check_adaptive(calls: int | Adaptive | None, max_per_channel: int) -> None:
    if isinstance(calls, Adaptive) and max(calls.min, calls.initial or 0) > max_per_channel:
        refuse(
            "`min` and `initial` of Adaptive are calls of each channel and must not be above"
            f" `max_per_channel`, which is {max_per_channel}, got {calls.min} and {calls.initial};"
            " set `max_per_channel`, or how many channels there are, with sparkawait.Channel",
            _CHANNELS,
        )


def _credits(plan: Plan, max_concurrency: int) -> Credits:
    """Returns what channels have of the rows that are in calls; `max_concurrency` was asked for."""
    try:
        found = (plan.options.channel or Channel()).resolve(plan.rows_called, plan.capacity)
    except ConfigurationError as error:
        if plan.batch is not None or plan.max_concurrency == max_concurrency:
            raise
        function = plan.function
        is_native = isinstance(function, NativeFunction)
        way_out = f"raise `{function.concurrency_option if is_native else 'threads'}`"
        msg = f"{error}; `{function.name}` has no more calls than that on their way; {way_out}"
        raise ConfigurationError(msg, _CHANNELS) from None
    _check_adaptive(plan.options.max_concurrency, found.max_per_channel)
    return found


def _check_on_timeout(plan: Plan) -> None:
    fallback = plan.options.on_timeout
    if fallback is None:
        return
    if isinstance(plan.function, NativeFunction):
        refuse("`on_timeout` cannot be used with a native function", ErrorKind.FALLBACK_INVALID)
    if plan.options.timeout is None and plan.options.max_wait is None:
        refuse(
            "`on_timeout` needs a `timeout` or a `max_wait`, got None", ErrorKind.FALLBACK_INVALID
        )
    if callable(fallback):
        check_plain(fallback, "`on_timeout`", ErrorKind.FALLBACK_INVALID)
        return
    built = plan.result_builder().build([None], [fallback])
    for _, error in built.failures:
        msg = f"`on_timeout` does not fit the schema: {error}"
        raise ConfigurationError(msg, ErrorKind.FALLBACK_INVALID) from error
