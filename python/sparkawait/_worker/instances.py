# SPDX-License-Identifier: Apache-2.0
"""Instances of an `AsyncFunction` that several tasks of this process call at the same time.

```text
  one task     --> the instance, with what its `open` makes
  another one  --> a copy of what it was before that
```

Spark pickles a function, so each of its tasks has an instance of its own. Here a task begins with
the one that the user has, which may hold what cannot be pickled. Any thread may call this.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from sparkawait._plan.plan import Chain, Plan
from sparkawait.exceptions import ConfigurationError, ErrorKind, described
from sparkawait.functions import AsyncFunction

__all__ = ["own_instances"]


class _InUse(NamedTuple):
    """An instance that a task has.

    Attributes:
        function: The instance, which so keeps its id.
        before: What it was before the task, or why nobody knows.
    """

    function: AsyncFunction
    before: AsyncFunction | Exception


_lock = threading.RLock()
_in_use: dict[int, _InUse] = {}
"""By their ids."""


@contextmanager
def own_instances(chain: Chain) -> Generator[Chain, None, None]:
    """Gives the calls of a task instances that no other task has, as long as it runs.

    Raises:
        ConfigurationError: If another task has one that cannot be copied.
    """
    own: dict[int, AsyncFunction] = {}
    taken: list[int] = []
    try:
        for plan in chain.operators:
            function = plan.function
            # A chain may have one twice, which is open until all of it has ended.
            if isinstance(function, AsyncFunction) and id(function) not in own:
                own[id(function)] = _own(function, taken) if _has_life(function) else function
        yield _with(chain, own)
    finally:
        with _lock:
            for it in taken:
                del _in_use[it]


def _has_life(function: AsyncFunction) -> bool:
    """Whether it has an `open` or a `close`: what one task does to it, another one sees."""
    kind = type(function)
    return kind.open is not AsyncFunction.open or kind.close is not AsyncFunction.close


def _own(function: AsyncFunction, taken: list[int]) -> AsyncFunction:
    """Returns an instance for a task, and notes whether that is the one that the user has."""
    with _lock:
        used = _in_use.get(id(function))
        if used is None:
            _in_use[id(function)] = _InUse(function, _copied(function))
            taken.append(id(function))
            return function
        copied = used.before
        if isinstance(copied, AsyncFunction):
            copied = _copied(copied)
    if isinstance(copied, AsyncFunction):
        return copied
    msg = (
        f"`{function.name}` is open in another output, and cannot be copied for this one:"
        f" {described(copied)}; make an instance for each output"
    )
    raise ConfigurationError(msg, ErrorKind.FUNCTION_INVALID) from copied


def _copied(function: AsyncFunction) -> AsyncFunction | Exception:
    """Returns a copy with the same attributes, or why there is none."""
    try:
        return copy.copy(function)
    except Exception as error:  # noqa: BLE001 - most tasks need no copy
        return error


def _with(chain: Chain, own: dict[int, AsyncFunction]) -> Chain:
    """Returns the chain with other instances where it has to have them."""

    def with_own(plan: Plan) -> Plan:
        function = own.get(id(plan.function), plan.function)
        return replace(plan, function=function, branches=tuple(map(with_own, plan.branches)))

    if all(own.get(id(it.function), it.function) is it.function for it in chain.operators):
        return chain
    return replace(chain, plans=tuple(map(with_own, chain.plans)))
