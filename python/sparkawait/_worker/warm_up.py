# SPDX-License-Identifier: Apache-2.0
"""Which functions have shown in this process that their rows are wanted, and what a call brings.

A task begins with few calls, and makes all that it may once its consumer has come back for more.
That is found out once for a function in a process: later tasks, and micro-batches, make all of
their calls at once, as far as there is room for results of the size that they had before. Any
thread may call this; a forked child knows what its parent knew.
"""

from __future__ import annotations

from collections.abc import Hashable

from sparkawait._callables import place_of
from sparkawait._plan.called import identity_of
from sparkawait._plan.plan import Plan
from sparkawait.functions import AsyncFunction, DeclaredFunction

MOST_FUNCTIONS = 1_000
"""Functions that are remembered; a process that has more starts with few calls again."""

_wanted: dict[Hashable, int | None] = {}
"""The functions, and the bytes that a call brings, if any has ended."""


def is_known(plan: Plan) -> bool:
    """Tells whether rows of the function of `plan` were wanted before."""
    return _name_of(plan) in _wanted


def result_bytes(plan: Plan) -> int | None:
    """Returns what a call of the function of `plan` brought last, in bytes, if that is known."""
    return _wanted.get(_name_of(plan))


def remember(plan: Plan, result_bytes: int | None = None) -> None:
    """Notes that rows of the function of `plan` are wanted, and what a call brings, in bytes."""
    if len(_wanted) >= MOST_FUNCTIONS:
        _wanted.clear()
    name = _name_of(plan)
    _wanted[name] = _wanted.get(name) if result_bytes is None else result_bytes


def _name_of(plan: Plan) -> Hashable:
    """Names a function by its place and its code: each task has another copy of it."""
    function = plan.function
    if not isinstance(function, AsyncFunction):
        return identity_of(function, travels=True)
    if isinstance(function, DeclaredFunction):
        return place_of(function.function)
    return place_of(type(function)), place_of(plan.what_is_called())
