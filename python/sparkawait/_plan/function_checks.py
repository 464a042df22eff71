# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownArgumentType=false
"""Whether what the user gave as function is one, and can be sent where it is called.

Runs where the user calls, on the driver.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import sys
import uuid
import weakref
from contextlib import suppress

import pyarrow as pa

from sparkawait._callables import check_call, refuse_context_manager
from sparkawait._checks import refuse
from sparkawait._plan.facts import Facts, facts_of
from sparkawait._schema.classes import returns_list, schema_of
from sparkawait._schema.types import to_schema
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunction, DeclaredFunction, declared
from sparkawait.native_function import NativeFunction
from sparkawait.options import WaitOptions

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
