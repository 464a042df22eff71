# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Checks what options mean together and for the function, and makes a `Plan` of them.

Runs where the user calls, on the driver; a wrong value is named with the rule that it breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import pyarrow as pa

from sparkawait._callables import check_plain
from sparkawait._checks import Bytes, columns, is_expression, named, refuse, shown, warn_once
from sparkawait._option import refuse_unknown
from sparkawait._plan.called import (
    Bounds,
    Facts,
    asked_calls,
    bounds,
    check_no_rules,
    check_picklable,
    declared_schema,
    held,
    identity_of,
    may_return_several,
    rows_in_calls,
    to_function,
    why_not_repeated,
)
from sparkawait._plan.journal import journal_of
from sparkawait._plan.plan import (
    HERE,
    FunctionGroup,
    Mode,
    Place,
    Plan,
    Results,
    group_name,
    joined,
    limits_of,
    numbered,
)
from sparkawait._values.results import NOTHING
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunction, NativeFunction
from sparkawait.limits import Adaptive, Channel, Credits
from sparkawait.options import (
    NONE_GIVEN,
    OPTIONS,
    FunctionWithOptions,
    WaitOptions,
    of_call,
    with_own_options,
)
from sparkawait.outcomes import CALL_TYPE, Tuning
from sparkawait.rate_limit import PerJob
from sparkawait.retry import AsyncRetryStrategy

__all__ = ["Around", "Call", "plan_of", "resolve", "resolve_unpickled", "what_is_called"]

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
    return resolve_unpickled(mode, function, travels=True, **given)


def resolve_unpickled(
    mode: str,
    function: object,
    *,
    input_schema: pa.Schema | None,
    place: Place = HERE,
    key: object = None,
    hidden: Sequence[str] = (),
    keeps_input: bool = True,
    results: Results = "rows",
    taken: Collection[str] = (),
    options: object = None,
    travels: bool = False,
    **given: Any,
) -> Plan:
    """Checks `function` and the options and returns them as a plan for this process.

    Args:
        mode: ``"ordered"``, ``"unordered"`` or ``"key_ordered"``.
        function: What the user gave; a list of several is called for each row side by side.
        input_schema: Schema of the input, or ``None`` when it is known only later.
        place: Where its tasks run.
        key: The columns of the key, in the key-ordered mode.
        hidden: Names of columns, the last of the input, that options were computed into.
        keeps_input: Whether the columns of the input are those of the output, too.
        results: What a row has of the function.
        taken: What other operators of the task are called.
        options: A set of options.
        travels: Whether the plan is pickled, and copies of its functions are called.
        **given: The options that were given besides, which win.

    Raises:
        ConfigurationError: If anything is wrong.
    """
    if mode not in _MODES:
        refuse(f"`mode` must be one of {_MODES}, got {shown(mode)}")
    called, checked = what_is_called(function, of_call(options, given))
    around = Around(
        mode=mode,
        place=place,
        input_schema=input_schema,
        key=key_of(mode, key),
        hidden=tuple(hidden),
        keeps_input=keeps_input,
        results=results,
        travels=travels,
        taken=set(taken),
    )
    return resolved(called, checked, around)


def resolved(function: object, options: WaitOptions, around: Around) -> Plan:
    """Returns the plan of a call of a function, or of several, that have no options of their own.

    Raises:
        ConfigurationError: If anything is wrong, functions that cannot be pickled included if the
            plan travels.
    """
    if isinstance(function, (list, tuple)):
        plan = _side_by_side(cast("Sequence[object]", function), options, around)
    else:
        plan = plan_of(Call.of(function, options, around.results), around)
    if around.travels:
        check_picklable(plan, plan.function_name)
    return plan


def key_of(mode: str, key: object) -> tuple[str, ...] | None:
    """Returns the columns of the key, in the key-ordered mode.

    Raises:
        ConfigurationError: If there is one in another mode, or it is not a list of columns.
    """
    if mode == "key_ordered":
        return named(columns(key, "key"), "key")
    if key is not None:
        refuse_unknown("key", (), "it belongs to key_ordered_wait")
    return None


def what_is_called(function: object, options: WaitOptions) -> tuple[object, WaitOptions]:
    """Returns a function without the options that it has for itself, and all options of its call.

    Args:
        function: What the user gave.
        options: The options of the call, which win.
    """
    function = with_own_options(function)
    if isinstance(function, FunctionWithOptions):
        return function.function, options.over(function.options)
    return function, options


@dataclass(frozen=True)
class Call:
    """A function and its options, which go together: what is known before there is an input.

    Attributes:
        function: What is called for every row.
        facts: What it says of itself.
        options: The options, checked.
        declared_schema: The columns that it returns, as it declared them.
    """

    function: AsyncFunction | NativeFunction
    facts: Facts
    options: WaitOptions
    declared_schema: pa.Schema

    @classmethod
    def of(cls, function: object, options: WaitOptions, results: Results = "rows") -> Call:
        """Returns a checked call of `function`.

        Raises:
            ConfigurationError: If it is not a function, or the options do not go with it.
        """
        called, facts = to_function(function)
        _check_together(options, called, facts)
        _check_named(options)
        is_read = results != "none"
        schema = declared_schema(called, facts, options.schema) if is_read else NOTHING
        return cls(called, facts, options, schema)


@dataclass(frozen=True)
class Around:
    """What a plan is made of beside a call; the attributes are those of `resolve_unpickled`.

    Attributes:
        least_rows: Rows that the operator holds at least, as a branch of another one.
    """

    mode: str
    place: Place = HERE
    input_schema: pa.Schema | None = None
    key: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    keeps_input: bool = True
    results: Results = "rows"
    travels: bool = False
    taken: set[str] = field(default_factory=set[str])
    least_rows: int = 0

    def name(self, function: str) -> str:
        """Returns what an operator is called: its function's name, numbered if that is taken."""
        return numbered(function, self.taken)


def plan_of(call: Call, around: Around, name: str = "") -> Plan:
    """Returns the plan of a call, which other operators of the task know by `name`.

    Raises:
        ConfigurationError: If it does not go with where it is made, or with the input.
    """
    function, facts, options = call.function, call.facts, call.options
    bound = bounds(around.mode, options, facts)
    calls = _calls(call, bound.calls)
    rows = bound.rows if facts.batch is not None else max(bound.rows, around.least_rows)
    route = _route(options, function)
    name = name or around.name(function.name)
    identity = "" if options.cache is None else identity_of(function, travels=around.travels)
    schema = around.place.columns(call.declared_schema, function)
    journal = None
    if options.journal is not None:
        if around.least_rows:
            _refuse_journal_of_several(name)
        journal = journal_of(
            options.journal,
            function,
            schema,
            hidden=around.hidden,
            is_one=around.results == "one",
        )
    plan = Plan(
        mode=cast("Mode", around.mode),
        function=function,
        declared_schema=schema,
        options=options,
        capacity=rows,
        capacity_bytes=bound.bytes,
        growth=bound.growth,
        max_concurrency=calls,
        facts=replace(facts, schema=None),
        not_repeated=why_not_repeated(function, facts, options),
        key=around.key,
        hidden=around.hidden,
        keeps_input=around.keeps_input,
        identity=identity,
        route=route,
        credits=None if route is None else _credits(call, rows, calls, bound.calls),
        case_sensitive=around.place.is_case_sensitive,
        name=name,
        sharing=around.place.sharing(name, limits_of(options)),
        zones=around.place.zones,
        results=around.results,
        is_input_known=around.input_schema is not None,
        journal=journal,
    )
    if options.carry_over is not None:
        check_no_rules(
            plan.operators, "carry_over", "give the columns as a text, and check what comes out"
        )
    _check_on_timeout(plan)
    for limit in options.rate_limit.known:
        plan.result_cost(limit)
    _check_input(plan, around)
    _tell_of_threads(plan, around.place)
    return plan


def _check_input(plan: Plan, around: Around) -> None:
    if around.input_schema is None:
        plan.check_names()
    else:
        plan.check_input(around.input_schema)


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
    facts.check_linger(timeout)
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


def _calls(call: Call, max_concurrency: int) -> int:
    """Returns the calls there may be: what a function cannot have on its way is not started.

    Warns where they are fewer than the user has asked for.
    """
    function = call.function
    if not isinstance(function, NativeFunction):
        # How many tasks there are is known elsewhere, see `_tell_of_threads`.
        return min(call.facts.threads or max_concurrency, max_concurrency)
    most = function.concurrency
    if most is None:
        return max_concurrency
    asked = asked_calls(call.options)
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


def _tell_of_threads(plan: Plan, place: Place) -> None:
    """Warns where a plain function has fewer threads than calls were asked for."""
    threads = plan.threads
    if threads is None:
        return
    asked = asked_calls(plan.options)
    if asked is not None and threads < asked:
        together, at_once = "", place.tasks
        if at_once is None:
            together = ", as many times that as tasks run at once"
        elif at_once > 1:
            together = f", {threads * at_once} in the {at_once} tasks that run at once"
        warn_once(
            "`max_concurrency` is %d, but `%s` is a plain function, which is called in at most"
            " %d threads of a task%s; say sparkawait.async_function(%s, threads=%d), ask for"
            " fewer calls, or write it as an `async def`",
            asked,
            plan.function.name,
            threads,
            together,
            plan.function.name.rsplit(".", 1)[-1],
            asked,
        )


def _check_adaptive(calls: int | Adaptive | PerJob | None, max_per_channel: int) -> None:
    if isinstance(calls, Adaptive) and max(calls.min, calls.initial or 0) > max_per_channel:
        refuse(
            "`min` and `initial` of Adaptive are calls of each channel and must not be above"
            f" `max_per_channel`, which is {max_per_channel}, got {calls.min} and {calls.initial};"
            " set `max_per_channel`, or how many channels there are, with sparkawait.Channel",
            _CHANNELS,
        )


def _credits(call: Call, capacity: int, calls: int, wanted: int) -> Credits:
    """Returns what channels have of the rows that are in calls; `wanted` were asked for."""
    function, options, batch = call.function, call.options, call.facts.batch
    rows = rows_in_calls(call, capacity, calls)
    try:
        found = (options.channel or Channel()).resolve(rows, capacity)
    except ConfigurationError as error:
        if batch is not None or calls == wanted:
            raise
        name = function.concurrency_option if isinstance(function, NativeFunction) else "threads"
        msg = f"{error}; `{function.name}` has no more calls than that on their way; raise `{name}`"
        raise ConfigurationError(msg, _CHANNELS) from None
    _check_adaptive(options.max_concurrency, found.max_per_channel)
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


# -- several functions for each row, side by side: one call, and a branch of it for each function


def _side_by_side(functions: Sequence[object], options: WaitOptions, around: Around) -> Plan:
    """Returns the plan of a call of several functions for each row.

    Options of the call that are of one function are those of each that has no other.

    Raises:
        ConfigurationError: If a function, or an option of it, is wrong.
    """
    if not functions:
        refuse("`function` must be a function or a list of them, got []")
    given = options.given
    for name in ("schema", "on_timeout"):
        if given.get(name) is not None:
            refuse(f"`{name}` is of one function; give it by with_options({name}=..)")
    of_rows = {name: it for name, it in given.items() if not OPTIONS[name].of_function}
    shared: dict[str, Any] = {name: it for name, it in given.items() if name not in of_rows}
    # What is theirs of it; batches are put together where the branches meet.
    tuning = options.tuning
    shared["tuning"] = Tuning(
        max_bytes=tuning.max_bytes, target_latency=tuning.target_latency, warm_up=False
    )
    capacity = None if isinstance(options.capacity, Bytes) else options.capacity
    if capacity is not None:
        shared["capacity"] = capacity
    of_all = WaitOptions(**shared)
    called = [_branch_call(function, of_all) for function in functions]
    if capacity is None:
        bound = held(around.mode, options, [(_most_calls(it), it.facts) for it in called])
    else:
        bound = Bounds(capacity, capacity)
    most = bound.rows if bound.growth is None else bound.growth.rows
    # A row that a branch tries again holds no other up. The input is checked for all at once.
    of_branches = replace(
        around,
        mode="unordered",
        input_schema=None,
        key=None,
        keeps_input=False,
        least_rows=most,
    )
    own_names: set[str] = set()
    names = [numbered(it.function.name, own_names) for it in called]
    name = around.name(group_name(names))
    branches = [
        plan_of(it, of_branches, around.name(each)) for it, each in zip(called, names, strict=True)
    ]
    _check_told(branches)
    schema = joined(branches)
    plan = Plan(
        mode=cast("Mode", around.mode),
        function=FunctionGroup(tuple(names), schema),
        declared_schema=schema,
        # The calls have timeouts, each its own.
        options=WaitOptions(**of_rows, timeout=None),
        capacity=bound.rows,
        max_concurrency=most,
        capacity_bytes=bound.bytes,
        growth=bound.growth,
        key=around.key,
        hidden=around.hidden,
        case_sensitive=around.place.is_case_sensitive,
        name=name,
        is_input_known=around.input_schema is not None,
        branches=tuple(branches),
    )
    if options.carry_over is not None:
        check_carries_one(plan)
    _check_input(plan, around)
    return plan


def _refuse_journal_of_several(name: str) -> NoReturn:
    refuse(
        f"`journal` keeps results of one function a call, got it for `{name}` beside others; call"
        " it alone, before or after them"
    )


def _branch_call(function: object, of_all: WaitOptions) -> Call:
    """Returns one of several calls, with the options that its function has.

    Raises:
        ConfigurationError: If they are wrong, or it may have several results.
    """
    own = NONE_GIVEN
    if isinstance(function, FunctionWithOptions):
        function, own = function.function, function.options
    if isinstance(function, (list, tuple)):
        refuse("`function` must be a function or a list of them, got a list in a list")
    call = Call.of(function, own.over(of_all))
    if may_return_several(call.function, call.facts, own.schema):
        refuse(
            f"`{call.function.name}` may return several rows for a row, and cannot be called beside"
            " other functions; call it alone, before or after them"
        )
    return call


def _most_calls(call: Call) -> int:
    """Returns the calls that a branch has at a time."""
    bound = bounds("unordered", call.options, call.facts)
    return _calls(call, bound.calls)


def _check_told(branches: Sequence[Plan]) -> None:
    """Checks that failures and calls of two functions are not told in one column."""
    taken: dict[str, str] = {}
    for branch in branches:
        for it in branch.told_fields:
            column = it.name
            if column in taken:
                is_info = it.type == CALL_TYPE
                both = "tell of calls" if is_info else "capture failures"
                own = "info='..'" if is_info else "sparkawait.OnError('capture', column='..')"
                refuse(
                    f"`{taken[column]}` and `{branch.function_name}` both {both} in column"
                    f" `{column}`; give each one of its own, with_options({own})",
                    ErrorKind.COLUMN_CLASH,
                )
            taken[column] = branch.function_name


def check_carries_one(plan: Plan) -> None:
    """Checks that a call whose rows outlive their micro-batch is one of one function.

    Raises:
        ConfigurationError: If it is one of several.
    """
    if plan.branches:
        refuse(
            f"`carry_over` keeps rows of one function a call, got {plan.function_name}; call them"
            " one after the other, with chain=True on the output of the first"
        )
