# SPDX-License-Identifier: Apache-2.0
"""What is called for every row: functions that users write, and native ones.

An `AsyncFunction` is made on the driver, pickled, and called in the executor. There its methods run
on the event loop thread of the worker process, one at a time between two awaits. An `async_invoke`
that is a plain ``def`` runs in threads. A `NativeFunction` is carried out by the extension module
instead: made and checked on the driver, pickled, started in the executors.
"""

from __future__ import annotations

import copy
import functools
import operator
import sys
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

import pyarrow as pa

from sparkawait import _core
from sparkawait._callables import (
    check_call,
    check_function,
    describe,
    is_pickled_by_value,
    refuse_threads,
    undeclared,
)
from sparkawait._checks import ColumnExpression, ColumnLike, Duration, refuse, suggestion
from sparkawait._core import Row
from sparkawait._option import documented
from sparkawait._schema.answers import Answers
from sparkawait._schema.types import Model, SchemaLike, is_function, to_schema
from sparkawait.exceptions import ConfigurationError, ElementTimeoutError, ErrorKind
from sparkawait.limits import Batch
from sparkawait.options import (
    NONE_GIVEN,
    OF_FUNCTION,
    OWN_OPTIONS,
    FunctionWithOptions,
    OfColumns,
    OwnArguments,
    TakesOptions,
    WaitOptions,
    asks_for_column,
    check_class,
    declared_options,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


class NativeFunction(OfColumns, TakesOptions):
    """Base of functions that the extension module carries out, without Python code per row.

    Attributes:
        result_schema: The columns that the function returns.
        input_columns: The columns of the input that it reads.
    """

    result_schema: pa.Schema
    rules: Model | None = None
    """The class whose rules its rows keep, if it has some beside its types."""
    answers: Answers | None = None
    """How what calls bring is read where rows leave, if it is not what leaves."""
    once = False
    """Whether equal rows are brought together, so that one call serves them."""
    input_columns: tuple[str, ...] = ()
    only_reads = False
    """Whether a call changes nothing and costs nothing, so that it is made again unasked."""
    writes_texts = False
    """Whether values of its columns become texts, such as parts of an address."""
    names_are_of = ""
    """Where its columns may have other names than what comes: in what a user has written."""
    concurrency_option = "connections"
    """The option that says how many calls it can have on their way."""

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return type(self).__qualname__

    def own_options(self) -> WaitOptions:
        """Returns none: what it has is given where it is made."""
        return NONE_GIVEN

    @property
    def channel_columns(self) -> tuple[str, ...]:
        """The columns that name the destination of a row; none if there is one destination."""
        return ()

    @property
    def finds_channels(self) -> bool:
        """Whether it finds the destination of a row by itself, in the executor."""
        return False

    @property
    def concurrency(self) -> int | None:
        """Most calls that it can have on their way in a process; ``None``: nothing bounds them."""
        return None

    @property
    def idempotent(self) -> bool:
        """Whether a call that is made twice does no more than one."""
        return False

    @property
    def idempotent_by(self) -> str | None:
        """What makes a call that is made twice do no more than one, if anything does."""
        return None

    @property
    def hedges(self) -> bool:
        """Whether a row may be called for once more, beside its first call."""
        return self.idempotent

    @property
    def asks(self) -> Any:
        """The question, and who gets it, as JSON takes it, without secrets and what connects to it.

        ``None`` if that is not known, nor which columns it reads.
        """
        return None

    @property
    def batching(self) -> Batch | None:
        """How rows are collected, if a call takes many of them; ``None``: a call a row."""
        return None

    def bounded(self, calls: int, rows: int) -> NativeFunction:  # noqa: ARG002 - for those who collect rows
        """Returns the function for a task that has `calls` calls on their way and `rows` rows."""
        return self

    def dropping_misses(self) -> NativeFunction:
        """Returns the function that drops the rows it finds nothing for."""
        return self

    @property
    def may_have_several_results(self) -> bool:
        """Whether it is known to have several results for a row."""
        return False

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Asks the extension module whether tasks could start, on the driver, without secrets.

        Args:
            input_schema: The columns of the input; ``None`` while they are not known.

        Raises:
            ConfigurationError: If the function is wrong, or the input does not fit it.
        """

    def _native(self, *, retry_misses: bool) -> _core.Native:
        """Builds the description that the extension module takes, in the executor.

        Args:
            retry_misses: Whether a call that finds nothing asks for another attempt.
        """
        raise NotImplementedError


# -- what users write: functions that are called for every row
#
# An `AsyncFunction` is made on the driver, pickled, and called in the executor. There its methods
# run
# on the event loop thread of the worker process, one at a time between two awaits. An
# `async_invoke`
# that is a plain ``def`` runs in threads. A `sparkawait.functions` is carried out by the
# extension module instead.


# -- what a function with a life cycle is told, and what it says beside its results.
#
# Counterpart of Flink's ``RuntimeContext``.

_T = TypeVar("_T")


@dataclass
class FunctionContext:
    """What `AsyncFunction.open` is told about the task.

    Attributes:
        partition: Number of the partition that the task works on.
        task_name: Name of the function and the partition, for logs.
        metrics: Numbers counted by the function; reported with the operator's own when the task
            ends.
    """

    partition: int
    task_name: str
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    on_settle: Callable[[Row, float, str | None], None] | None = field(default=None, repr=False)
    """Takes what `settle` is told; ``None`` where nothing does."""
    on_limits: Callable[[Row, Mapping[str, str]], None] | None = field(default=None, repr=False)
    """Takes what `read_limits` is told; ``None`` where nothing does."""
    on_shared: Callable[[Hashable, Callable[[], Any]], Any] | None = field(default=None, repr=False)
    """Keeps what `shared` makes; ``None`` where nothing does, as in a test of yours."""

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @overload
    def shared(self, key: Hashable, factory: Callable[[], Awaitable[_T]]) -> Awaitable[_T]: ...
    @overload
    def shared(self, key: Hashable, factory: Callable[[], _T]) -> _T: ...
    def shared(self, key: Hashable, factory: Callable[[], Any]) -> Any:
        """Returns a client that all tasks of this worker process share, made once by `factory`.

        For clients whose connections are to outlive a task, above all in a stream, where each
        micro-batch has tasks of its own. To be called in `open`. Do not close what it returns: its
        `aclose`, or else its `close`, is called when no task has used it for 60 s, and when the
        process ends; a `close` that is a plain function runs in a thread. A process that was forked
        makes its own.

        Args:
            key: Names the client; all that `factory` depends on belongs to it, such as an address:
                ``("api", url)``. Another `factory` with the same key makes another client.
            factory: Makes the client, on the event loop; a plain function or an ``async def``,
                whose result you await. What it raises, each task that asks gets; the
                next one tries again.

        Returns:
            The client; with an ``async def`` an awaitable of it.

        Raises:
            ConfigurationError: If the key is not hashable, or `factory` is not a function.
            OperatorStateError: In a thread of a plain function.

        Examples:
            >>> class Lookup(AsyncFunction):  # doctest: +SKIP
            ...     async def open(self, context):
            ...         self.client = context.shared("api", lambda: httpx.AsyncClient(base_url=URL))
        """
        return factory() if self.on_shared is None else self.on_shared(key, factory)

    def settle(self, row: Row, cost: float, limit: str | None = None) -> None:
        """Says what the call for `row` has cost of a limit of ``rate_limit=``.

        What was taken before the call is corrected when it ends, also if it raises: what was too
        much comes back, and what was too little is taken. Without limits it does nothing. To be
        called before the call ends, by it.

        Args:
            row: The row that the function was called with.
            cost: What it has cost, from 0; part of a permit counts as one.
            limit: The name of the limit, or its rate if it has none. By default the only one there
                is, or the only one whose `cost` or `result_cost` is of the row.

        Raises:
            ConfigurationError: If it is not a cost, or the limit is unclear.
        """
        if self.on_settle is not None:
            self.on_settle(row, cost, limit)

    def read_limits(self, row: Row, headers: Mapping[str, str]) -> None:
        """Says what the headers of the reply for `row` tell of the limits of the service.

        What is left there (``x-ratelimit-remaining-tokens`` and the like) lowers the limits of
        ``rate_limit=`` that stand for it, see `sparkawait.RateLimit`, from the end of the call on.
        Headers that tell of no limit say nothing, and without limits it does nothing. To be called
        before the call ends, by it.

        Args:
            row: The row that the function was called with; of several, any of them.
            headers: Those of the response, as clients have them: ``response.headers``.

        Raises:
            ConfigurationError: If it is not a row, or these are not headers.
        """
        if self.on_limits is not None:
            self.on_limits(row, headers)

    def add_metric(self, name: str, amount: float = 1) -> None:
        """Adds `amount` to the function's own metric `name`.

        Raises:
            ConfigurationError: If it is not a number.
        """
        if type(amount) not in (int, float):
            amount = _number(amount)
        with self._lock:
            self.metrics[name] = self.metrics.get(name, 0) + amount


def _number(amount: Any) -> float:
    """Returns a number of NumPy or another library as Python's own, which a report can say."""
    is_text = isinstance(amount, (str, bytes, bytearray))
    # Arrays have both, and say only then whether they are one number.
    for make in () if is_text else (operator.index, float):
        with suppress(TypeError, ValueError):
            return make(amount)
    msg = f"`amount` of add_metric must be a number, got a {type(amount).__name__}"
    raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)


# -- a struct within a row, and a row that was made by hand


class Struct(dict[str, Any]):
    """A struct cell: a dict by field name, whose fields are attributes too.

    A field that is named like a method of ``dict`` is reached by key only. It is also what a copy
    of a row is, a row that was pickled, and the dict that a test calls a declared function with.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Returns the field `name`.

        Raises:
            AttributeError: If there is none; the message names fields like it.
        """
        try:
            return self[name]
        except KeyError:
            no_column(name, self, "struct")

    def __dir__(self) -> list[str]:
        """Lists the fields too."""
        return sorted({*super().__dir__(), *self})

    def __hash__(self) -> int:  # type: ignore[override]
        """Hashes the fields: Spark's maps may have structs as keys."""
        return hash(frozenset(self.items()))

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002, N802
        """Returns the fields as a plain dict, as ``pyspark.sql.Row`` does.

        Args:
            recursive: Whether structs inside, also in arrays and maps, become plain dicts too.
        """
        return {name: _plain(value) for name, value in self.items()} if recursive else dict(self)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_plain(key): _plain(one) for key, one in items}
    return [_plain(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def no_column(name: str, names: Iterable[str], what: str = "row") -> NoReturn:
    """Raises the `AttributeError` of a `what` that has `names`, but not `name`."""
    part = "column" if what == "row" else "field"
    msg = f"the {what} has no {part} `{name}`"
    if not name.startswith("__"):
        msg += f"; {suggestion(name, names)}"
    raise AttributeError(msg)


# -- the functions

Results: TypeAlias = "Any"
"""What a function returns for a row: one row or a list of 0..n rows.

A row is a mapping, dataclass, NamedTuple, ``pyspark.sql.Row``, pydantic model or attrs class; for a
single column, also its value.
"""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class AsyncFunction(TakesOptions):
    """Base of functions with a life cycle.

    Counterpart of Flink's `RichAsyncFunction`. Override `async_invoke`, or `async_invoke_batch` to
    be called with many rows at once. One instance serves one task; it is pickled on the driver, so
    make connections in `open`, not in ``__init__``. Without Spark, an output whose instance another
    one calls at that time calls a copy of what it was before that (``copy.copy``).

    For a client that blocks, define `async_invoke` (or `async_invoke_batch`) as a plain ``def``: it
    is called in threads, several at the same time, so what it uses must bear that.

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
            and fails the task. ``None``: no limit for `open` (a warning is logged after 60 s), and
            30 s for `close`.
        blocked_loop_timeout: Ends the task when code that blocks, such as ``time.sleep``, keeps the
            event loop of the worker for so long; ``timeout=`` cannot cancel it. ``None`` only logs
            what blocks.
        threads: Of a plain ``def async_invoke``: calls at most at a time in a task, each in a
            thread. ``None``: `max_concurrency`, and 64 at most.

    Any option of `with_options` may be an attribute of the class, too, such as ``retry = 5`` and
    ``timeout = "5s"``. Options of the call win. An attribute of an instance, such as
    ``self.cache``, is never taken for an option.
    """

    schema: SchemaLike | None = None
    batch: Batch | int | None = None
    idempotent: bool | None = None
    setup_timeout: Duration | None = None
    blocked_loop_timeout: Duration | None = None
    threads: int | None = None

    def __init_subclass__(cls, **given: Any) -> None:
        """Checks the options in the body of a class.

        Raises:
            ConfigurationError: If a value is wrong, or a method has the name of an option.
        """
        super().__init_subclass__(**given)
        check_class(cls)

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return type(self).__qualname__

    def with_facts(self, facts: Mapping[str, Any]) -> AsyncFunction:
        """Returns a copy of the function that says `facts` of itself."""
        said = copy.copy(self)
        for name, value in facts.items():
            setattr(said, name, OF_FUNCTION[name].check(value, name))
        return said

    def what_is_called(self, *, batched: bool) -> Callable[[Any], Any]:
        """Returns what is called for a row, or for many."""
        return self.async_invoke_batch if batched else self.async_invoke

    def open(self, context: FunctionContext) -> Awaitable[None] | None:
        """Prepares the function, before any row. May be ``async def``."""

    # Not `async` here, so that a type checker takes both kinds of it below.
    def async_invoke(self, row: Row) -> Results:
        """Returns the results of one row: a mapping or another form of a row, or a list of 0..n.

        A row is a mapping, a dataclass, a NamedTuple, a ``pyspark.sql.Row``, a pydantic model or an
        attrs class; for a single column, its value will do. `row` has its columns by key and as
        attributes.

        An exception is a failure of this attempt; `sparkawait.RetryAfter` sets the delay of the
        retry. The call is cancelled when it has timed out or the task ends; a plain ``def`` goes on
        in its thread, and what it returns is not wanted.
        """
        raise NotImplementedError

    def async_invoke_batch(self, rows: Sequence[Row]) -> Results:
        """Returns a list with one result per row of `rows`, in their order."""
        raise NotImplementedError

    def on_timeout(self, row: Row) -> Results:  # noqa: ARG002 - for those who override it
        """Returns the results of a row that timed out, in the form of `async_invoke`'s.

        Not overridden, the timeout is the failure of the row. Runs on the event loop, so it must
        not block. What it raises is the failure of the row, and never retried.
        """
        msg = "async function call has timed out"
        raise ElementTimeoutError(msg, ErrorKind.ELEMENT_TIMED_OUT)

    def close(self) -> Awaitable[None] | None:
        """Releases what `open` made. Called once, whatever happened. May be ``async def``."""


AsyncFunctionLike: TypeAlias = (
    AsyncFunction | NativeFunction | FunctionWithOptions | Callable[..., Results]
)
"""What can be called for every row: an ``async def``, or a plain function, which is called in
threads; bare or declared with `async_function`. Or an instance of an `AsyncFunction`, or a native
function. What was declared may have options."""

AsyncFunctionsLike: TypeAlias = AsyncFunctionLike | Sequence[AsyncFunctionLike]
"""A function, or several that are called for a row side by side."""


class DeclaredFunction(OfColumns, AsyncFunction, Generic[_P, _R]):
    """A function with a schema; still callable, and typed, as the function it wraps."""

    is_called_with_rows = True

    def __init__(
        self,
        function: Callable[_P, _R],
        schema: SchemaLike | None = None,
        batch: Batch | None = None,
        *,
        idempotent: bool | None = None,
        blocked_loop_timeout: Duration | None = None,
        threads: int | None = None,
        options: WaitOptions = NONE_GIVEN,
    ) -> None:
        """Wraps `function`."""
        functools.update_wrapper(self, function)
        self.function = function
        self._name = describe(function)
        self.schema = schema
        self.batch = batch
        self.idempotent = idempotent
        self.blocked_loop_timeout = blocked_loop_timeout
        self.threads = threads
        self.options = options

    @property
    def name(self) -> str:
        """The name of the wrapped function."""
        return self._name

    def what_is_called(self, *, batched: bool) -> Callable[[Any], Any]:  # noqa: ARG002 - as it was declared
        """Returns the function itself, so that a call costs no further one."""
        return undeclared(self.function)

    def own_options(self) -> WaitOptions:
        """Returns the options that the decorator was given."""
        return self.options

    def with_facts(self, facts: Mapping[str, Any]) -> _Declared:
        """Returns the function that says `facts` of itself."""
        if "setup_timeout" in facts:
            refuse(f"`setup_timeout` bounds `open` and `close`, which `{self.name}` does not have")
        return declared(self, **facts)

    @overload
    def __call__(
        self, column: ColumnExpression, /, *columns: ColumnLike, **named: ColumnLike
    ) -> Any: ...
    @overload
    def __call__(self, name: str, column: ColumnExpression, /, *columns: ColumnLike) -> Any: ...
    @overload
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the wrapped function, as a test of it would; or returns the column of its results.

        It makes a column if one of the arguments is a ``Column``; others are names of columns then.
        A dict, or each of a list of them, is given as a row whose columns are attributes, too.

        Raises:
            ConfigurationError: If there is a ``Column`` beside a value.
        """
        if asks_for_column(self.name, *args, *kwargs.values()):
            return super().__call__(*args, **kwargs)
        called: Callable[..., Any] = self.function
        return called(*map(_as_row, args), **kwargs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickles by name where a plain function would be, so that its module's state is shared."""
        module, name = getattr(self.function, "__module__", None) or "", self.name
        is_found = getattr(sys.modules.get(module), name, None) is self
        if is_found and module != "__main__" and not is_pickled_by_value(module):
            return name
        made = functools.partial(
            DeclaredFunction,
            idempotent=self.idempotent,
            blocked_loop_timeout=self.blocked_loop_timeout,
            threads=self.threads,
            options=self.options,
        )
        return made, (self.function, self.schema, self.batch)


def _as_row(argument: Any) -> Any:
    if type(argument) is dict:
        return Struct(cast("dict[str, Any]", argument))
    if type(argument) is list:
        return list(map(_as_row, cast("list[Any]", argument)))
    return argument


_Declared: TypeAlias = DeclaredFunction[..., Any]


@overload
def async_function(
    function: Callable[_P, _R],
    /,
    *,
    batch: Batch | int | None = None,
    idempotent: bool | None = None,
    threads: int | None = None,
    blocked_loop_timeout: Duration | None = None,
    **given: Unpack[OwnArguments],
) -> DeclaredFunction[_P, _R]: ...
@overload
def async_function(
    schema: SchemaLike | None = None,
    *,
    batch: Batch | int | None = None,
    idempotent: bool | None = None,
    threads: int | None = None,
    blocked_loop_timeout: Duration | None = None,
    **given: Unpack[OwnArguments],
) -> Callable[[Callable[_P, _R]], DeclaredFunction[_P, _R]]: ...
@documented(OWN_OPTIONS, OwnArguments)
def async_function(
    schema: SchemaLike | Callable[..., Any] | None = None,
    *,
    batch: Batch | int | None = None,
    idempotent: bool | None = None,
    threads: int | None = None,
    blocked_loop_timeout: Duration | None = None,
    **given: Unpack[OwnArguments],
) -> _Declared | Callable[[Callable[..., Any]], _Declared]:
    """Declares what a function returns, so that it can be called for every row.

    An ``async def`` is called on an event loop. A plain ``def`` is called in threads, for clients
    that block, such as boto3 and requests. Its calls run at the same time, so what they share must
    bear that. A thread cannot be ended: a call whose row has timed out keeps its thread until it
    returns, so give the client a timeout of its own.

    Without a schema, the return annotation gives the columns: the fields of a dataclass,
    NamedTuple, TypedDict, pydantic model or attrs class, or a ``list`` of these for 0..n rows. A
    scalar type is one column named like the function. What is not ``Optional`` is NOT NULL. ``int``
    is ``bigint``, ``float`` is ``double``; for other types write ``Annotated[Decimal,
    "decimal(10,2)"]``.

    Args:
        schema: The returned columns: a DDL string, a `pyarrow.Schema` or a ``StructType``; ``None``
            takes them from the annotation. Or the function itself.
        batch: Calls the function with lists of rows; it returns one result per row. A `Batch`, or
            an int for its `max_rows`.
        idempotent: Whether a call that is made twice does no more than one. ``hedge=`` needs
            ``True``. With ``False`` a call that ran into ``attempt_timeout`` is not made again,
            whatever ``retry=`` says: it may have been carried out. With ``None`` it is.
        threads: Calls of a plain ``def`` at most at a time in a task, each in a thread. A job has
            as many for each of its tasks that run at once. ``None``: `max_concurrency`, and 64 at
            most.
        blocked_loop_timeout: Ends the task when code that blocks, such as ``time.sleep``, keeps the
            event loop of the worker for so long; ``timeout=`` cannot cancel it. ``None`` only logs
            what blocks.
        **given: Options of the function wherever it is called, such as ``timeout="5s"``; those of
            the call win. See `sparkawait.WaitOptions`.

    Returns:
        A decorator; if a function was given, the declared function. It can still be called and
        awaited by itself, as in ``await double({"x": 7})``, and type checkers know what it takes
        and returns.

    Raises:
        ConfigurationError: From the decorator, if the function is a generator, cannot be called
            with a row, is an ``async def`` with `threads`, or if an argument is wrong.

    Examples:
        >>> @async_function("doubled bigint")
        ... async def double(row):
        ...     return {"doubled": 2 * row["x"]}
        >>> @async_function("size bigint", threads=16)
        ... def size(row):
        ...     return {"size": s3.head_object(Bucket=row.bucket, Key=row.key)["ContentLength"]}
        >>> @async_function
        ... async def tripled(row) -> int:
        ...     return 3 * row.x
    """
    columns = None if is_function(schema) else schema

    def decorate(function: Callable[..., Any]) -> _Declared:
        return declared(
            function,
            columns,
            batch,
            idempotent=idempotent,
            blocked_loop_timeout=blocked_loop_timeout,
            threads=threads,
            given=given,
        )

    return decorate(schema) if is_function(schema) else decorate


def declared(
    function: object,
    schema: SchemaLike | None = None,
    batch: Batch | int | None = None,
    *,
    given: OwnArguments | None = None,
    **facts: Any,
) -> _Declared:
    """Wraps an ``async def`` or a plain function, or anything that is called like one.

    Args:
        function: What is wrapped.
        schema: As for `async_function`, as what follows.
        batch: How rows are collected.
        given: Its options.
        **facts: What it says of itself, of `OF_FUNCTION`.

    Raises:
        ConfigurationError: If it is something else, does not take a row, or an argument is wrong.
    """
    name = check_function(function)
    short = name.rsplit(".", 1)[-1]
    hint = f"; or call it with values of columns, as sparkawait.async_udf({short})(..)"
    check_call(function, name, "row" if batch is None else "rows", hint)
    if schema is not None:
        to_schema(schema)
    said = {it: OF_FUNCTION[it].check(value, it) for it, value in facts.items()}
    if said.get("threads") is not None:
        refuse_threads(function, name)
    return DeclaredFunction(
        cast("Callable[..., Any]", function),
        schema,
        OF_FUNCTION["batch"].check(batch, "batch"),
        options=declared_options(given or {}),
        **said,
    )
