# SPDX-License-Identifier: Apache-2.0
"""The ordered wait as a column function, for ``select``, ``withColumn`` and SQL.

To be used on the driver, from any thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import ArrayType, DataType, StructType

from sparkawait._plan import options as plans
from sparkawait._plan.checks import refuse, shown
from sparkawait._plan.option import documented, refuse_unknown
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunctionLike
from sparkawait.native_function import NativeFunction
from sparkawait.spark.columns import FOUND, Arguments, ColumnPlan, ColumnTask
from sparkawait.spark.drivers_python import run_drivers_python
from sparkawait.spark.metrics import Metrics, accumulator_of
from sparkawait.spark.returned import conform, result_fields
from sparkawait.spark.schemas import bare
from sparkawait.spark.texts import OPTIONS as TEXT_OPTIONS
from sparkawait.spark.texts import PROBE
from sparkawait.spark.workers import require_packages
from sparkawait.wait_options import COLUMN_OPTIONS, OPTIONS, ColumnArguments, WaitOptions

if TYPE_CHECKING:
    from pyspark.sql import Column
    from typing_extensions import Unpack

__all__ = ["AsyncUserDefinedFunction", "async_udf"]

_HAS_ARROW_UDF = hasattr(F, "arrow_udf")
"""Since Spark 4.1; before, columns pass through pandas."""


@documented(COLUMN_OPTIONS, ColumnArguments)
def async_udf(
    function: AsyncFunctionLike,
    *,
    columns: Sequence[str] | None = None,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[ColumnArguments],
) -> AsyncUserDefinedFunction:
    """Makes a column function that calls `function` for every row, with many calls in flight.

    The function must have one result per row; none, an empty list, becomes null. Its value is a
    struct of the returned columns, or the column itself if there is one only. It is marked as
    non-deterministic, so that Spark's optimiser does not call it twice for a row.

    Use `ordered_wait` for functions with several results per row, or to drop rows that failed.

    Args:
        function: As for `ordered_wait`, but no native function.
        columns: Names of the arguments in the row that the function gets. Without it they are
            called as their columns; in SQL, pass one ``named_struct`` then.
        metrics: Collects the metrics of all tasks; classic sessions only.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.

    Returns:
        A function of one or more columns. A single struct column is the row itself. It can be given
        to ``spark.udf.register``.

    Raises:
        ConfigurationError: If an argument is wrong, ``on_error="drop"`` included.

    Examples:
        >>> weather = async_udf(fetch_weather, timeout="5s")  # doctest: +SKIP
        >>> df.withColumn("weather", weather(df.origin, "hour"))  # doctest: +SKIP
        >>> spark.udf.register("weather", weather)  # doctest: +SKIP
        >>> spark.sql(
        ...     "SELECT weather(named_struct('origin', origin, 'hour', hour)) FROM flights"
        ... )  # doctest: +SKIP
    """
    require_packages()
    every = plans.all_given(options, given)
    _check_options(every)
    if isinstance(function, NativeFunction):
        msg = (
            f"`{function.name}` is a native function, which async_udf cannot call; use ordered_wait"
        )
        raise ConfigurationError(msg, ErrorKind.FUNCTION_INVALID)
    # Spark takes no result before it has all of an input batch, however few rows it wants.
    fixed = {"output": "replace", "buffer_timeout": "100ms", "warm_up": False}
    plan = plans.resolve("ordered", function, input_schema=None, **{**every, **fixed})
    return AsyncUserDefinedFunction(ColumnPlan.of(conform(plan)), _names(columns), metrics)


def _check_options(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None:
            refuse_unknown(name, COLUMN_OPTIONS)
        if not option.of_columns and value != option.default:
            refuse(f"`{name}` is no option of a column function; use ordered_wait")
    if given.get("on_error") == "drop":
        refuse("`on_error` must not be 'drop' for a column function; use ordered_wait to drop rows")


class AsyncUserDefinedFunction:
    """What `async_udf` returns: called with columns, it returns a column.

    Has the attributes by which Spark recognises a user defined function.
    """

    deterministic = False
    evalType = (  # noqa: N815 - Spark's name
        F.ArrowUDFType.SCALAR_ITER if _HAS_ARROW_UDF else F.PandasUDFType.SCALAR_ITER
    )

    def __init__(
        self, plan: ColumnPlan, names: tuple[str, ...] | None, metrics: Metrics | None
    ) -> None:
        """Takes a checked plan."""
        self._plan = plan
        self._names = names
        self._accumulator = accumulator_of(metrics)

    def __call__(self, *columns: Column | str) -> Column:
        """Returns the column of results for rows that are made of `columns`.

        Raises:
            ConfigurationError: If there is no column, or not as many as names were given.
        """
        if not columns or (self._names is not None and len(self._names) != len(columns)):
            wanted = "at least one" if self._names is None else str(len(self._names))
            name = self._plan.function_name
            msg = f"`{name}` must be called with {wanted} columns, got {len(columns)}"
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        may_be_row = self._names is None and len(columns) == 1
        arguments = Arguments(self._names, packed=True, may_be_row=may_be_row)
        evaluate, row = self._evaluator(arguments), F.struct(*columns)
        if _HAS_ARROW_UDF:
            return self._declared(_call(cast("Any", F.arrow_udf)(evaluate, self.returnType), row))
        # Pandas has fewer types than Spark, so values are sent as texts, and their types along.
        text, probe = F.to_json(row, TEXT_OPTIONS), F.to_json(F.expr(PROBE), TEXT_OPTIONS)
        is_struct = isinstance(self.returnType, StructType)
        wrapped = ArrayType(self.returnType) if is_struct else self.returnType
        pandas_udf = cast("Any", F.pandas_udf)(evaluate, wrapped)
        result = _call(pandas_udf, text, F.typeof(row), F.current_timezone(), probe)
        # A struct cannot be null itself, an array can be empty.
        return self._declared(F.get(result, F.lit(0)) if is_struct else result)

    def _declared(self, result: Column) -> Column:
        """Gives results what Arrow's types have no place for: collations and comments."""
        declared = self._declared_type
        return result if declared == self.returnType else result.cast(declared)

    @property
    def func(self) -> Callable[..., Any]:
        """What Spark calls in the executor when the function was registered for SQL.

        Raises:
            ConfigurationError: If a result has a collation, or a struct may be null that cannot be.
        """
        name = self._plan.function_name
        if self.returnType.simpleString() != self._declared_type.simpleString():
            msg = (
                f"`{name}` returns a string with a collation, which Spark does not take from a"
                " function in SQL; leave the collation out, or call the function on columns"
            )
            raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
        is_struct = isinstance(self.returnType, StructType)
        if not _HAS_ARROW_UDF and is_struct and self._plan.options.on_error == "null":
            msg = (
                f"before Spark 4.1 the struct that `{name}` returns cannot be null in SQL; use"
                " on_error='capture', return one column, or call it on columns"
            )
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
        return self._evaluator(Arguments(self._names, packed=False, may_be_row=False))

    @functools.cached_property
    def returnType(self) -> DataType:  # noqa: N802 - Spark's name
        """The type of a result, as Spark takes it from a function."""
        return bare(self._declared_type)

    @functools.cached_property
    def _declared_type(self) -> DataType:
        fields = [field for field in result_fields(self._plan) if field.name != FOUND.name]
        return fields[0].dataType if len(fields) == 1 else StructType(fields)

    def asNondeterministic(self) -> AsyncUserDefinedFunction:  # noqa: N802 - Spark's name
        """Returns the function itself, which is non-deterministic."""
        return self

    def _evaluator(self, arguments: Arguments) -> Callable[..., Any]:
        session = SparkSession.getActiveSession()
        if session is not None:
            run_drivers_python(session)
        task = ColumnTask(self._plan, arguments, self._accumulator)
        if _HAS_ARROW_UDF:
            return task.arrow_function()
        from sparkawait.spark.pandas_columns import pandas_function

        return pandas_function(task)


def _call(function: Any, *arguments: Column) -> Column:
    """Calls a user defined function that must not be evaluated twice."""
    return cast("Column", function.asNondeterministic()(*arguments))


def _names(columns: object) -> tuple[str, ...] | None:
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
