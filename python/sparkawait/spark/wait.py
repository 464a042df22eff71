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

from sparkawait._plan import options as plans
from sparkawait._plan.option import documented
from sparkawait._plan.plan import Mode
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunctionLike
from sparkawait.spark.drivers_python import run_drivers_python
from sparkawait.spark.keys import check_keys
from sparkawait.spark.metrics import Metrics, accumulator_of
from sparkawait.spark.partition import PartitionTask
from sparkawait.spark.returned import casts, conform, result_fields
from sparkawait.spark.routes import with_route
from sparkawait.spark.schemas import (
    is_case_sensitive,
    session_zone,
    to_arrow,
)
from sparkawait.spark.workers import check_workers, require_packages
from sparkawait.wait_options import OPTIONS, WaitArguments, WaitOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import Unpack

__all__ = ["key_ordered_wait", "ordered_wait", "unordered_wait"]


@documented(OPTIONS, WaitArguments)
def ordered_wait(
    df: DataFrame,
    function: AsyncFunctionLike,
    *,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> DataFrame:
    """Calls `function` for every row of `df`; rows keep their order within a partition.

    Counterpart of Flink's ``AsyncDataStream.orderedWait``. A slow call holds back the rows behind
    it from leaving, while up to `capacity` of them are called for.

    Args:
        df: A batch or streaming DataFrame, of a classic session or of Spark Connect.
        function: What is called: an ``async def`` declared with `sparkawait.async_function`, an
            `sparkawait.AsyncFunction`, or a native function.
        metrics: Collects the metrics of all tasks; classic sessions only.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.

    Returns:
        A lazy DataFrame with the same partitions. Field metadata of `df`, a watermark included, is
        kept.

    Raises:
        ConfigurationError: If an argument is wrong. Raised here, not when the query runs.
    """
    return _wait(df, "ordered", function, metrics, plans.all_given(options, given))


@documented(OPTIONS, WaitArguments)
def unordered_wait(
    df: DataFrame,
    function: AsyncFunctionLike,
    *,
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
        metrics: Collects the metrics of all tasks; classic sessions only.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait(df, "unordered", function, metrics, plans.all_given(options, given))


@documented(OPTIONS, WaitArguments)
def key_ordered_wait(
    df: DataFrame,
    function: AsyncFunctionLike,
    *,
    key: str | Sequence[str],
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
        key: The column, or columns, that make up the key.
        metrics: Collects the metrics of all tasks; classic sessions only.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait(df, "key_ordered", function, metrics, plans.all_given(options, given), key=key)


def _wait(
    df: DataFrame,
    mode: Mode,
    function: object,
    metrics: Metrics | None,
    given: Mapping[str, Any],
    *,
    key: str | Sequence[str] | None = None,
) -> DataFrame:
    if not hasattr(df, "mapInArrow"):
        msg = f"`df` must be a DataFrame, got `{type(df).__name__}`"
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    require_packages()
    run_drivers_python(df.sparkSession)
    check_workers(df)
    input_schema: StructType = df.schema
    zone = session_zone(df)
    arrow_schema = to_arrow(input_schema, zone)
    df, given = with_route(df, given)
    resolved = plans.resolve(mode, function, input_schema=arrow_schema, key=key, **given)
    plan = dataclasses.replace(conform(resolved, zone), case_sensitive=is_case_sensitive(df))
    plan.check_names(arrow_schema.names)
    check_keys(plan, df.schema)
    kept = input_schema.fields if plan.options.output == "append" else []
    names = df.columns
    renamed = not names or _needs_safe_names(names)
    task = PartitionTask(
        plan,
        names=names if renamed else None,
        result_types=casts(plan, zone),
        accumulator=accumulator_of(metrics),
    )
    if not names:
        # Rows without columns would not arrive.
        df = df.withColumn("_0", F.lit(True))  # noqa: FBT003
    elif renamed:
        df = df.toDF(*(f"_{index}" for index in range(len(names))))
    return df.mapInArrow(task, StructType([*kept, *result_fields(plan)]))


def _needs_safe_names(names: Sequence[str]) -> bool:
    """Tells whether ``mapInArrow``, which looks its columns up by name, would not find them all."""
    folded = {name.lower() for name in names}
    return len(folded) < len(names) or any("." in name or "`" in name for name in names)
