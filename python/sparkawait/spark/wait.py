# SPDX-License-Identifier: Apache-2.0
"""The three wait functions over DataFrames.

They check their arguments and add one ``mapInArrow`` to the query; nothing is called before Spark
runs it. To be called on the driver, from any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

from sparkawait._plan import options
from sparkawait._plan.plan import ERROR_COLUMN, Mode, OnError, Output
from sparkawait.cache import Cache
from sparkawait.channels import Channels
from sparkawait.durations import Duration
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.retry import AsyncRetryStrategy
from sparkawait.sizes import Size
from sparkawait.spark.drivers_python import run_drivers_python
from sparkawait.spark.keys import check_keys
from sparkawait.spark.metrics import Metrics, accumulator_of
from sparkawait.spark.partition import PartitionTask
from sparkawait.spark.returned import casts, conform, result_fields
from sparkawait.spark.routes import Destination, with_route
from sparkawait.spark.schemas import (
    is_case_sensitive,
    session_zone,
    to_arrow,
)
from sparkawait.spark.workers import check_workers, require_packages
from sparkawait.types import SchemaLike
from sparkawait.watermark import WatermarkStrategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["key_ordered_wait", "ordered_wait", "unordered_wait"]


def ordered_wait(
    df: DataFrame,
    function: object,
    *,
    schema: SchemaLike = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    capacity: int = 100,
    max_concurrency: int | None = None,
    retry: AsyncRetryStrategy | None = None,
    on_error: OnError = "fail",
    error_column: str = ERROR_COLUMN,
    on_timeout: Any = None,
    output: Output = "append",
    watermark: WatermarkStrategy | None = None,
    buffer_timeout: Duration | None = "auto",
    max_rows_per_batch: int = 8192,
    max_bytes_per_batch: Size = "64 MB",
    cache: Cache | None = None,
    channel: Destination | None = None,
    channels: Channels | None = None,
    target_latency: Duration | None = None,
    setup_timeout: Duration | None = None,
    blocked_loop_timeout: Duration | None = None,
    warm_up: bool = True,
    metrics: Metrics | None = None,
) -> DataFrame:
    """Calls `function` for every row of `df`; rows keep their order within a partition.

    Counterpart of Flink's ``AsyncDataStream.orderedWait``. A slow call holds back the rows behind
    it: set `capacity` above `max_concurrency` to let those be called for meanwhile.

    Args:
        df: A batch or streaming DataFrame, of a classic session or of Spark Connect.
        function: What is called: an ``async def`` declared with `sparkawait.async_function`, an
            `sparkawait.AsyncFunction`, or a native function.
        schema: The columns that the function returns, if it does not say so itself or says
            otherwise: a DDL string, a ``StructType`` or a `pyarrow.Schema`.
        timeout: Time for one row, all attempts together, from its admission on; ``None`` for no
            bound. Durations are strings such as ``"5s"``, timedeltas or seconds.
        attempt_timeout: Time for one attempt.
        capacity: Rows per task that were admitted and are not yet emitted.
        max_concurrency: Calls in flight per task; by default `capacity`.
        retry: Which failures are tried again, and when; see `sparkawait.retry`.
        on_error: What becomes of a row that failed for good: ``"fail"`` fails the task, ``"null"``
            leaves its returned columns null, ``"drop"`` drops it, ``"capture"`` adds a struct
            column with kind, message and attempts, which is null for other rows.
        error_column: The name of that column; calls after one another need a name each.
        on_timeout: Results for a row that timed out, or a callable that makes them from the row;
            without it a timeout is a failure.
        output: ``"append"`` adds the returned columns to those of `df`, ``"replace"`` has the
            returned columns only.
        watermark: Where event time comes from. Has no effect on rows that keep their order.
        buffer_timeout: When an output batch that is not full is emitted. ``"auto"``: as soon as it
            is waited for, as long as batches take no more than 2 % of the time, and at most 100 ms
            after the one before. A duration: when its first row is this old. ``None``: not before
            it is full.
        max_rows_per_batch: Most rows of an output batch.
        max_bytes_per_batch: Most bytes of an output batch, unless one row has more: an int, or a
            text such as ``"64 MB"`` (powers of 1024). Four times as much bounds the results that
            calls bring while others wait to be emitted: fewer calls are in flight then.
        cache: Keeps results, so that rows with equal keys share one call; see `sparkawait.Cache`.
        channel: Where a row goes: a column, several, or an expression, such as the host or the
            tenant that is called. A slow destination then does not hold the rows of others, but in
            this order those behind it wait for their turn to be emitted.
        channels: How calls are spread over channels; see `sparkawait.Channels`.
        target_latency: Sizes output batches, and the calls of a batched function, so that a row
            takes about this long through them at the measured throughput; never above their
            limits. ``None`` lets them grow to these.
        setup_timeout: Time for the function's `open`, and for its `close`, each; what takes longer
            is cancelled and fails the task. ``None`` sets no bound to `open`, of which the log says
            once that it takes more than 60 s, and 30 s to `close`. Python functions only.
        blocked_loop_timeout: Ends the task when code that blocks, such as ``time.sleep``, keeps the
            event loop of the worker for so long; `timeout` cannot cancel it. ``None`` only logs
            what blocks. Python functions only.
        warm_up: Whether the first task of a function in a worker process begins with few calls, an
            eighth of `max_concurrency` and at least 4, since ``show()``, ``take`` and ``limit``
            want few rows. The first rows are emitted at once, and all calls may be made 100 ms
            after them, unless Spark has hung up by then. Later tasks make all of them from the
            start.
        metrics: Collects the metrics of all tasks; classic sessions only.

    Returns:
        A lazy DataFrame with the same partitions. Field metadata of `df`, a watermark included, is
        kept.

    Raises:
        ConfigurationError: If an argument is wrong. Raised here, not when the query runs.
    """
    return _wait(
        df,
        "ordered",
        function,
        metrics,
        schema=schema,
        timeout=timeout,
        attempt_timeout=attempt_timeout,
        capacity=capacity,
        max_concurrency=max_concurrency,
        retry=retry,
        on_error=on_error,
        error_column=error_column,
        on_timeout=on_timeout,
        output=output,
        watermark=watermark,
        buffer_timeout=buffer_timeout,
        max_rows_per_batch=max_rows_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        cache=cache,
        channel=channel,
        channels=channels,
        target_latency=target_latency,
        setup_timeout=setup_timeout,
        blocked_loop_timeout=blocked_loop_timeout,
        warm_up=warm_up,
    )


def unordered_wait(
    df: DataFrame,
    function: object,
    *,
    schema: SchemaLike = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    capacity: int = 100,
    max_concurrency: int | None = None,
    retry: AsyncRetryStrategy | None = None,
    on_error: OnError = "fail",
    error_column: str = ERROR_COLUMN,
    on_timeout: Any = None,
    output: Output = "append",
    watermark: WatermarkStrategy | None = None,
    buffer_timeout: Duration | None = "auto",
    max_rows_per_batch: int = 8192,
    max_bytes_per_batch: Size = "64 MB",
    cache: Cache | None = None,
    channel: Destination | None = None,
    channels: Channels | None = None,
    target_latency: Duration | None = None,
    setup_timeout: Duration | None = None,
    blocked_loop_timeout: Duration | None = None,
    warm_up: bool = True,
    metrics: Metrics | None = None,
) -> DataFrame:
    """Calls `function` for every row of `df`; rows are emitted as their calls complete.

    Counterpart of Flink's ``AsyncDataStream.unorderedWait``. With `watermark`, no row crosses a
    watermark in either direction. The other arguments, the result and the errors are those of
    `ordered_wait`.

    Args:
        df: See `ordered_wait`; the same for all arguments that are not listed.
        function: What is called for every row.
        schema: The columns that the function returns.
        timeout: Time for one row, all attempts together.
        attempt_timeout: Time for one attempt.
        capacity: Rows per task that were admitted and are not yet emitted.
        max_concurrency: Calls in flight per task.
        retry: Which failures are tried again.
        on_error: What becomes of a row that failed for good.
        error_column: The name of the column of ``on_error="capture"``.
        on_timeout: Results for a row that timed out.
        output: Whether the input columns are kept.
        watermark: Where event time comes from, made by `sparkawait.WatermarkStrategy`.
        buffer_timeout: When an output batch that is not full is emitted.
        max_rows_per_batch: Most rows of an output batch.
        max_bytes_per_batch: Most bytes of an output batch, unless one row has more: an int, or a
            text such as ``"64 MB"`` (powers of 1024). Four times as much bounds the results that
            calls bring while others wait to be emitted: fewer calls are in flight then.
        cache: Keeps results, so that rows with equal keys share one call; see `sparkawait.Cache`.
        channel: Where a row goes; a slow destination does not hold the rows of others.
        channels: How calls are spread over channels; see `sparkawait.Channels`.
        target_latency: Time that a row should take through batches, which are sized by it.
        setup_timeout: Time for the function's `open`, and for its `close`, each.
        blocked_loop_timeout: Ends the task when code that blocks keeps the event loop so long.
        warm_up: Whether the first task of a function in a worker process begins with few calls.
        metrics: Collects the metrics of all tasks.
    """
    return _wait(
        df,
        "unordered",
        function,
        metrics,
        schema=schema,
        timeout=timeout,
        attempt_timeout=attempt_timeout,
        capacity=capacity,
        max_concurrency=max_concurrency,
        retry=retry,
        on_error=on_error,
        error_column=error_column,
        on_timeout=on_timeout,
        output=output,
        watermark=watermark,
        buffer_timeout=buffer_timeout,
        max_rows_per_batch=max_rows_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        cache=cache,
        channel=channel,
        channels=channels,
        target_latency=target_latency,
        setup_timeout=setup_timeout,
        blocked_loop_timeout=blocked_loop_timeout,
        warm_up=warm_up,
    )


def key_ordered_wait(
    df: DataFrame,
    function: object,
    *,
    key: str | Sequence[str],
    schema: SchemaLike = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    capacity: int = 100,
    max_concurrency: int | None = None,
    retry: AsyncRetryStrategy | None = None,
    on_error: OnError = "fail",
    error_column: str = ERROR_COLUMN,
    on_timeout: Any = None,
    output: Output = "append",
    watermark: WatermarkStrategy | None = None,
    buffer_timeout: Duration | None = "auto",
    max_rows_per_batch: int = 8192,
    max_bytes_per_batch: Size = "64 MB",
    cache: Cache | None = None,
    channel: Destination | None = None,
    channels: Channels | None = None,
    target_latency: Duration | None = None,
    setup_timeout: Duration | None = None,
    blocked_loop_timeout: Duration | None = None,
    warm_up: bool = True,
    metrics: Metrics | None = None,
) -> DataFrame:
    """Calls `function` for one row per key at a time; rows of a key keep their order.

    Keys are called for in parallel. Order is kept within a partition: repartition by the key first
    if rows of one key are spread over several. Rows with a null key are not ordered. The other
    arguments, the result and the errors are those of `ordered_wait`.

    Args:
        df: See `ordered_wait`; the same for all arguments that are not listed.
        function: What is called for every row.
        key: The column, or columns, that make up the key.
        schema: The columns that the function returns.
        timeout: Time for one row, all attempts and the wait for its key together.
        attempt_timeout: Time for one attempt.
        capacity: Rows per task that were admitted and are not yet emitted.
        max_concurrency: Calls in flight per task.
        retry: Which failures are tried again.
        on_error: What becomes of a row that failed for good.
        error_column: The name of the column of ``on_error="capture"``.
        on_timeout: Results for a row that timed out.
        output: Whether the input columns are kept.
        watermark: Where event time comes from, made by `sparkawait.WatermarkStrategy`.
        buffer_timeout: When an output batch that is not full is emitted.
        max_rows_per_batch: Most rows of an output batch.
        max_bytes_per_batch: Most bytes of an output batch, unless one row has more: an int, or a
            text such as ``"64 MB"`` (powers of 1024). Four times as much bounds the results that
            calls bring while others wait to be emitted: fewer calls are in flight then.
        cache: Keeps results, so that rows with equal keys share one call; see `sparkawait.Cache`.
        channel: Where a row goes; a slow destination does not hold the rows of others.
        channels: How calls are spread over channels; see `sparkawait.Channels`.
        target_latency: Time that a row should take through batches, which are sized by it.
        setup_timeout: Time for the function's `open`, and for its `close`, each.
        blocked_loop_timeout: Ends the task when code that blocks keeps the event loop so long.
        warm_up: Whether the first task of a function in a worker process begins with few calls.
        metrics: Collects the metrics of all tasks.
    """
    return _wait(
        df,
        "key_ordered",
        function,
        metrics,
        key=key,
        schema=schema,
        timeout=timeout,
        attempt_timeout=attempt_timeout,
        capacity=capacity,
        max_concurrency=max_concurrency,
        retry=retry,
        on_error=on_error,
        error_column=error_column,
        on_timeout=on_timeout,
        output=output,
        watermark=watermark,
        buffer_timeout=buffer_timeout,
        max_rows_per_batch=max_rows_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        cache=cache,
        channel=channel,
        channels=channels,
        target_latency=target_latency,
        setup_timeout=setup_timeout,
        blocked_loop_timeout=blocked_loop_timeout,
        warm_up=warm_up,
    )


def _wait(
    df: DataFrame,
    mode: Mode,
    function: object,
    metrics: Metrics | None,
    **given: Any,
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
    df, given["channel"] = with_route(df, given["channel"])
    resolved = options.resolve(mode, function, input_schema=arrow_schema, **given)
    plan = dataclasses.replace(conform(resolved, zone), case_sensitive=is_case_sensitive(df))
    plan.check_names(arrow_schema.names)
    check_keys(plan, df.schema)
    kept = input_schema.fields if plan.output == "append" else []
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
