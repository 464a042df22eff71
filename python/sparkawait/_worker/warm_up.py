# SPDX-License-Identifier: Apache-2.0
"""Which functions have shown in this process that their rows are wanted.

A task begins with few calls, and makes all that it may once its consumer has come back for more.
That is found out once for a function in a process: later tasks, and micro-batches, make all of
their calls at once. Any thread may call this; a forked child knows what its parent knew.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable

from sparkawait._plan.identity import identity_of
from sparkawait._plan.plan import Plan
from sparkawait.functions import AsyncFunction, FunctionFromCoroutine

__all__ = ["is_known", "remember"]

MOST_FUNCTIONS = 1_000
"""Functions that are remembered; a process that has more starts with few calls again."""

_wanted: set[Hashable] = set()


def is_known(plan: Plan) -> bool:
    """Tells whether rows of the function of `plan` were wanted before."""
    return _name_of(plan) in _wanted


def remember(plan: Plan) -> None:
    """Notes that rows of the function of `plan` are wanted."""
    if len(_wanted) >= MOST_FUNCTIONS:
        _wanted.clear()
    _wanted.add(_name_of(plan))


def _name_of(plan: Plan) -> Hashable:
    """Names a function by its place and its code: each task has another copy of it."""
    function = plan.function
    if not isinstance(function, AsyncFunction):
        return identity_of(function, travels=True)
    called = function.function if isinstance(function, FunctionFromCoroutine) else type(function)
    name = (getattr(called, "__module__", None), getattr(called, "__qualname__", None))
    if not isinstance(function, FunctionFromCoroutine):
        called = function.async_invoke if plan.batch is None else function.async_invoke_batch
    # Code is equal to a copy of itself, and to nothing else.
    return (*name, getattr(inspect.unwrap(called), "__code__", None))
