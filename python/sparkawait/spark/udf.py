# SPDX-License-Identifier: Apache-2.0
"""The ordered wait as a column function, for ``select``, ``withColumn`` and SQL.

To be used on the driver, from any thread.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import ArrayType, DataType, StructType

from sparkawait._callables import check_function, describe
from sparkawait._checks import flag, nullable, refuse, shown
from sparkawait._option import documented, refuse_unknown
from sparkawait._plan.called import check_picklable, facts_of, is_declared, left_out_of
from sparkawait._plan.plan import Place, Plan, Results, told_fields, without
from sparkawait._plan.resolve import Around, Call, plan_of
from sparkawait._schema.classes import names_columns, schema_of
from sparkawait._schema.types import ReturnsLike, to_result, to_schema
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunction, AsyncFunctionLike, NativeFunction, declared
from sparkawait.metrics import Metrics, counted_in
from sparkawait.options import (
    COLUMN_OPTIONS,
    OPTIONS,
    ColumnArguments,
    FunctionWithOptions,
    WaitOptions,
    of_call,
    with_own_options,
)
from sparkawait.outcomes import TUNING, Tuning, action_of
from sparkawait.spark.columns import (
    Arguments,
    ColumnTask,
    FallbackFunction,
    ValuesFunction,
    dropping_misses,
)
from sparkawait.spark.expressions import HiddenArguments
from sparkawait.spark.interrupts import watch
from sparkawait.spark.owner import reports_of
from sparkawait.spark.schemas import PlaceOfSession, bare, columns_for_spark, conformed, to_spark
from sparkawait.spark.session import Session, require_packages, run_drivers_python

if TYPE_CHECKING:
    from pyspark.sql import Column
    from typing_extensions import Unpack

__all__ = [
    "Argument",
    "AsyncUserDefinedFunction",
    "argument_names",
    "as_column",
    "async_udf",
    "members",
]

# -- what a column function is called with: columns, and the names that they have in its row
#
# To be used on the driver, from any thread.


Argument: TypeAlias = "Column | str | float | Decimal | date | timedelta | bytes"
"""A column, its name, or a value that stands for itself."""


def as_column(argument: Argument) -> Column:
    """Returns the column that `argument` stands for: a text is a name, as in Spark's functions."""
    if isinstance(argument, (bool, int, float, Decimal, date, timedelta, bytes)):
        return F.lit(argument)
    return F.col(argument) if isinstance(argument, str) else argument


def members(
    function: str, names: Sequence[str] | None, arguments: Sequence[Argument]
) -> list[Column]:
    """Returns the columns of the row of `function`, under the `names` that it has for them.

    Raises:
        ConfigurationError: If it has none, and a column is there twice.
    """
    found = [as_column(one) for one in arguments]
    if names is not None:
        return [one.alias(name) for one, name in zip(found, names, strict=True)]
    texts = [_text_of(one) for one in found]
    twice = next((one for one in texts if texts.count(one) > 1), None)
    if twice is not None:
        msg = (
            f"`{function}` takes a row, and got column `{twice}` twice; give it once, or name the"
            " columns with async_udf(.., columns=[..])"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    return found


def _text_of(column: Column) -> str:
    """Returns how PySpark writes a column."""
    return repr(column)[len("Column<'") : -len("'>")]


def argument_names(columns: object) -> tuple[str, ...] | None:
    """Returns the names of the arguments, if there are any.

    Raises:
        ConfigurationError: If they are not names, or not distinct.
    """
    if columns is None:
        return None
    names = cast("Sequence[object]", columns)
    if (
        not isinstance(columns, (list, tuple))
        or not names
        or not all(isinstance(name, str) for name in names)
        or len(set(names)) < len(names)
    ):
        msg = f"`columns` must be a list of distinct names, got {shown(columns)}"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    return tuple(cast("Sequence[str]", names))


# -- the function of columns


_HAS_ARROW_UDF = hasattr(F, "arrow_udf")
"""Since Spark 4.1; before, columns pass through pandas."""


@overload
def async_udf(
    function: AsyncFunctionLike,
    returns: ReturnsLike | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    skip_null: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[ColumnArguments],
) -> AsyncUserDefinedFunction: ...
@overload
def async_udf(
    returns: ReturnsLike | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    skip_null: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[ColumnArguments],
) -> Callable[[AsyncFunctionLike], AsyncUserDefinedFunction]: ...
@documented(COLUMN_OPTIONS, ColumnArguments)
def async_udf(
    function: AsyncFunctionLike | ReturnsLike | None = None,
    returns: ReturnsLike | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    skip_null: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[ColumnArguments],
) -> AsyncUserDefinedFunction | Callable[[AsyncFunctionLike], AsyncUserDefinedFunction]:
    """Makes a column function that calls `function` for every row, with many calls in flight.

    The asynchronous form of ``pyspark.sql.functions.udf``: also a decorator, with or without
    arguments. A bare ``async def``, or a plain function (in threads), is called with the values of
    its columns, by position and by keyword. A function that was declared for rows, by
    `sparkawait.async_function` or as an `sparkawait.AsyncFunction`, gets the row that its columns
    make up.

    There is one result per row; none, ``None`` or an empty list, is null. It is a plain column if
    the type is one, such as ``"long"``, else a struct of the returned columns; a function of rows
    that returns a single column gives that. It is marked as non-deterministic, so that Spark's
    optimiser does not call it twice for a row.

    Use `ordered_wait` for functions with several results per row, or to drop rows that failed.

    Args:
        function: As for `ordered_wait`. A native function, such as ``sa.http.get(..)``, takes the
            columns that it names, by name or in the order in which it names them. Without options
            it is a column function itself: ``sa.http.get(..)("id")``.
        returns: What it returns, if it has no schema: a type alone (``"long"``, a
            ``LongType()``) or columns (``"name string, tier int"``, a ``StructType``).
        columns: Names of the arguments in the row that a function of rows gets. Without it they
            are called as their columns; in SQL, pass one ``named_struct`` then.
        skip_null: Whether a row in which one of the columns is null makes no call; its result is
            null. Spark computes a function for every row whatever condition stands around it, so
            the condition belongs into it: ``lookup(F.when(F.col("tier") > 1, F.col("id")))``.
        metrics: Adds up the metrics of all tasks, see `sparkawait.Metrics`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.

    Returns:
        A function of columns, to be given to ``spark.udf.register``, too. A single struct column
        is the row itself for a function of rows.

    Raises:
        ConfigurationError: If an argument is wrong, ``on_error="drop"`` included.

    Examples:
        >>> @async_udf("double", timeout="5s")  # doctest: +SKIP
        ... async def temperature(city, hour):
        ...     return await weather.at(city, hour)
        >>> df.withColumn("temperature", temperature("city", df.hour))  # doctest: +SKIP
        >>> spark.udf.register("temperature", temperature)  # doctest: +SKIP
        >>> spark.sql("SELECT temperature(city, hour) FROM flights")  # doctest: +SKIP
    """
    require_packages()
    every: dict[str, Any] = {} if options is None else of_call(options, {}).given
    every = {**every, **given}
    check_options(every)
    flag(skip_null, "skip_null")
    if not is_function(function):
        if function is not None:
            every["schema"] = function
        return lambda decorated: _column_function(
            decorated, columns, metrics, every, skip_null=skip_null
        )
    if returns is not None:
        every["schema"] = returns
    return _column_function(function, columns, metrics, every, skip_null=skip_null)


def _column_function(
    function: object,
    columns: Sequence[str] | None,
    metrics: Metrics | None,
    given: Mapping[str, Any],
    *,
    skip_null: bool,
) -> AsyncUserDefinedFunction:
    function = with_own_options(function)
    if isinstance(function, FunctionWithOptions):
        given, function = {**function.options.given, **given}, function.function
        check_options(given)
    if isinstance(function, (list, tuple)):
        refuse(
            "a column function calls one function, got a list; use a wait function for several"
            " side by side, as in sparkawait.ordered_wait(df, [f, g])"
        )
    hidden, names = HiddenArguments(), argument_names(columns)
    options = dict(hidden.options(WaitOptions(**given)).given)
    function = _of_rows(function)
    called: Any = function
    is_bare = not isinstance(function, (AsyncFunction, NativeFunction))
    if is_bare:
        check_function(function)
    returns = returned_type(function, options.get("schema"))
    if isinstance(returns, pa.Field):
        name = describe(called) if is_bare else called.name
        options["schema"] = pa.schema([returns.with_name(name)])
    elif returns is not None:
        options["schema"] = returns
    is_struct = False
    if is_bare:
        if names is not None:
            refuse("`columns` names the arguments of a function of rows; use @async_function")
        is_struct = not isinstance(returns, pa.Field)
        column = None if is_struct else describe(called)
        if callable(options.get("on_timeout")):
            called = FallbackFunction(called, column, options.pop("on_timeout"))
        else:
            called = ValuesFunction(called, column)
    is_native = isinstance(function, NativeFunction)
    _check_rows(called)
    if is_native and names is None:
        names = tuple(dict.fromkeys(called.input_columns)) or None
    options["tuning"] = _tuning(options)
    # What is wrong must be known now; what the session says is asked at each call.
    call = Call.of(called, WaitOptions(**options), _RESULTS)
    check_picklable(call, called.name)
    _plan(call, hidden, Place())
    times = Session.active().times
    conformed(columns_for_spark(call.declared_schema, called, times), times)
    return AsyncUserDefinedFunction(
        call,
        names,
        metrics,
        hidden=hidden,
        is_struct=is_struct,
        skip_null=skip_null,
        wrapped=function,
    )


_RESULTS: Results = "one"


def _plan(call: Call, hidden: HiddenArguments, place: Place) -> Plan:
    is_native = isinstance(call.function, NativeFunction)
    around = Around(
        "ordered",
        place,
        hidden=hidden.names,
        keeps_input=is_native,
        results=_RESULTS,
        travels=True,
    )
    return plan_of(call, around)


def _of_rows(function: object) -> object:
    """Returns a partial of a declared function as declared: it takes rows, too."""
    is_wrapped = is_declared(function) and not isinstance(function, AsyncFunction)
    return declared(function) if is_wrapped else function


def _check_rows(function: AsyncFunction | NativeFunction) -> None:
    batch = facts_of(function).batch
    if isinstance(function, AsyncFunction) and batch is not None and batch.arrow:
        refuse(
            f"`{function.name}` takes record batches, which a column function does not have; use a"
            " wait function, such as sparkawait.ordered_wait"
        )


def _tuning(options: Mapping[str, Any]) -> Tuning:
    tuning = TUNING.check(options.get("tuning"), "tuning")
    if tuning != Tuning(max_bytes=tuning.max_bytes, target_latency=tuning.target_latency):
        refuse(
            "a column function has its batches cut by Spark: of Tuning it takes `max_bytes` and"
            " `target_latency`, and neither `buffer_timeout`, `max_rows` nor `warm_up`"
        )
    # Spark takes no result before it has all of an input batch, however few rows it wants.
    return dataclasses.replace(tuning, buffer_timeout="100ms", warm_up=False)


class AsyncUserDefinedFunction:
    """What `async_udf` returns: called with columns, it returns a column.

    Has the attributes that Spark looks for in a user defined function.
    """

    deterministic = False
    evalType = (  # noqa: N815 - Spark's name
        F.ArrowUDFType.SCALAR_ITER if _HAS_ARROW_UDF else F.PandasUDFType.SCALAR_ITER
    )

    def __init__(
        self,
        call: Call,
        names: tuple[str, ...] | None,
        metrics: Metrics | None,
        *,
        hidden: HiddenArguments,
        is_struct: bool,
        skip_null: bool,
        wrapped: object,
    ) -> None:
        """Takes a checked call."""
        functools.update_wrapper(cast("Any", self), cast("Any", wrapped), updated=())
        self.__name__ = call.function.name
        self._call = call
        self._names = names
        self._hidden = hidden
        self._metrics = counted_in(metrics)
        self._is_struct = is_struct
        self._skip_null = skip_null

    def __call__(self, *columns: Argument, **named: Argument) -> Column:
        """Returns the column of results for rows that are made of `columns`.

        Args:
            *columns: Columns, or their names. Numbers, dates and times stand for themselves; write
                ``F.lit("text")`` for a text.
            **named: Those that the function takes by keyword; a function of rows takes all by the
                names of its ``columns=``, or none.

        Raises:
            ConfigurationError: If there is no column, or not as many as the function takes.
        """
        function = self._call.function
        if isinstance(function, ValuesFunction):
            return self._call_with_values(function, (*columns, *named.values()), tuple(named))
        name = self._call.function.name
        if named:
            names = self._names or ()
            if columns or named.keys() != set(names):
                by_name = f", or all by name: {', '.join(names)}" if names else ""
                got = f"got {', '.join(named)} by name"
                msg = f"`{name}` takes its columns by position{by_name}; {got}"
                raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
            columns = tuple(named[one] for one in names)
        if not columns or (self._names is not None and len(self._names) != len(columns)):
            wanted = "at least one" if self._names is None else str(len(self._names))
            word = "columns" if self._names is not None and len(self._names) != 1 else "column"
            msg = f"`{name}` must be called with {wanted} {word}, got {len(columns)}"
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        may_be_row = self._names is None and len(columns) == 1
        hidden = self._hidden
        arguments = Arguments(self._names, packed=True, may_be_row=may_be_row, hidden=hidden.names)
        session = Session.active()
        evaluate, declared = self._evaluator(self._call, arguments, session), self._type_in(session)
        row = hidden.within(F.struct(*members(self._call.function.name, self._names, columns)))
        if _HAS_ARROW_UDF:
            return declared.of(_call(cast("Any", F.arrow_udf)(evaluate, declared.bare), row))
        return declared.of(self._through_pandas(evaluate, row, declared))

    def _call_with_values(
        self,
        function: ValuesFunction,
        columns: tuple[Argument, ...],
        keywords: tuple[str, ...],
    ) -> Column:
        name = self._call.function.name
        called = function.with_keywords(keywords)
        misfit = called.misfit(len(columns)) if columns else "it needs at least one column"
        if misfit is not None:
            msg = f"`{name}` cannot be called with these {len(columns)} columns: {misfit}"
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        call, hidden = dataclasses.replace(self._call, function=called), self._hidden
        places = tuple(str(index) for index in range(len(columns) - len(keywords))) + keywords
        arguments = Arguments(
            places,
            packed=not _HAS_ARROW_UDF,
            may_be_row=False,
            are_values=True,
            hidden=hidden.names,
        )
        session = Session.active()
        evaluate, declared = self._evaluator(call, arguments, session), self._type_in(session)
        if _HAS_ARROW_UDF:
            arrow_udf = cast("Any", F.arrow_udf)(evaluate, declared.bare)
            arguments_of_call = (*map(as_column, columns), *hidden.arguments)
            return declared.of(_call(arrow_udf, *arguments_of_call))
        members = zip(map(F.lit, places), map(as_column, columns), strict=True)
        row = hidden.within(F.named_struct(*itertools.chain.from_iterable(members)))
        result = self._through_pandas(evaluate, row, declared)
        from sparkawait.spark.before_4_1 import name_of

        # As a column of Spark's own function is called.
        plain = F.udf(_named(name), declared.bare)(*map(as_column, columns))
        return declared.of(result).alias(name_of(plain) or _text_of(plain))

    def _through_pandas(self, evaluate: Callable[..., Any], row: Column, declared: _Type) -> Column:
        from sparkawait.spark.before_4_1 import OPTIONS, PROBE

        # Pandas has fewer types than Spark, so values are sent as texts, and their types along.
        text, probe = F.to_json(row, OPTIONS), F.to_json(F.expr(PROBE), OPTIONS)
        is_struct = isinstance(declared.bare, StructType)
        wrapped = ArrayType(declared.bare) if is_struct else declared.bare
        pandas_udf = cast("Any", F.pandas_udf)(evaluate, wrapped)
        result = _call(pandas_udf, text, F.typeof(row), F.current_timezone(), probe)
        # A struct cannot be null itself, an array can be empty.
        return F.get(result, F.lit(0)) if is_struct else result

    @property
    def func(self) -> Callable[..., Any]:
        """What Spark calls in the executor when the function was registered for SQL.

        Raises:
            ConfigurationError: If a result has a collation, or a struct may be null that cannot be.
        """
        name = self._call.function.name
        self._hidden.check_none(name)
        session = Session.active()
        # Intervals are from days to seconds in SQL: the values are the same.
        if " collate " in self._type_in(session).declared.simpleString():
            msg = (
                f"`{name}` returns a string with a collation, which Spark does not take from a"
                " function in SQL; leave the collation out, or call the function on columns"
            )
            raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
        is_struct = isinstance(self.returnType, StructType)
        if not _HAS_ARROW_UDF and is_struct and self._call.options.on_error.action == "null":
            msg = (
                f"before Spark 4.1 the struct that `{name}` returns cannot be null in SQL; use"
                " on_error='capture', return one column, or call it on columns"
            )
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
        are_values = isinstance(self._call.function, ValuesFunction)
        arguments = Arguments(self._names, packed=False, may_be_row=False, are_values=are_values)
        return self._evaluator(self._call, arguments, session)

    @property
    def returnType(self) -> DataType:  # noqa: N802 - Spark's name
        """The type of a result, as Spark takes it from a function."""
        return self._type_in(Session.active()).bare

    def _type_in(self, session: Session) -> _Type:
        call = self._call
        columns = columns_for_spark(call.declared_schema, call.function, session.times)
        columns = without(columns, left_out_of(call.function))
        told = told_fields(call.options)
        # With nothing told beside it, a result that is missing is null as a whole.
        fields = to_spark(pa.schema([*(nullable(columns) if told else columns), *told])).fields
        is_plain = len(fields) == 1 and not self._is_struct
        return _Type(fields[0].dataType if is_plain else StructType(fields))

    def asNondeterministic(self) -> AsyncUserDefinedFunction:  # noqa: N802 - Spark's name
        """Returns the function itself, which is non-deterministic."""
        return self

    def _evaluator(self, call: Call, arguments: Arguments, session: Session) -> Callable[..., Any]:
        # Asked at each call: the function may be older than the session. The one that runs the
        # query may be another still, and its tasks know it.
        run_drivers_python(session)
        if session.spark is not None:
            watch(session.spark)
        place = PlaceOfSession(session, usual_zone=session.usual_zone)
        plan = _plan(dropping_misses(call), self._hidden, place)
        task = ColumnTask(
            plan,
            arguments,
            reports_of(session, plan, self._metrics),
            is_struct=self._is_struct,
            skip_null=self._skip_null,
            usual_zone=session.usual_zone,
        )
        if _HAS_ARROW_UDF:
            return task.arrow_function()
        from sparkawait.spark.before_4_1 import pandas_function

        return pandas_function(task)


class _Type:
    """The type of a result in a session.

    Attributes:
        declared: As it was declared.
        bare: As Spark takes it from a function.
    """

    def __init__(self, declared: DataType) -> None:
        self.declared = declared
        self.bare = bare(declared)

    def of(self, result: Column) -> Column:
        """Gives results what Arrow's types have no place for: collations and comments."""
        return result if self.declared == self.bare else result.cast(self.declared)


def _named(name: str) -> Callable[..., None]:
    """Returns a function of this name, which is never called."""

    def never(*_: Any, **__: Any) -> None:
        return None

    never.__name__ = name
    return never


def _call(function: Any, *arguments: Column | str) -> Column:
    """Calls a user defined function that must not be evaluated twice."""
    return cast("Column", function.asNondeterministic()(*arguments))


# -- what a column function is said to be: its type, its arguments and its options


def is_function(value: object) -> bool:
    """Tells a function from what it returns, and from nothing."""
    is_type = isinstance(value, (str, pa.Schema, pa.DataType, DataType)) or names_columns(value)
    return value is not None and not is_type and not hasattr(value, "__arrow_c_schema__")


def returned_type(function: object, schema: object) -> pa.Schema | pa.Field[Any] | None:
    """Returns what a function is said to return, or a bare one is annotated with.

    That is columns, or a plain column whose name says nothing.
    """
    if schema is not None:
        return to_result(schema)
    if isinstance(function, (AsyncFunction, NativeFunction)):
        return None
    name = describe(function)
    annotated = schema_of(function, name, batched=False)
    if annotated is None:
        msg = f"`{name}` has no type; use @async_udf('type'), or annotate what it returns"
        raise ConfigurationError(msg, ErrorKind.SCHEMA_MISSING)
    found = to_schema(annotated)
    if found.names != [name.rsplit(".", 1)[-1]]:
        return found
    return pa.field("", found.field(0).type, metadata=cast("Any", found.field(0).metadata))


def check_options(given: Mapping[str, object]) -> None:
    """Checks that a column function has these options.

    Raises:
        ConfigurationError: If one is unknown, or of the wait functions only.
    """
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None:
            refuse_unknown(name, COLUMN_OPTIONS)
        if not option.of_columns and value != option.default:
            refuse(f"`{name}` is not an option of a column function; use ordered_wait")
    if action_of(given.get("on_error")) == "drop":
        refuse("`on_error` must not be 'drop' for a column function; use ordered_wait to drop rows")
