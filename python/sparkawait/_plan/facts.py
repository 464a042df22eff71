# SPDX-License-Identifier: Apache-2.0
"""What a function says of itself: read once, on the driver, and carried in the plan.

```text
  partial --> declared --> partial --> declared --> def
     the first of them that says something of a fact says it for all of them
```

A worker has a copy of the function, which may say something else: a function of a module is
imported there, without what the driver has set. So a worker is told, and never asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkawait._callables import is_async, layers, refuse_threads
from sparkawait._schema.types import SchemaLike
from sparkawait.functions import AsyncFunction, DeclaredFunction
from sparkawait.limits import Batch
from sparkawait.native_function import NativeFunction
from sparkawait.options import OF_FUNCTION

__all__ = ["UNKNOWN", "Facts", "facts_of", "is_declared"]

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


UNKNOWN = Facts()
"""Of what stands for several functions, and says nothing of itself."""


def facts_of(function: AsyncFunction | NativeFunction) -> Facts:
    """Returns what `function` says, or what it wraps, through declarations and partials.

    Raises:
        ConfigurationError: If one of them says something that is not allowed.
    """
    if isinstance(function, NativeFunction):
        return Facts(batch=function.batching, idempotent=function.idempotent)
    saying = [it for it in layers(function) if isinstance(it, AsyncFunction)]

    def said(fact: str) -> Any:
        for one in saying:
            value = getattr(one, fact)
            if value is not None:
                option = OF_FUNCTION.get(fact)
                return value if option is None else option.check(value, f"{one.name}.{fact}")
        return None

    batch, threads = said("batch"), said("threads")
    called = function.what_is_called(batched=batch is not None)
    is_plain = not is_async(called)
    if function.threads is not None:
        refuse_threads(called, function.name)
    return Facts(
        schema=said("schema"),
        batch=batch,
        idempotent=said("idempotent"),
        setup_timeout=said("setup_timeout"),
        blocked_loop_timeout=said("blocked_loop_timeout"),
        threads=threads or _THREADS if is_plain else None,
        has_fallback=has_fallback(type(function)),
    )


def has_fallback(kind: type[AsyncFunction]) -> bool:
    """Tells whether a class has a method of its own for rows that timed out, and no constant."""
    own = kind.on_timeout
    return own is not AsyncFunction.on_timeout and callable(own)


def is_declared(function: object) -> bool:
    """Tells whether `function` is a declared one, or a partial of one, or wraps one."""
    return any(isinstance(it, DeclaredFunction) for it in layers(function))
