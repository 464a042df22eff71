# SPDX-License-Identifier: Apache-2.0
"""The three wait functions over DataFrames.

They check their arguments and add one ``mapInArrow`` to the query; nothing is called before Spark
runs it. To be called on the driver, from any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

from sparkawait._plan import resolve as plans
from sparkawait._plan.chain import Chain, check_carries_one
from sparkawait._plan.checks import refuse
from sparkawait._plan.option import documented, refuse_unknown
from sparkawait._plan.plan import Mode
from sparkawait._quantities import ColumnsLike
from sparkawait.exceptions import ErrorKind
from sparkawait.functions import AsyncFunctionsLike
from sparkawait.metrics import Metrics, accumulator_of
from sparkawait.spark.carry import (
    CarryPlan,
    Made,
    check_carry_over,
    check_not_persisted,
    check_same,
    remember,
    step_of,
)
from sparkawait.spark.expressions import HiddenColumns, check_keys
from sparkawait.spark.partition import PartitionTask
from sparkawait.spark.placement import check_columns, placed
from sparkawait.spark.schemas import casts, result_fields, to_arrow
from sparkawait.spark.session import Session
from sparkawait.spark.shipping import check_workers, require_packages, run_drivers_python
from sparkawait.spark.vehicle import check_only, check_vehicle
from sparkawait.wait_options import OPTIONS, WaitArguments, WaitOptions

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
        metrics: Collects the metrics of all tasks, `sparkawait.Metrics` of a classic session.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.

    Returns:
        A lazy DataFrame with the same partitions. Field metadata of `df`, a watermark included, is
        kept.

    Raises:
        ConfigurationError: If an argument is wrong. Raised here, not when the query runs.
    """
    return _wait(df, "ordered", function, metrics, plans.all_given(options, given), chain=chain)


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
        metrics: Collects the metrics of all tasks, `sparkawait.Metrics` of a classic session.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait(df, "unordered", function, metrics, plans.all_given(options, given), chain=chain)


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
        metrics: Collects the metrics of all tasks, `sparkawait.Metrics` of a classic session.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait(
        df, "key_ordered", function, metrics, plans.all_given(options, given), chain=chain, key=key
    )


def _wait(
    df: DataFrame,
    mode: Mode,
    function: object,
    metrics: Metrics | None,
    given: Mapping[str, Any],
    *,
    chain: bool,
    key: ColumnsLike | None = None,
) -> DataFrame:
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
    run_drivers_python(df.sparkSession)
    check_workers(df)
    session = Session(df.sparkSession)
    zone = session.times.zone
    before = step_of(df, zone) if chain else None
    if before is not None:
        check_not_persisted(df)
    input_schema: StructType = df.schema
    arrow_schema = to_arrow(input_schema, zone)
    source, chain_before = (df, None) if before is None else (before.source, before.chain)
    hidden = HiddenColumns(source, input_schema, chain_before)
    if "key" in given:
        refuse_unknown("key", (), "it belongs to key_ordered_wait")
    key, given = hidden.columns(key, "key"), hidden.options(given)
    function = hidden.function(function)
    all_columns = StructType([*input_schema.fields, *hidden.schema.fields])
    plan = plans.resolve(
        mode,
        function,
        input_schema=to_arrow(all_columns, zone),
        key=key,
        hidden=hidden.names,
        **given,
    )
    plan = placed(
        plan,
        session,
        is_streaming=df.isStreaming,
        case_sensitive=session.is_case_sensitive,
    )
    plan.check_names(arrow_schema.names)
    check_keys(plan, input_schema)
    check_columns(plan, all_columns)
    schema = StructType([*input_schema.fields, *result_fields(plan)])
    accumulator = accumulator_of(metrics)
    carry_over = check_carry_over(df, plan)
    if before is None:
        carry = None
        if carry_over is not None:
            check_vehicle(df.sparkSession, carry_over.vehicle)
            check_only(df, plan, carry_over)
            carry = CarryPlan.of(plan, carry_over)
        step = Made(hidden.df, Chain.of(plan), (accumulator,), schema, zone, carry)
    else:
        check_same(before.carry, carry_over)
        if before.carry is not None:
            check_carries_one(plan)
        step = dataclasses.replace(
            before,
            source=hidden.df,
            chain=before.chain.then(plan, arrow_schema),
            accumulators=(*before.accumulators, accumulator),
            schema=schema,
        )
    source, names = with_safe_names(step.source)
    result_types = casts(plan, session.times)
    if step.carry is not None:
        return remember(step.carry.apply(source, names, step, result_types), step)
    task = PartitionTask(
        step.chain, names=names, result_types=result_types, accumulators=step.accumulators
    )
    return remember(source.mapInArrow(task, schema), step)


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
    folded = {name.lower() for name in names}
    return len(folded) < len(names) or any("." in name or "`" in name for name in names)
