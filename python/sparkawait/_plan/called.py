# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownArgumentType=false
"""What is called: whether it can be, what it says of itself, and how many calls it comes to.

```text
  partial --> declared --> partial --> declared --> def
     the first of them that says something of a fact says it for all of them
```

A worker has a copy of the function, which may say something else: a function of a module is
imported there, without what the driver has set. So a worker is told, and never asks. Runs where the
user calls, on the driver.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import sys
import uuid
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from sparkawait._callables import (
    check_call,
    is_async,
    layers,
    refuse_context_manager,
    refuse_threads,
)
from sparkawait._checks import MAX_COUNT, Bytes, refuse, warn_once
from sparkawait._schema.classes import returns_list, schema_of
from sparkawait._schema.types import SchemaLike, to_schema
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunction, DeclaredFunction, NativeFunction, declared
from sparkawait.limits import Adaptive, Batch
from sparkawait.options import OF_FUNCTION, WaitOptions
from sparkawait.rate_limit import PerJob

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "UNKNOWN",
    "Bounds",
    "Facts",
    "Growth",
    "asked_calls",
    "bounds",
    "check_no_rules",
    "facts_of",
    "held",
    "is_declared",
    "left_out_of",
    "rows_in_calls",
    "weights_of",
]

_THREADS = 64
"""Calls of a plain function at a time if nothing is said: each needs a thread, whose stack and
whose turns of the interpreter cost more than a coroutine does."""


@dataclass(frozen=True)
class Facts:
    """What is known of a function before it is called.

    Attributes:
        schema: The columns that it declares, if it does.
        batch: How rows are collected, if a call takes many of them.
        idempotent: Whether a call that is made twice does no more than one, if it says so.
        setup_timeout: Seconds that its `open`, and its `close`, may take.
        blocked_loop_timeout: Seconds that its code may block the event loop.
        threads: How many threads of a task call it at most; ``None`` if it needs none.
        has_fallback: Whether it has results of its own for a row that timed out.
    """

    schema: SchemaLike | None = None
    batch: Batch | None = None
    idempotent: bool | None = None
    setup_timeout: float | None = None
    blocked_loop_timeout: float | None = None
    threads: int | None = None
    has_fallback: bool = False

    def check_linger(self, timeout: float | None) -> None:
        """Checks that rows which wait for company have time left for their call.

        Raises:
            ConfigurationError: If they have not.
        """
        if self.batch is None or self.batch.max_rows == 1 or timeout is None:
            return
        linger = self.batch.linger_seconds
        if linger >= timeout:
            refuse(
                f"`linger` of Batch must be below `timeout`, got {linger:g} s and {timeout:g} s:"
                " rows that wait for company would time out before they are called; give the batch"
                " a shorter `linger`, or the call a longer `timeout`",
                ErrorKind.BATCH_INVALID,
            )


UNKNOWN = Facts()
"""Of what stands for several functions, and says nothing of itself."""


def facts_of(function: AsyncFunction | NativeFunction) -> Facts:
    """Returns what `function` says, or what it wraps, through declarations and partials.

    Raises:
        ConfigurationError: If one of them says something that is not allowed.
    """
    if isinstance(function, NativeFunction):
        return Facts(batch=function.batching, idempotent=function.idempotent)
    said: dict[str, Any] = {}
    for layer in layers(function):
        if isinstance(layer, AsyncFunction):
            for fact in _SAID:
                value = getattr(layer, fact)
                if value is not None and fact not in said:
                    option = OF_FUNCTION.get(fact)
                    if option is not None:
                        value = option.check(value, f"{layer.name}.{fact}")
                    said[fact] = value
    called = function.what_is_called(batched="batch" in said)
    threads = said.pop("threads", None)
    if function.threads is not None:
        refuse_threads(called, function.name)
    return Facts(
        **said,
        threads=None if is_async(called) else threads or _THREADS,
        has_fallback=has_fallback(type(function)),
    )


_SAID = ("schema", *OF_FUNCTION)


def has_fallback(kind: type[AsyncFunction]) -> bool:
    """Tells whether a class has a method of its own for rows that timed out, and no constant."""
    own = kind.on_timeout
    return own is not AsyncFunction.on_timeout and callable(own)


def left_out_of(function: object) -> frozenset[str]:
    """Returns the columns of a function that do not leave its task."""
    answers = function.answers if isinstance(function, NativeFunction) else None
    return frozenset() if answers is None else answers.hidden


def weights_of(
    function: object, given: str | Mapping[str, float] | None, name: str
) -> dict[str, float] | None:
    """Returns the columns of a call whose sum, with these weights, is what it has cost.

    Args:
        function: The function.
        given: What the user says of it: a path, or weights by path.
        name: The name of the function, for messages.

    Raises:
        ConfigurationError: If the call does not bring a column.
    """
    if given is None:
        return None
    weights = {given: 1.0} if isinstance(given, str) else given
    if isinstance(function, NativeFunction) and function.answers is not None:
        return function.answers.told(weights, name)
    return {path: float(weight) for path, weight in weights.items()}


def is_declared(function: object) -> bool:
    """Tells whether `function` is a declared one, or a partial of one, or wraps one."""
    return any(isinstance(it, DeclaredFunction) for it in layers(function))


# -- whether what the user gave as function is one, and can be sent where it is called
#
# Runs where the user calls, on the driver.


# -- which functions are the same to a `sparkawait.Cache`, so that they share its results.
#
# Computed once, where the user calls, and carried in the plan to all of its tasks. To be called on
# the driver, from any thread.

_tokens: dict[int, str] = {}
"""Names of objects that live, by their ids."""


def identity_of(function: AsyncFunction | NativeFunction, *, travels: bool) -> str:
    """Names what `function` does.

    A native function is what it was described with. A Python function that travels is what is
    sent: its code with the values that it closes over, or its instance with its attributes. One
    that is called in this process, where calls may change its attributes, is that very object.

    Args:
        function: The function of a plan.
        travels: Whether the plan is pickled, and a copy of the function is called.
    """
    # The pickler of Spark, which resolving a plan for Spark has imported.
    pickler = sys.modules.get("pyspark.cloudpickle")
    if isinstance(function, NativeFunction) or (travels and pickler is not None):
        # Whatever an object, or the provider of a secret, does when it is pickled.
        with suppress(Exception):
            return hashlib.sha256((pickler or pickle).dumps(function)).hexdigest()
    return _name(function)


def _name(function: object) -> str:
    """Names an object as long as it lives; nothing else ever has its name."""
    if isinstance(function, DeclaredFunction):
        # A bare coroutine function is wrapped again for each call.
        return _name(function.function)
    if inspect.ismethod(function):
        # Python makes one each time that it is asked for.
        return f"{_name(function.__self__)}.{_name(function.__func__)}"
    known = _tokens.get(id(function))
    if known is not None:
        return known
    name = uuid.uuid4().hex
    try:
        weakref.finalize(function, _tokens.pop, id(function), None).atexit = False
    except TypeError:
        return name  # It may be gone tomorrow, and its id another's: then it shares nothing.
    return _tokens.setdefault(id(function), name)


def to_function(function: object) -> tuple[AsyncFunction | NativeFunction, Facts]:
    """Returns `function` in a form that can be called, a bare one wrapped, and what it says.

    Raises:
        ConfigurationError: If it is not a function, a class, or lacks a method; or says something
            that is not allowed.
    """
    if isinstance(function, (AsyncFunction, NativeFunction)):
        facts = facts_of(function)
        if isinstance(function, AsyncFunction):
            _check_methods(function, facts)
        return function, facts
    if not callable(function):
        refuse(
            "`function` must be an `async def`, a plain function or an AsyncFunction,"
            f" got `{type(function).__name__}`",
            ErrorKind.FUNCTION_INVALID,
        )
    made = declared(function)
    return made, facts_of(made)


def declared_schema(
    function: AsyncFunction | NativeFunction, facts: Facts, schema: object
) -> pa.Schema:
    """Returns the columns that `function` returns; `schema` overrides its own.

    Raises:
        ConfigurationError: If there is none, or it is not a schema.
    """
    if isinstance(function, NativeFunction):
        if schema is not None:
            refuse("`schema` cannot be given for a native function, which has its own")
        return function.result_schema
    declared = facts.schema if schema is None else schema
    if declared is not None:
        return to_schema(declared)
    annotated = schema_of(_called(function, facts), function.name, batched=facts.batch is not None)
    if annotated is None:
        refuse(
            f"`{function.name}` has no schema; use @async_function('name type, ...'), set its"
            " `schema`, pass schema=, or annotate what it returns with a dataclass or a scalar",
            ErrorKind.SCHEMA_MISSING,
        )
    return to_schema(annotated)


def may_return_several(
    function: AsyncFunction | NativeFunction, facts: Facts, schema: object
) -> bool:
    """Tells whether `function` says that it returns several rows for a row.

    A coroutine does with the annotation of a list, unless a schema says what it returns.
    """
    if isinstance(function, NativeFunction):
        return function.may_have_several_results
    if schema is not None or facts.schema is not None:
        return False
    return returns_list(_called(function, facts), function.name, batched=facts.batch is not None)


def _called(function: AsyncFunction, facts: Facts) -> object:
    return function.what_is_called(batched=facts.batch is not None)


def check_picklable(value: object, name: str) -> None:
    """Tries what Spark will do to send `value`, which holds the function `name`.

    Raises:
        ConfigurationError: If it cannot be pickled.
    """
    # The pickler of Spark, which resolving a plan for Spark has imported.
    pickler = sys.modules.get("pyspark.cloudpickle")
    if pickler is None:
        return
    try:
        pickler.dumps(value)
    except Exception as error:
        msg = (
            f"`{name}` cannot be sent to the executors: {error};"
            " make connections and locks in open(), not before"
        )
        raise ConfigurationError(msg, ErrorKind.FUNCTION_NOT_PICKLABLE) from error


def _check_methods(function: AsyncFunction, facts: Facts) -> None:
    if isinstance(function, DeclaredFunction):
        return  # looked at when it was wrapped
    name = function.name
    if inspect.iscoroutinefunction(function.on_timeout):
        refuse(
            f"`{name}.on_timeout` must be a plain function, which returns at once",
            ErrorKind.FUNCTION_INVALID,
        )
    batch = facts.batch
    method = "async_invoke" if batch is None else "async_invoke_batch"
    bound = getattr(function, method)
    if getattr(bound, "__func__", None) is getattr(AsyncFunction, method):
        other = " (or set `batch` to use async_invoke_batch)" if batch is None else ""
        refuse(f"`{name}` must define `{method}`{other}", ErrorKind.FUNCTION_INVALID)
    if inspect.isasyncgenfunction(bound) or inspect.isgeneratorfunction(bound):
        refuse(
            f"`{name}.{method}` is a generator; return a list instead of yielding",
            ErrorKind.FUNCTION_NOT_ASYNC,
        )
    refuse_context_manager(function, name)
    methods = [(method, "row" if batch is None else "rows"), ("open", "context")]
    if facts.has_fallback:
        methods.append(("on_timeout", "row"))
    for called, argument in methods:
        check_call(getattr(function, called), f"{name}.{called}", argument)


def why_not_repeated(
    function: AsyncFunction | NativeFunction, facts: Facts, options: WaitOptions
) -> str | None:
    """Returns why a call that may have been carried out is not made again, ``None`` if it is.

    With ``retry=`` a Python function that says nothing of itself is called again. Without, only
    reads are.
    """
    if options.retry is None:
        return None
    if options.retry.only_refused:
        is_read = isinstance(function, NativeFunction) and function.only_reads
        why = "it is made again only with `retry=`, because it may have been carried out"
        return None if is_read else why
    if isinstance(function, NativeFunction):
        way_out = function.idempotent_by
        is_final = not facts.idempotent
    else:
        way_out = f"`{function.name}` says idempotent=False"
        is_final = facts.idempotent is False
    if not is_final:
        return None
    why = "it is not made again, because it may have been carried out"
    return f"{why}; {way_out}" if way_out else why


# -- how many calls a task makes at a time, and how many rows it holds for them. Pure functions


_CALLS = 100
"""Calls in flight if nothing is said: what Flink has by default, whose `capacity` is both."""
_FIRST_PER_CALL, _MOST_PER_CALL = 8, 100
"""Rows that ordered mode holds for each call in flight, at first and later. One call may take as
many times as long as the others before it keeps further ones from being made."""
_MOST_BYTES = 16 << 20
"""Bytes that they grow to: four tasks of an executor fit into what Spark leaves for them."""


class Growth(NamedTuple):
    """How far the rows that are held become more, as rows are taken.

    Attributes:
        rows: Rows that are held at most.
        bytes: Bytes of their results, and of the rows' places, beyond which they become no more.
    """

    rows: int
    bytes: int


class Bounds(NamedTuple):
    """What a task may have at a time.

    Attributes:
        calls: Calls in flight.
        rows: Rows that are held; at first, if there is a `growth`.
        bytes: Bytes that completed rows have, which are then not among `rows`; `None`: these bound
            them.
        growth: How far `rows` grows; `None`: not at all.
    """

    calls: int
    rows: int
    bytes: int | None = None
    growth: Growth | None = None


def bounds(mode: str, options: WaitOptions, facts: Facts) -> Bounds:
    """Returns what a task may have at a time.

    Raises:
        ConfigurationError: If there are more calls than rows.
    """
    concurrency, capacity = asked_calls(options), options.capacity
    if isinstance(capacity, Bytes):
        capacity = None
    if concurrency is None:
        # Never more: who wants to hold more rows does not ask for more calls of a service.
        usual = facts.threads or _CALLS
        concurrency = usual if capacity is None else min(usual, capacity)
        if capacity is not None and capacity > concurrency and _is_called_by_row(facts):
            warn_once(
                "`capacity` is %d, the rows that a task holds, and it makes %d calls at a time; for"
                " as many calls as rows, as Flink makes them, write max_concurrency=%d; if these"
                " are enough, write max_concurrency=%d",
                capacity,
                concurrency,
                capacity,
                concurrency,
            )
    if capacity is None:
        return held(mode, options, [(concurrency, facts)])
    if concurrency > capacity:
        refuse(
            f"`max_concurrency` must not be above `capacity`, got {concurrency} and {capacity};"
            " a call in flight takes a slot",
            ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE,
        )
    return Bounds(concurrency, capacity)


def held(mode: str, options: WaitOptions, called: Sequence[tuple[int, Facts]]) -> Bounds:
    """Returns what a task may have where the rows that it holds are not told as a number.

    Args:
        mode: Which order the output has.
        options: The options of the call.
        called: The calls in flight of each function that a row is for, and what is known of it.
    """
    calls = in_calls = first = most = 0
    for count, it in called:
        # Not more of a function that takes many: rows that wait to be collected have been called.
        size = 0 if it.batch is None else it.batch.max_rows
        calls = max(calls, count)
        in_calls = max(in_calls, min(count * (size or 1), MAX_COUNT))
        first = max(first, min(count * (size or _FIRST_PER_CALL), MAX_COUNT))
        most = max(most, min(count * (size or _MOST_PER_CALL), MAX_COUNT))
    if isinstance(options.capacity, Bytes):
        # Rows that wait are as many as where those that are completed leave at once.
        return Bounds(calls, in_calls, int(options.capacity))
    if mode != "ordered":
        return Bounds(calls, in_calls)
    growth = Growth(most, _MOST_BYTES) if most > first else None
    return Bounds(calls, first, growth=growth)


def _is_called_by_row(facts: Facts) -> bool:
    """Whether each call takes one row, and a thread of its own if the function needs one."""
    return facts.batch is None and facts.threads is None


class Called(Protocol):
    """What is called, with the options of its call."""

    @property
    def function(self) -> AsyncFunction | NativeFunction:
        """What is called for every row."""
        ...

    @property
    def facts(self) -> Facts:
        """What it says of itself."""
        ...

    @property
    def options(self) -> WaitOptions:
        """What the user says of it."""
        ...


def rows_in_calls(call: Called, capacity: int, calls: int) -> int:
    """Returns the rows that are in calls, or wait for one with others, at most.

    Their time runs, so no more are handed over than calls take: the others wait in line. The rows
    of a call of Python are of one channel, so those of one more call wait for each channel: with
    fewer, all channels would have a few rows, and none of them a full call.
    """
    batch, channel = call.facts.batch, call.options.channel
    if batch is None:
        return calls
    is_native = isinstance(call.function, NativeFunction)
    waiting = 0 if channel is None or is_native else channel.expected
    return min(capacity, (calls + waiting) * batch.max_rows)


def asked_calls(options: WaitOptions) -> int | None:
    """Returns the calls in flight that were asked for at most, if any were."""
    asked = options.max_concurrency
    if isinstance(asked, PerJob):
        return asked.calls
    return asked.max if isinstance(asked, Adaptive) else asked


# -- what does not go with a chain, or with rows that are carried over


def check_no_rules(operators: Sequence[Any], option: str, way_out: str) -> None:
    """Checks that no rules are for rows that do not leave the task as they were made.

    Raises:
        ConfigurationError: If there are.
    """
    for it in operators:
        if not isinstance(it.function, NativeFunction):
            continue
        rules, answers = it.function.rules, it.function.answers
        if rules is not None or answers is not None:
            whose = (
                "how answers are read" if rules is None else f"the rules of `{rules.kind.__name__}`"
            )
            refuse(
                f"`{option}` does not go with {whose}, which is for rows of"
                f" `{it.function_name}` that leave the task; {way_out}"
            )
