# SPDX-License-Identifier: Apache-2.0
"""The three wait functions over DataFrames.

They check their arguments and add one ``mapInArrow`` to the query; nothing is called before Spark
runs it. To be called on the driver, from any thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

from sparkawait._checks import ColumnsLike, refuse
from sparkawait._option import documented
from sparkawait._plan import resolve as plans
from sparkawait._plan.plan import Chain, Mode, Results
from sparkawait.exceptions import ErrorKind
from sparkawait.functions import AsyncFunctionsLike, NativeFunction
from sparkawait.metrics import Metrics
from sparkawait.options import OPTIONS, WaitArguments, WaitOptions, has_expressions, of_call
from sparkawait.spark.carry import carried, carry_of, check_carry_over, check_same
from sparkawait.spark.expressions import HiddenColumns
from sparkawait.spark.interrupts import watch
from sparkawait.spark.owner import reports_of
from sparkawait.spark.schemas import (
    PlaceOfSession,
    casts,
    check_columns,
    check_keys,
    result_fields,
    to_arrow,
)
from sparkawait.spark.session import Session, check_workers, require_packages, run_drivers_python
from sparkawait.spark.step import check_only, check_vehicle
from sparkawait.spark.tasks import (
    Made,
    PartitionTask,
    check_not_persisted,
    remember,
    step_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import Unpack

__all__ = ["key_ordered_wait", "ordered_wait", "unordered_wait"]


@documented(OPTIONS, WaitArguments)
def ordered_wait(
    df: DataFrame,
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> DataFrame:
    """Calls `function` for every row of `df`; rows keep their order within a partition.

    Counterpart of Flink's ``AsyncDataStream.orderedWait``. A slow call holds back the rows behind
    it from leaving, while up to `capacity` of them are called for.

    Args:
        df: A batch or streaming DataFrame, of a classic session or of Spark Connect.
        function: What is called: an ``async def``, or a plain function, which is called in threads,
            declared with `sparkawait.async_function`; an `sparkawait.AsyncFunction`, or a native
            function. All functions of a list are called for a row side by side, and their columns
            are appended in its order. Each has one result a row. ``function.with_options(..)`` sets
            options of one; the others have those of this call.
        chain: Whether this call joins the Python worker of the call that returned `df`, which must
            be untouched. One thread drives both operators, and rows pass from one to the other
            without Spark. The query then contains no `df`, so that must not be persisted: its calls
            would be made once more.
        metrics: Adds up the metrics of all tasks, see `sparkawait.Metrics`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.

    Returns:
        A lazy DataFrame with the same partitions. Field metadata of `df`, a watermark included, is
        kept.

    Raises:
        ConfigurationError: If an argument is wrong. Raised here, not when the query runs.
    """
    return _wait(df, "ordered", function, metrics, of_call(options, given), chain=chain)


@documented(OPTIONS, WaitArguments)
def unordered_wait(
    df: DataFrame,
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> DataFrame:
    """Calls `function` for every row of `df`; rows are emitted as their calls complete.

    Counterpart of Flink's ``AsyncDataStream.unorderedWait``. With `watermark`, no row crosses a
    watermark in either direction. The result and the errors are those of `ordered_wait`.

    Args:
        df: A batch or streaming DataFrame, of a classic session or of Spark Connect.
        function: What is called for every row, as in `ordered_wait`.
        chain: Whether this call joins the Python worker of the call that returned `df`.
        metrics: Adds up the metrics of all tasks, see `sparkawait.Metrics`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait(df, "unordered", function, metrics, of_call(options, given), chain=chain)


@documented(OPTIONS, WaitArguments)
def key_ordered_wait(
    df: DataFrame,
    function: AsyncFunctionsLike,
    *,
    key: ColumnsLike,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> DataFrame:
    """Calls `function` for one row per key at a time; rows of a key keep their order.

    Keys are called for in parallel. Order is kept within a partition: repartition by the key first
    if rows of one key are spread over several. Rows with a null key are not ordered. The result and
    the errors are those of `ordered_wait`; `timeout` includes the wait for the key.

    Args:
        df: A batch or streaming DataFrame, of a classic session or of Spark Connect.
        function: What is called for every row, as in `ordered_wait`.
        key: What makes up the key: a column, an expression, or several.
        chain: Whether this call joins the Python worker of the call that returned `df`.
        metrics: Adds up the metrics of all tasks, see `sparkawait.Metrics`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait(
        df, "key_ordered", function, metrics, of_call(options, given), chain=chain, key=key
    )


def _wait(
    df: DataFrame,
    mode: Mode,
    function: object,
    metrics: Metrics | None,
    options: WaitOptions,
    *,
    chain: bool,
    key: ColumnsLike | None = None,
) -> DataFrame:
    df = brought_together(df, mode, function, chain=chain)
    step = made(df, mode, function, options, metrics=metrics, chain=chain, key=key)
    source, names = with_safe_names(step.source)
    if step.carry is not None:
        return remember(carried(step.carry, source, names, step), step)
    task = PartitionTask(
        step.chain, names=names, result_types=step.result_types, reports=step.reports
    )
    return remember(source.mapInArrow(task, step.schema), step)


def made(
    df: DataFrame,
    mode: Mode,
    function: object,
    options: WaitOptions,
    *,
    metrics: Metrics | None,
    chain: bool = False,
    key: ColumnsLike | None = None,
    results: Results = "rows",
) -> Made:
    """Returns what a wait function adds to the query of `df`, whose rows it gets.

    Args:
        df: The input.
        mode: Which order the output has.
        function: What is called for every row.
        options: The options of the call.
        metrics: Adds up the metrics of all tasks.
        chain: Whether this call joins the worker of the one that returned `df`.
        key: What makes up the key, in the key-ordered mode.
        results: What a row has of the function.

    Raises:
        ConfigurationError: If an argument is wrong.
    """
    if not hasattr(df, "mapInArrow"):
        given_type = type(df)
        msg = (
            "`df`, which comes before the function, must be a DataFrame of Spark, got"
            f" `{given_type.__module__}.{given_type.__qualname__}`"
        )
        if hasattr(df, "__arrow_c_stream__"):
            msg += f"; for that there is `sparkawait.arrow.{mode}_wait`"
        refuse(msg, ErrorKind.INPUT_INVALID)
    require_packages()
    session = Session(df.sparkSession)
    run_drivers_python(session)
    watch(df.sparkSession)
    check_workers(session)
    zone = session.times.zone
    before = step_of(df, zone) if chain else None
    if before is not None:
        check_not_persisted(df)
    input_schema: StructType = df.schema
    function, options = plans.what_is_called(function, options)
    source = df if before is None else before.source
    names, all_columns = (), input_schema
    if has_expressions(key, options, function):
        hidden = HiddenColumns(source, input_schema, None if before is None else before.chain)
        key, options = hidden.columns(key, "key"), hidden.options(options)
        function = hidden.function(function)
        source, names = hidden.df, hidden.names
        all_columns = StructType([*input_schema.fields, *hidden.schema.fields])
    around = plans.Around(
        mode,
        PlaceOfSession(
            session, is_streaming=df.isStreaming, is_case_sensitive=session.is_case_sensitive
        ),
        to_arrow(all_columns, zone),
        key=plans.key_of(mode, key),
        hidden=names,
        results=results,
        travels=True,
        taken=set() if before is None else set(before.chain.names),
    )
    plan = plans.resolved(function, options, around)
    check_keys(plan, input_schema)
    check_columns(plan, all_columns)
    if plan.journal is not None and df.isStreaming:
        refuse(
            "`journal` is for DataFrames that end; a stream has its checkpoint, and with"
            " `carry_over` its rows in flight: docs/streaming.md"
        )
    carry_over = plan.options.carry_over
    if carry_over is not None:
        check_carry_over(df, plan, carry_over)
    if before is None:
        chained, carry = Chain.of(plan), None
        if carry_over is not None:
            check_vehicle(df.sparkSession, carry_over.vehicle)
            check_only(df, plan, carry_over)
            carry = carry_of(plan, carry_over)
    else:
        check_same(before.carry, carry_over)
        if before.carry is not None:
            plans.check_carries_one(plan)
        chained = before.chain.then(plan, to_arrow(input_schema, zone))
        carry = before.carry
    return Made(
        source=source,
        chain=chained,
        reports=reports_of(session, plan, metrics, None if before is None else before.reports),
        schema=StructType([*input_schema.fields, *result_fields(plan)]),
        zone=zone,
        result_types=casts(plan, session.times),
        carry=carry,
    )


def brought_together(df: DataFrame, mode: Mode, function: object, *, chain: bool) -> DataFrame:
    """Returns `df` with equal rows in one partition, if the function asks for them once.

    Raises:
        ConfigurationError: If rows are to keep their order.
    """
    called = getattr(function, "function", function)
    if not (isinstance(called, NativeFunction) and called.once) or not hasattr(df, "repartition"):
        return df
    if mode != "unordered" or chain:
        refuse(
            f"`once=True` of `{called.name}` brings equal rows together, which takes them out of"
            " their order; call it with `unordered_wait`, and without `chain=True`"
        )
    names = dict.fromkeys(called.input_columns)
    return df.repartition(*("`" + name.replace("`", "``") + "`" for name in names))


def check_ends(df: Any, argument: str, action: str, way_out: str) -> None:
    """Checks that an action, which calls at once, has got a DataFrame that ends."""
    if not hasattr(df, "mapInArrow"):
        msg = f"`{argument}` must be a DataFrame of Spark, got `{type(df).__name__}`"
        refuse(msg, ErrorKind.INPUT_INVALID)
    if df.isStreaming:
        refuse(f"`{action}` is for DataFrames that end; {way_out}", ErrorKind.INPUT_INVALID)


def with_safe_names(df: DataFrame) -> tuple[DataFrame, Sequence[str] | None]:
    """Returns `df` as ``mapInArrow`` takes it, and the names that its columns had if not now."""
    names = df.columns
    if not names:
        # Rows without columns would not arrive.
        return df.withColumn("_0", F.lit(True)), names  # noqa: FBT003
    if not _needs_safe_names(names):
        return df, None
    return df.toDF(*(f"_{index}" for index in range(len(names)))), names


def _needs_safe_names(names: Sequence[str]) -> bool:
    """Tells whether ``mapInArrow``, which looks its columns up by name, would not find them all."""
    folded = set(map(str.lower, names))
    return len(folded) < len(names) or any(map(_UNSAFE.search, names))


_UNSAFE = re.compile(r"[.`]")
