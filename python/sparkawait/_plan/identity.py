# SPDX-License-Identifier: Apache-2.0
"""Which functions are the same to a `sparkawait.Cache`, so that they share its results.

Computed once, where the user calls, and carried in the plan to all of its tasks. To be called on
the driver, from any thread.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import sys
import uuid
import weakref

from sparkawait.functions import AsyncFunction, DeclaredFunction
from sparkawait.native_function import NativeFunction

__all__ = ["identity_of"]

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
    # The pickler of Spark; whoever resolves a plan for Spark has imported it.
    pickler = sys.modules.get("pyspark.cloudpickle")
    if isinstance(function, NativeFunction):
        try:
            return hashlib.sha256((pickler or pickle).dumps(function)).hexdigest()
        except Exception:  # noqa: BLE001 - whatever the provider of a secret does when it is pickled
            return _name(function)
    if travels and pickler is not None:
        return hashlib.sha256(pickler.dumps(function)).hexdigest()
    return _name(function)


def _name(function: object) -> str:
    """Names an object as long as it lives; nothing else ever has its name."""
    if isinstance(function, DeclaredFunction):
        # A bare coroutine function is wrapped anew for each call.
        return _name(function.function)
    if inspect.ismethod(function):
        # Made anew whenever it is asked for.
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
