# SPDX-License-Identifier: Apache-2.0
"""What users write: functions that are called for every row.

An `AsyncFunction` is made on the driver, pickled, and called in the executor. There all of its
methods run on the event loop thread of the worker process, never two at the same time but for what
is awaited. A `sparkawait.native_function` is carried out by the extension module instead.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NoReturn, ParamSpec, TypeAlias, TypeVar, cast, overload

from sparkawait._core import Row
from sparkawait._plan.checks import flag
from sparkawait._plan.signatures import describe, is_async, misfit_of
from sparkawait.batch import Batch, the_batch
from sparkawait.durations import Duration, optional_duration
from sparkawait.exceptions import ConfigurationError, ElementTimeoutError, ErrorKind
from sparkawait.function_context import FunctionContext
from sparkawait.function_with_options import FunctionWithOptions, TakesOptions
from sparkawait.native_function import NativeFunction
from sparkawait.types import SchemaLike, to_schema

__all__ = [
    "AsyncFunction",
    "AsyncFunctionLike",
    "AsyncFunctionsLike",
    "Row",
    "async_function",
]

Results: TypeAlias = "Any"
"""What a function returns for a row: one row or a list of 0..n rows.

A row is a mapping, dataclass, NamedTuple, ``pyspark.sql.Row``, pydantic model or attrs class; for a
single column, also its value.
"""

_Coroutine = Callable[..., Awaitable[Any]]
_P = ParamSpec("_P")
_A = TypeVar("_A", bound=Awaitable[Any])


class AsyncFunction(TakesOptions):
    """Base of functions with a life cycle.

    Counterpart of Flink's `RichAsyncFunction`. Override `async_invoke`, or `async_invoke_batch` to
    be called with many rows at once. One instance serves one task; it is pickled on the driver, so
    make connections in `open`, not in ``__init__``.

    Context variables set by one call are not seen by the next; those set in `open` are seen by all.

    Attributes:
        schema: The columns that the function returns: a DDL string, a `pyarrow.Schema` or a
            ``StructType``. The option ``schema=`` overrides it.
        batch: How rows are collected, for `async_invoke_batch`; an int is the `max_rows` of a
            `Batch`.
        idempotent: Whether a call that is made twice does no more than one. ``hedge=`` needs
            ``True``. With ``False`` a call that ran into ``attempt_timeout`` is not made again,
            whatever ``retry=`` says; with ``None``, the default, it is.
        setup_timeout: How long `open` may take, and `close`, each: what takes longer is cancelled
            and fails the task. ``None`` sets no bound to `open`, of which the log says once that it
            takes more than 60 s, and 30 s to `close`.
        blocked_loop_timeout: Ends the task when code that blocks, such as ``time.sleep``, keeps the
            event loop of the worker for so long; ``timeout=`` cannot cancel it. ``None`` only logs
            what blocks.
    """

    schema: SchemaLike | None = None
    batch: Batch | int | None = None
    idempotent: bool | None = None
    setup_timeout: Duration | None = None
    blocked_loop_timeout: Duration | None = None

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return type(self).__qualname__

    def open(self, context: FunctionContext) -> Awaitable[None] | None:
        """Prepares the function, before any row. May be ``async def``."""

    async def async_invoke(self, row: Row) -> Results:
        """Returns the results of one row: a mapping or another form of a row, or a list of 0..n.

        A row is a mapping, a dataclass, a NamedTuple, a ``pyspark.sql.Row``, a pydantic model or an
        attrs class; for a single column, its value will do. `row` has its columns by key and as
        attributes.

        An exception is a failure of this attempt; `sparkawait.RetryAfter` sets the delay of the
        retry. The call is cancelled when it has timed out or the task ends.
        """
        raise NotImplementedError

    async def async_invoke_batch(self, rows: Sequence[Row]) -> Sequence[Results]:
        """Returns one result per row of `rows`, in their order."""
        raise NotImplementedError

    def timeout(self, row: Row) -> Results:  # noqa: ARG002 - for those who override it
        """Returns the results of a row that timed out, in the form of `async_invoke`'s.

        Not overridden, the timeout is the failure of the row. Runs on the event loop, so it must
        not block. What it raises is the failure of the row, and never retried.
        """
        msg = "async function call has timed out"
        raise ElementTimeoutError(msg, ErrorKind.ELEMENT_TIMED_OUT)

    def close(self) -> Awaitable[None] | None:
        """Releases what `open` made. Called once, whatever happened. May be ``async def``."""


AsyncFunctionLike: TypeAlias = (
    AsyncFunction | NativeFunction | FunctionWithOptions | Callable[..., Awaitable[Results]]
)
"""What can be called for every row: an ``async def``, bare or declared with `async_function`, an
instance of an `AsyncFunction`, or a native function; the last two also with options."""

AsyncFunctionsLike: TypeAlias = AsyncFunctionLike | Sequence[AsyncFunctionLike]
"""A function, or several that are called for a row side by side."""


class FunctionFromCoroutine(AsyncFunction, Generic[_P, _A]):
    """An ``async def`` with a schema; still callable, and typed, as the function it wraps."""

    def __init__(
        self,
        function: Callable[_P, _A],
        schema: SchemaLike | None = None,
        batch: Batch | None = None,
        *,
        idempotent: bool | None = None,
        blocked_loop_timeout: Duration | None = None,
    ) -> None:
        """Wraps `function`."""
        functools.update_wrapper(self, function)
        self.function = function
        self.schema = schema
        self.batch = batch
        self.idempotent = idempotent
        self.blocked_loop_timeout = blocked_loop_timeout
        # On the instance, so that a call costs no further coroutine.
        setattr(self, "async_invoke" if batch is None else "async_invoke_batch", function)

    @property
    def name(self) -> str:
        """The name of the wrapped function."""
        return describe(self.function)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _A:
        """Calls the wrapped function, as a test of it would."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickles by name where a plain function would be, so that its module's state is shared."""
        module, name = getattr(self.function, "__module__", None) or "", self.name
        is_found = getattr(sys.modules.get(module), name, None) is self
        if is_found and module != "__main__" and not _is_pickled_by_value(module):
            return name
        made = functools.partial(
            FunctionFromCoroutine,
            idempotent=self.idempotent,
            blocked_loop_timeout=self.blocked_loop_timeout,
        )
        return made, (self.function, self.schema, self.batch)


_Declared: TypeAlias = FunctionFromCoroutine[..., Any]


@overload
def async_function(function: Callable[_P, _A], /) -> FunctionFromCoroutine[_P, _A]: ...
@overload
def async_function(
    schema: SchemaLike | None = None,
    *,
    batch: Batch | int | None = None,
    idempotent: bool | None = None,
    blocked_loop_timeout: Duration | None = None,
) -> Callable[[Callable[_P, _A]], FunctionFromCoroutine[_P, _A]]: ...
def async_function(
    schema: SchemaLike | _Coroutine | None = None,
    *,
    batch: Batch | int | None = None,
    idempotent: bool | None = None,
    blocked_loop_timeout: Duration | None = None,
) -> _Declared | Callable[[Callable[..., Any]], _Declared]:
    """Declares what an ``async def`` returns, so that it can be called for every row.

    Without a schema, the columns are those of the return annotation: the fields of a dataclass,
    NamedTuple, TypedDict, pydantic model or attrs class, or of those in a ``list`` of 0..n rows; a
    scalar type is one column named like the function. What is not ``Optional`` is NOT NULL; ``int``
    is ``bigint``, ``float`` is ``double``; any other type is said by
    ``Annotated[Decimal, "decimal(10,2)"]``.

    Args:
        schema: The returned columns: a DDL string, a `pyarrow.Schema` or a ``StructType``; ``None``
            takes them from the annotation.
        batch: Calls the function with lists of rows; it returns one result per row. A `Batch`, or
            an int for its `max_rows`.
        idempotent: Whether a call that is made twice does no more than one. ``hedge=`` needs
            ``True``. With ``False`` a call that ran into ``attempt_timeout`` is not made again,
            whatever ``retry=`` says: it may have been carried out. With ``None`` it is.
        blocked_loop_timeout: Ends the task when code that blocks, such as ``time.sleep``, keeps the
            event loop of the worker for so long; ``timeout=`` cannot cancel it. ``None`` only logs
            what blocks.

    Returns:
        A decorator; used without parentheses, the decorated function. It can still be called and
        awaited by itself, and type checkers know what it takes and returns.

    Raises:
        ConfigurationError: From the decorator, if the function is not ``async def`` or cannot be
            called with a row, or if the schema is none.

    Examples:
        >>> @async_function("doubled bigint")
        ... async def double(row):
        ...     return {"doubled": 2 * row["x"]}
        >>> @async_function
        ... async def tripled(row) -> int:
        ...     return 3 * row.x
    """
    if callable(schema):
        return wrap_coroutine(schema)

    def decorate(function: Callable[..., Any]) -> _Declared:
        return wrap_coroutine(
            function,
            schema,
            batch,
            idempotent=idempotent,
            blocked_loop_timeout=blocked_loop_timeout,
        )

    return decorate


def wrap_coroutine(
    function: object,
    schema: SchemaLike | None = None,
    batch: Batch | int | None = None,
    *,
    idempotent: bool | None = None,
    blocked_loop_timeout: Duration | None = None,
) -> _Declared:
    """Wraps an ``async def``, or anything that is called like one.

    Raises:
        ConfigurationError: If one of them is something else, or `function` does not take a row.
    """
    name = check_async(function)
    short = name.rsplit(".", 1)[-1]
    hint = f"; or call it with values of columns, as sparkawait.async_udf({short})(..)"
    check_call(function, name, "row" if batch is None else "rows", hint)
    if schema is not None:
        to_schema(schema)
    if idempotent is not None:
        flag(idempotent, "idempotent")
    optional_duration(blocked_loop_timeout, "blocked_loop_timeout")
    return FunctionFromCoroutine(
        cast("_Coroutine", function),
        schema,
        the_batch(batch, "batch"),
        idempotent=idempotent,
        blocked_loop_timeout=blocked_loop_timeout,
    )


def check_async(function: object) -> str:
    """Returns the name of an ``async def``, or of anything that is called like one.

    Raises:
        ConfigurationError: If `function` is something else.
    """
    name = describe(function)
    if isinstance(function, type):
        _refuse(f"`{name}` is a class; pass an instance, {name}(..)", ErrorKind.FUNCTION_INVALID)
    if not is_async(function):
        _refuse(*_no_coroutine(function, name))
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
        _refuse(misfit + hint * ("but needs" in misfit), ErrorKind.FUNCTION_INVALID)


def refuse_context_manager(function: object, name: str) -> None:
    """Refuses what wants to be entered, since nobody would do it.

    Raises:
        ConfigurationError: If the class of `function` defines ``__aenter__``.
    """
    if hasattr(type(function), "__aenter__"):
        msg = (
            f"`{name}` defines `__aenter__`, which is not called; derive from"
            " sparkawait.AsyncFunction, whose `open` and `close` are called once per task"
        )
        _refuse(msg, ErrorKind.FUNCTION_INVALID)


def _no_coroutine(function: object, name: str) -> tuple[str, ErrorKind]:
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    method = getattr(called, "__call__", None)  # noqa: B004 - the method is wanted
    if inspect.isasyncgenfunction(called) or inspect.isasyncgenfunction(method):
        msg = f"`{name}` is an async generator; return a list of rows instead of yielding them"
    else:
        msg = (
            f"`{name}` must be a function defined with `async def`; one that blocks is called in a"
            f" thread by `return await asyncio.to_thread({name.rsplit('.', 1)[-1]}, row)`"
        )
    return msg, ErrorKind.FUNCTION_NOT_ASYNC


def _is_pickled_by_value(module: str) -> bool:
    """Whether the user has asked a pickler to send what is in `module`, or in its packages."""
    picklers = (sys.modules.get(name) for name in ("pyspark.cloudpickle", "cloudpickle"))
    lists = (getattr(one, "list_registry_pickle_by_value", None) for one in picklers)
    registered = {name for each in lists if each is not None for name in each()}
    return any(module == name or module.startswith(f"{name}.") for name in registered)


def _refuse(message: str, kind: ErrorKind) -> NoReturn:
    raise ConfigurationError(message, kind)
