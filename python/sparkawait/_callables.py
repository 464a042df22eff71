# SPDX-License-Identifier: Apache-2.0
"""Whether something can be called for rows: what is refused, and what to write instead.

Runs where the user calls, on the driver.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Hashable, Sequence
from inspect import Parameter
from typing import Any, cast

from sparkawait._checks import refuse
from sparkawait.exceptions import ErrorKind

# -- whether what the user gave can be called as it will be called. Pure functions, for any thread

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def misfit_of(function: object, name: str, arguments: Sequence[str]) -> str | None:
    """Returns why `function` cannot be called with `arguments` by position, or ``None`` if it can.

    Args:
        function: Anything that can be called.
        name: What messages call it.
        arguments: Names of the arguments it is called with.

    Returns:
        A sentence with the way out; ``None`` also for what does not tell its arguments.

    Examples:
        >>> print(misfit_of(lambda row, url: None, "f", ["row"]))
        `f` is called as f(row), but needs `url` too; bind it with functools.partial(f, url=..)
        >>> misfit_of(lambda row, retries=3: None, "f", ["row"])
    """
    try:
        signature = inspect.signature(function)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        pass
    else:
        return None
    short = name.rsplit(".", 1)[-1]
    call = f"`{name}` is called as {short}({', '.join(arguments)})"
    parameters = list(signature.parameters.values())
    positions = [one for one in parameters if one.kind in _BY_POSITION]
    takes_rest = any(one.kind is Parameter.VAR_POSITIONAL for one in parameters)
    if len(positions) < len(arguments) and not takes_rest:
        taken = len(positions) or "no"
        return f"{call}, but takes {taken} argument{'s' * (taken != 1)} by position"
    others = [
        one.name
        for one in parameters
        if one.default is Parameter.empty
        and (one in positions[len(arguments) :] or one.kind is Parameter.KEYWORD_ONLY)
    ]
    needed = ", ".join(f"`{one}`" for one in others)
    bound = ", ".join(f"{one}=.." for one in others)
    pronoun = "it" if len(others) == 1 else "them"
    return (
        f"{call}, but needs {needed} too; bind {pronoun} with functools.partial({short}, {bound})"
    )


def is_async(function: object) -> bool:
    """Tells whether calling `function` returns a coroutine.

    Looks through partials, objects, and what `sparkawait.async_function` has declared, in any
    nesting.
    """
    function = undeclared(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method is wanted, not the answer
    )


def undeclared(function: Any) -> Any:
    """Returns what a call of `function` comes to, without the calls of declarations in between.

    Those are called like the functions that they wrap.
    """
    if isinstance(function, functools.partial):
        bound = cast("functools.partial[Any]", function)
        called = undeclared(bound.func)
        if called is bound.func:
            return bound
        return functools.partial(called, *bound.args, **bound.keywords)
    if callable(function) and hasattr(type(function), "async_invoke"):
        return undeclared(getattr(function, "function", None))
    return function


def layers(function: Any) -> list[Any]:
    """Returns `function`, and what it wraps, and what that wraps."""
    found: list[Any] = []
    while function is not None:
        found.append(function)
        if isinstance(function, functools.partial):
            function = function.func
        else:  # as `functools.wraps` notes it; not asked of objects that answer to any name
            function = inspect.getattr_static(function, "__wrapped__", None)
    return found


def without_partials(function: object) -> object:
    """Returns what the partials of `function` call in the end."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def describe(function: object) -> str:
    """Returns a name for messages that holds no argument and no address."""
    function = without_partials(function)
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def place_of(function: object) -> Hashable:
    """Names a function by its place and its code, which copies of it in other tasks have too."""
    function = without_partials(function)
    name = (getattr(function, "__module__", None), getattr(function, "__qualname__", None))
    if name[1] is None:
        name = (type(function).__module__, type(function).__qualname__)
    # Code is equal to a copy of itself, and to nothing else.
    return (*name, getattr(inspect.unwrap(function), "__code__", None))  # pyright: ignore[reportArgumentType]


def check_function(function: object) -> str:
    """Returns the name of an ``async def`` or a plain function, or of what is called like one.

    Raises:
        ConfigurationError: If `function` is something else.
    """
    name = describe(function)
    if isinstance(function, type):
        refuse(f"`{name}` is a class; pass an instance, {name}(..)", ErrorKind.FUNCTION_INVALID)
    if not callable(function):
        refuse(
            f"`{name}` must be a function of a row, an `async def` or a plain `def`",
            ErrorKind.FUNCTION_INVALID,
        )
    # As whatever has that Spark calls with columns. A declared function has it, too, if asked.
    if not hasattr(type(function), "async_invoke") and hasattr(function, "evalType"):
        refuse(
            f"`{name}` is a function of columns; give the function that it was made of",
            ErrorKind.FUNCTION_INVALID,
        )
    if _yields(function):
        refuse(
            f"`{name}` is a generator; return a list of rows instead of yielding them",
            ErrorKind.FUNCTION_NOT_ASYNC,
        )
    if not is_async(function) and inspect.iscoroutinefunction(inspect.unwrap(function)):
        refuse(
            f"`{name}` is an `async def` that a decorator hides behind a plain function; have the"
            " decorator return an `async def` that awaits it",
            ErrorKind.FUNCTION_NOT_ASYNC,
        )
    refuse_context_manager(function, name)
    return name


def check_plain(function: object, option: str, kind: ErrorKind) -> None:
    """Checks that a function of a row that an option takes is a plain one.

    Args:
        function: What was given.
        option: The option, for messages.
        kind: What is wrong otherwise.

    Raises:
        ConfigurationError: If it is an ``async def``, or does not take a row.
    """
    name = describe(function)
    if is_async(function):
        refuse(f"{option} must be a plain function, which returns at once, got `{name}`", kind)
    misfit = misfit_of(function, name, ["row"])
    if misfit is not None:
        refuse(f"{option} does not fit: {misfit}", kind)


def check_call(
    function: object,
    name: str,
    argument: str,
    hint: str = "",
    *,
    kind: ErrorKind = ErrorKind.FUNCTION_INVALID,
) -> None:
    """Checks that `function` can be called with one argument.

    Args:
        function: What is called.
        name: What messages call it.
        argument: The name of the argument.
        hint: What else may be done where it needs more arguments.
        kind: What is wrong otherwise.

    Raises:
        ConfigurationError: If it cannot; says how it is called, and the way out.
    """
    misfit = misfit_of(function, name, [argument])
    if misfit is not None:
        refuse(misfit + hint * ("but needs" in misfit), kind)


def refuse_context_manager(function: object, name: str) -> None:
    """Refuses what wants to be entered, since nobody would do it.

    Raises:
        ConfigurationError: If the class of `function` defines ``__enter__`` or ``__aenter__``.
    """
    for method in ("__aenter__", "__enter__"):
        if hasattr(type(function), method):
            refuse(
                f"`{name}` defines `{method}`, which is not called; derive from"
                " sparkawait.AsyncFunction, whose `open` and `close` are called once per task",
                ErrorKind.FUNCTION_INVALID,
            )


def refuse_threads(function: object, name: str) -> None:
    """Refuses an ``async def`` that was given threads, which it does not use.

    Raises:
        ConfigurationError: If `function` is one.
    """
    if is_async(function):
        refuse(
            f"`{name}` is an `async def`, which is called on an event loop and needs no threads;"
            " leave `threads` out, or write a plain `def`",
            ErrorKind.FUNCTION_INVALID,
        )


def _yields(function: object) -> bool:
    function = without_partials(function)
    method = getattr(function, "__call__", None)  # noqa: B004 - the method is wanted
    return any(
        inspect.isasyncgenfunction(it) or inspect.isgeneratorfunction(it)
        for it in (function, method)
    )


def is_pickled_by_value(module: str) -> bool:
    """Whether the user has asked a pickler to send what is in `module`, or in its packages."""
    for name in ("pyspark.cloudpickle", "cloudpickle"):
        registered = getattr(sys.modules.get(name), "list_registry_pickle_by_value", set[str])
        for it in registered():
            if module == it or module.startswith(f"{it}."):
                return True
    return False
