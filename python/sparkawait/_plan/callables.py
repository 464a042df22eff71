# SPDX-License-Identifier: Apache-2.0
"""Whether something can be called for rows: what is refused, and what to write instead.

Runs where the user calls, on the driver.
"""

from __future__ import annotations

import functools
import inspect

from sparkawait._plan.checks import refuse
from sparkawait._plan.signatures import describe, is_async, misfit_of
from sparkawait.exceptions import ErrorKind


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
    if hasattr(function, "evalType"):  # as whatever has that Spark calls with columns
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


def check_call(function: object, name: str, argument: str, hint: str = "") -> None:
    """Checks that `function` can be called with one argument.

    Args:
        function: What is called.
        name: What messages call it.
        argument: The name of the argument.
        hint: What else may be done where it needs more arguments.

    Raises:
        ConfigurationError: If it cannot; says how it is called, and the way out.
    """
    misfit = misfit_of(function, name, [argument])
    if misfit is not None:
        refuse(misfit + hint * ("but needs" in misfit), ErrorKind.FUNCTION_INVALID)


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


def _yields(function: object) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    method = getattr(function, "__call__", None)  # noqa: B004 - the method is wanted
    return any(
        inspect.isasyncgenfunction(it) or inspect.isgeneratorfunction(it)
        for it in (function, method)
    )
