# SPDX-License-Identifier: Apache-2.0
"""What editors show of `sparkawait.spark`. `make signatures` writes this file; nothing runs it.

The functions themselves are in `sparkawait.spark.wait` and `sparkawait.spark.udf`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from pyspark.sql import DataFrame

from sparkawait._checks import ColumnsLike, Duration, Size
from sparkawait._schema.types import ReturnsLike, Row, SchemaLike
from sparkawait.functions import AsyncFunctionLike, AsyncFunctionsLike
from sparkawait.journal import JournalLike
from sparkawait.limits import Adaptive, Channel, CircuitBreaker, Hedge
from sparkawait.metrics import Metrics
from sparkawait.options import WaitOptions
from sparkawait.outcomes import Cache, CarryOver, OnErrorLike, Tuning, WatermarkStrategy
from sparkawait.rate_limit import PerJob, RateLimits
from sparkawait.retry import AsyncRetryStrategy
from sparkawait.spark.udf import AsyncUserDefinedFunction

__all__ = ["async_udf", "key_ordered_wait", "ordered_wait", "unordered_wait"]


def ordered_wait(
    df: DataFrame,
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    schema: SchemaLike | None = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    max_wait: Duration | None = None,
    max_concurrency: int | Adaptive | PerJob | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnErrorLike = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    info: str | None = None,
    cache: Cache | str | bool | None = None,
    journal: JournalLike | None = None,
    channel: Channel | ColumnsLike | None = None,
    rate_limit: RateLimits | None = None,
    circuit_breaker: CircuitBreaker | bool | None = None,
    watermark: WatermarkStrategy | None = None,
    tuning: Tuning | None = None,
    carry_over: CarryOver | bool | None = None,
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
        schema: The columns that the function returns, unless it declares them: a DDL string, a
            `StructType` or a `pyarrow.Schema`. Default: the function's.
        timeout: Time for one row, with all attempts and back-offs, from its first call on; waiting
            in line does not count. `None` for no limit. Write a text such as `"5s"`, a timedelta or
            seconds.
        attempt_timeout: Time for one attempt. Then it is cancelled, and retried unless the function
            is not idempotent.
        max_wait: How long a row waits for a destination that is gone: its circuit breaker is open,
            or it has not answered for `timeout`. Then the row fails with kind
            `destination-unavailable`, as a timeout, or gets the results of `on_timeout`. A
            `Retry-After` is waited out unless you give `max_wait`. Default: `timeout`.
        max_concurrency: Calls in flight per task. `sa.Adaptive(1, 500)` finds out what the
            destination bears; `sa.PerJob(500)` bounds those of all tasks together. Default: 100; no
            more than `capacity`.
        capacity: Rows that a task holds, completed ones included. Ordered mode holds more rows than
            calls, because completed rows wait for slow ones: at first 8 for each call, and up to
            100, or 16 MB of results, as rows are taken. It never makes more calls. A text such as
            `"256 MB"` (powers of 1024) limits memory instead of rows: results plus 128 bytes per
            row. Default: `max_concurrency`; 8 to 100 x if ordered.
        retry: How often, and when, a failed call is made again: `3` means
            `sa.retry.exponential_backoff(3)`, `0` never; or a strategy of `sa.retry`. By default
            only calls that were not carried out: not sent, refused with 429, 503 and the like, or a
            raised `sa.RetryAfter(delay)`; reads of Redis and PostgreSQL also after a lost
            connection. Default: 3 times what was not carried out.
        hedge: A second call for a row whose call is slow; the first answer wins. `True` means
            `sa.Hedge(after="p95", max_extra=0.05)`; `"p95"` or `"300ms"` sets its `after`. Only for
            idempotent functions: lookups, GET, and Python functions declared so.
        on_error: What happens to a row that failed for good: `"fail"` fails the task, `"null"`
            leaves its returned columns null, `"drop"` drops it, `"capture"` adds a struct column
            `error` with kind, message, attempts and status. `sa.OnError("capture", column="why")`
            gives the column another name, which a second call needs. Its `stop_after=1000` fails a
            task with a thousand failed rows, and `stop_ratio=0.1` one in which a tenth of the rows
            has failed.
        on_timeout: Results for a row that timed out or exceeded `max_wait`, or a plain function of
            the row that returns them. Python functions only.
        info: A name, such as `"call"`, of a struct column that tells of the calls of each row,
            failed ones included: attempts, seconds, waited, cached, hedged, status and cost.
        cache: Rows with equal keys share one call, and the worker process keeps the results:
            `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,
            cache_missing=, key=)`; `"10min"` sets its `expire_after_write`, `True` means
            `sa.Cache()`.
        journal: A folder that keeps the results of calls, so that a task that runs again and the
            next job do not call for what is known: a path or a URL, or `sa.Journal(path, key=,
            version=, max_age=, again=, keep_input=)`. A Python function needs its `version=`. Not
            for streams.
        channel: The destination of a row, such as its host or tenant: a column, an expression, or
            several. A slow destination does not hold up the others. Each gets a tenth of the calls,
            unless `sa.Channel("tenant", count=3)` gives the number of destinations
            (`max_per_channel=`, `max_backlog=`, `max_backlog_per_channel=`). Native functions that
            know their destinations need no column.
        rate_limit: Calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=,
            cost=, scope=, per_channel=, name=, result_cost=, counts=, per=, server=)`, or a list of
            them. With `"adaptive"`, alone or in the list, the calls per time of each channel follow
            what its destination refuses: a 429, a 503, or a raised `sa.RetryAfter`. Without
            `channel` the task has one rate.
        circuit_breaker: Leaves a destination alone that fails all its calls, and probes it now and
            then; rows wait for up to `max_wait`. `True` means `sa.CircuitBreaker(after_failures=20,
            initial="1s", maximum="60s", when_open="wait")`.
        watermark: Event time: `sa.WatermarkStrategy.for_bounded_out_of_orderness(column, delay)`,
            of a column or an expression. A watermark follows each input batch, or with `every=n`
            each n rows; no row of the unordered mode crosses one.
        tuning: How a task begins and how its output leaves, for few jobs:
            `sa.Tuning(buffer_timeout=, max_rows=, max_bytes=, target_latency=, warm_up=)`.
            `max_bytes` limits output batches and the results that wait; `warm_up=False` starts with
            all calls at once. Default: `sa.Tuning("auto", 8192, "64 MB", None, True)`.
        carry_over: A micro-batch ends while calls are in flight, and a later one emits their
            results: `True`, or `sa.CarryOver(emit=, linger=, order_by=, name_rows_by=, vehicle=,
            name=)`. Streaming DataFrames only.

    Returns:
        A lazy DataFrame with the same partitions. Field metadata of `df`, a watermark included, is
        kept.

    Raises:
        ConfigurationError: If an argument is wrong. Raised here, not when the query runs.
    """
    ...


def unordered_wait(
    df: DataFrame,
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    schema: SchemaLike | None = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    max_wait: Duration | None = None,
    max_concurrency: int | Adaptive | PerJob | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnErrorLike = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    info: str | None = None,
    cache: Cache | str | bool | None = None,
    journal: JournalLike | None = None,
    channel: Channel | ColumnsLike | None = None,
    rate_limit: RateLimits | None = None,
    circuit_breaker: CircuitBreaker | bool | None = None,
    watermark: WatermarkStrategy | None = None,
    tuning: Tuning | None = None,
    carry_over: CarryOver | bool | None = None,
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
        schema: The columns that the function returns, unless it declares them: a DDL string, a
            `StructType` or a `pyarrow.Schema`. Default: the function's.
        timeout: Time for one row, with all attempts and back-offs, from its first call on; waiting
            in line does not count. `None` for no limit. Write a text such as `"5s"`, a timedelta or
            seconds.
        attempt_timeout: Time for one attempt. Then it is cancelled, and retried unless the function
            is not idempotent.
        max_wait: How long a row waits for a destination that is gone: its circuit breaker is open,
            or it has not answered for `timeout`. Then the row fails with kind
            `destination-unavailable`, as a timeout, or gets the results of `on_timeout`. A
            `Retry-After` is waited out unless you give `max_wait`. Default: `timeout`.
        max_concurrency: Calls in flight per task. `sa.Adaptive(1, 500)` finds out what the
            destination bears; `sa.PerJob(500)` bounds those of all tasks together. Default: 100; no
            more than `capacity`.
        capacity: Rows that a task holds, completed ones included. Ordered mode holds more rows than
            calls, because completed rows wait for slow ones: at first 8 for each call, and up to
            100, or 16 MB of results, as rows are taken. It never makes more calls. A text such as
            `"256 MB"` (powers of 1024) limits memory instead of rows: results plus 128 bytes per
            row. Default: `max_concurrency`; 8 to 100 x if ordered.
        retry: How often, and when, a failed call is made again: `3` means
            `sa.retry.exponential_backoff(3)`, `0` never; or a strategy of `sa.retry`. By default
            only calls that were not carried out: not sent, refused with 429, 503 and the like, or a
            raised `sa.RetryAfter(delay)`; reads of Redis and PostgreSQL also after a lost
            connection. Default: 3 times what was not carried out.
        hedge: A second call for a row whose call is slow; the first answer wins. `True` means
            `sa.Hedge(after="p95", max_extra=0.05)`; `"p95"` or `"300ms"` sets its `after`. Only for
            idempotent functions: lookups, GET, and Python functions declared so.
        on_error: What happens to a row that failed for good: `"fail"` fails the task, `"null"`
            leaves its returned columns null, `"drop"` drops it, `"capture"` adds a struct column
            `error` with kind, message, attempts and status. `sa.OnError("capture", column="why")`
            gives the column another name, which a second call needs. Its `stop_after=1000` fails a
            task with a thousand failed rows, and `stop_ratio=0.1` one in which a tenth of the rows
            has failed.
        on_timeout: Results for a row that timed out or exceeded `max_wait`, or a plain function of
            the row that returns them. Python functions only.
        info: A name, such as `"call"`, of a struct column that tells of the calls of each row,
            failed ones included: attempts, seconds, waited, cached, hedged, status and cost.
        cache: Rows with equal keys share one call, and the worker process keeps the results:
            `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,
            cache_missing=, key=)`; `"10min"` sets its `expire_after_write`, `True` means
            `sa.Cache()`.
        journal: A folder that keeps the results of calls, so that a task that runs again and the
            next job do not call for what is known: a path or a URL, or `sa.Journal(path, key=,
            version=, max_age=, again=, keep_input=)`. A Python function needs its `version=`. Not
            for streams.
        channel: The destination of a row, such as its host or tenant: a column, an expression, or
            several. A slow destination does not hold up the others. Each gets a tenth of the calls,
            unless `sa.Channel("tenant", count=3)` gives the number of destinations
            (`max_per_channel=`, `max_backlog=`, `max_backlog_per_channel=`). Native functions that
            know their destinations need no column.
        rate_limit: Calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=,
            cost=, scope=, per_channel=, name=, result_cost=, counts=, per=, server=)`, or a list of
            them. With `"adaptive"`, alone or in the list, the calls per time of each channel follow
            what its destination refuses: a 429, a 503, or a raised `sa.RetryAfter`. Without
            `channel` the task has one rate.
        circuit_breaker: Leaves a destination alone that fails all its calls, and probes it now and
            then; rows wait for up to `max_wait`. `True` means `sa.CircuitBreaker(after_failures=20,
            initial="1s", maximum="60s", when_open="wait")`.
        watermark: Event time: `sa.WatermarkStrategy.for_bounded_out_of_orderness(column, delay)`,
            of a column or an expression. A watermark follows each input batch, or with `every=n`
            each n rows; no row of the unordered mode crosses one.
        tuning: How a task begins and how its output leaves, for few jobs:
            `sa.Tuning(buffer_timeout=, max_rows=, max_bytes=, target_latency=, warm_up=)`.
            `max_bytes` limits output batches and the results that wait; `warm_up=False` starts with
            all calls at once. Default: `sa.Tuning("auto", 8192, "64 MB", None, True)`.
        carry_over: A micro-batch ends while calls are in flight, and a later one emits their
            results: `True`, or `sa.CarryOver(emit=, linger=, order_by=, name_rows_by=, vehicle=,
            name=)`. Streaming DataFrames only.
    """
    ...


def key_ordered_wait(
    df: DataFrame,
    function: AsyncFunctionsLike,
    *,
    key: ColumnsLike,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    schema: SchemaLike | None = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    max_wait: Duration | None = None,
    max_concurrency: int | Adaptive | PerJob | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnErrorLike = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    info: str | None = None,
    cache: Cache | str | bool | None = None,
    journal: JournalLike | None = None,
    channel: Channel | ColumnsLike | None = None,
    rate_limit: RateLimits | None = None,
    circuit_breaker: CircuitBreaker | bool | None = None,
    watermark: WatermarkStrategy | None = None,
    tuning: Tuning | None = None,
    carry_over: CarryOver | bool | None = None,
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
        schema: The columns that the function returns, unless it declares them: a DDL string, a
            `StructType` or a `pyarrow.Schema`. Default: the function's.
        timeout: Time for one row, with all attempts and back-offs, from its first call on; waiting
            in line does not count. `None` for no limit. Write a text such as `"5s"`, a timedelta or
            seconds.
        attempt_timeout: Time for one attempt. Then it is cancelled, and retried unless the function
            is not idempotent.
        max_wait: How long a row waits for a destination that is gone: its circuit breaker is open,
            or it has not answered for `timeout`. Then the row fails with kind
            `destination-unavailable`, as a timeout, or gets the results of `on_timeout`. A
            `Retry-After` is waited out unless you give `max_wait`. Default: `timeout`.
        max_concurrency: Calls in flight per task. `sa.Adaptive(1, 500)` finds out what the
            destination bears; `sa.PerJob(500)` bounds those of all tasks together. Default: 100; no
            more than `capacity`.
        capacity: Rows that a task holds, completed ones included. Ordered mode holds more rows than
            calls, because completed rows wait for slow ones: at first 8 for each call, and up to
            100, or 16 MB of results, as rows are taken. It never makes more calls. A text such as
            `"256 MB"` (powers of 1024) limits memory instead of rows: results plus 128 bytes per
            row. Default: `max_concurrency`; 8 to 100 x if ordered.
        retry: How often, and when, a failed call is made again: `3` means
            `sa.retry.exponential_backoff(3)`, `0` never; or a strategy of `sa.retry`. By default
            only calls that were not carried out: not sent, refused with 429, 503 and the like, or a
            raised `sa.RetryAfter(delay)`; reads of Redis and PostgreSQL also after a lost
            connection. Default: 3 times what was not carried out.
        hedge: A second call for a row whose call is slow; the first answer wins. `True` means
            `sa.Hedge(after="p95", max_extra=0.05)`; `"p95"` or `"300ms"` sets its `after`. Only for
            idempotent functions: lookups, GET, and Python functions declared so.
        on_error: What happens to a row that failed for good: `"fail"` fails the task, `"null"`
            leaves its returned columns null, `"drop"` drops it, `"capture"` adds a struct column
            `error` with kind, message, attempts and status. `sa.OnError("capture", column="why")`
            gives the column another name, which a second call needs. Its `stop_after=1000` fails a
            task with a thousand failed rows, and `stop_ratio=0.1` one in which a tenth of the rows
            has failed.
        on_timeout: Results for a row that timed out or exceeded `max_wait`, or a plain function of
            the row that returns them. Python functions only.
        info: A name, such as `"call"`, of a struct column that tells of the calls of each row,
            failed ones included: attempts, seconds, waited, cached, hedged, status and cost.
        cache: Rows with equal keys share one call, and the worker process keeps the results:
            `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,
            cache_missing=, key=)`; `"10min"` sets its `expire_after_write`, `True` means
            `sa.Cache()`.
        journal: A folder that keeps the results of calls, so that a task that runs again and the
            next job do not call for what is known: a path or a URL, or `sa.Journal(path, key=,
            version=, max_age=, again=, keep_input=)`. A Python function needs its `version=`. Not
            for streams.
        channel: The destination of a row, such as its host or tenant: a column, an expression, or
            several. A slow destination does not hold up the others. Each gets a tenth of the calls,
            unless `sa.Channel("tenant", count=3)` gives the number of destinations
            (`max_per_channel=`, `max_backlog=`, `max_backlog_per_channel=`). Native functions that
            know their destinations need no column.
        rate_limit: Calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=,
            cost=, scope=, per_channel=, name=, result_cost=, counts=, per=, server=)`, or a list of
            them. With `"adaptive"`, alone or in the list, the calls per time of each channel follow
            what its destination refuses: a 429, a 503, or a raised `sa.RetryAfter`. Without
            `channel` the task has one rate.
        circuit_breaker: Leaves a destination alone that fails all its calls, and probes it now and
            then; rows wait for up to `max_wait`. `True` means `sa.CircuitBreaker(after_failures=20,
            initial="1s", maximum="60s", when_open="wait")`.
        watermark: Event time: `sa.WatermarkStrategy.for_bounded_out_of_orderness(column, delay)`,
            of a column or an expression. A watermark follows each input batch, or with `every=n`
            each n rows; no row of the unordered mode crosses one.
        tuning: How a task begins and how its output leaves, for few jobs:
            `sa.Tuning(buffer_timeout=, max_rows=, max_bytes=, target_latency=, warm_up=)`.
            `max_bytes` limits output batches and the results that wait; `warm_up=False` starts with
            all calls at once. Default: `sa.Tuning("auto", 8192, "64 MB", None, True)`.
        carry_over: A micro-batch ends while calls are in flight, and a later one emits their
            results: `True`, or `sa.CarryOver(emit=, linger=, order_by=, name_rows_by=, vehicle=,
            name=)`. Streaming DataFrames only.
    """
    ...


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
    schema: SchemaLike | None = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    max_wait: Duration | None = None,
    max_concurrency: int | Adaptive | PerJob | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnErrorLike = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    info: str | None = None,
    cache: Cache | str | bool | None = None,
    journal: JournalLike | None = None,
    channel: Channel | ColumnsLike | None = None,
    rate_limit: RateLimits | None = None,
    circuit_breaker: CircuitBreaker | bool | None = None,
    tuning: Tuning | None = None,
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
    schema: SchemaLike | None = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    max_wait: Duration | None = None,
    max_concurrency: int | Adaptive | PerJob | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnErrorLike = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    info: str | None = None,
    cache: Cache | str | bool | None = None,
    journal: JournalLike | None = None,
    channel: Channel | ColumnsLike | None = None,
    rate_limit: RateLimits | None = None,
    circuit_breaker: CircuitBreaker | bool | None = None,
    tuning: Tuning | None = None,
) -> Callable[[AsyncFunctionLike], AsyncUserDefinedFunction]: ...


def async_udf(
    function: AsyncFunctionLike | ReturnsLike | None = None,
    returns: ReturnsLike | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    skip_null: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    schema: SchemaLike | None = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    max_wait: Duration | None = None,
    max_concurrency: int | Adaptive | PerJob | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnErrorLike = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    info: str | None = None,
    cache: Cache | str | bool | None = None,
    journal: JournalLike | None = None,
    channel: Channel | ColumnsLike | None = None,
    rate_limit: RateLimits | None = None,
    circuit_breaker: CircuitBreaker | bool | None = None,
    tuning: Tuning | None = None,
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
        schema: The columns that the function returns, unless it declares them: a DDL string, a
            `StructType` or a `pyarrow.Schema`. Default: the function's.
        timeout: Time for one row, with all attempts and back-offs, from its first call on; waiting
            in line does not count. `None` for no limit. Write a text such as `"5s"`, a timedelta or
            seconds.
        attempt_timeout: Time for one attempt. Then it is cancelled, and retried unless the function
            is not idempotent.
        max_wait: How long a row waits for a destination that is gone: its circuit breaker is open,
            or it has not answered for `timeout`. Then the row fails with kind
            `destination-unavailable`, as a timeout, or gets the results of `on_timeout`. A
            `Retry-After` is waited out unless you give `max_wait`. Default: `timeout`.
        max_concurrency: Calls in flight per task. `sa.Adaptive(1, 500)` finds out what the
            destination bears; `sa.PerJob(500)` bounds those of all tasks together. Default: 100; no
            more than `capacity`.
        capacity: Rows that a task holds, completed ones included. Ordered mode holds more rows than
            calls, because completed rows wait for slow ones: at first 8 for each call, and up to
            100, or 16 MB of results, as rows are taken. It never makes more calls. A text such as
            `"256 MB"` (powers of 1024) limits memory instead of rows: results plus 128 bytes per
            row. Default: `max_concurrency`; 8 to 100 x if ordered.
        retry: How often, and when, a failed call is made again: `3` means
            `sa.retry.exponential_backoff(3)`, `0` never; or a strategy of `sa.retry`. By default
            only calls that were not carried out: not sent, refused with 429, 503 and the like, or a
            raised `sa.RetryAfter(delay)`; reads of Redis and PostgreSQL also after a lost
            connection. Default: 3 times what was not carried out.
        hedge: A second call for a row whose call is slow; the first answer wins. `True` means
            `sa.Hedge(after="p95", max_extra=0.05)`; `"p95"` or `"300ms"` sets its `after`. Only for
            idempotent functions: lookups, GET, and Python functions declared so.
        on_error: What happens to a row that failed for good: `"fail"` fails the task, `"null"`
            leaves its returned columns null, `"drop"` drops it, `"capture"` adds a struct column
            `error` with kind, message, attempts and status. `sa.OnError("capture", column="why")`
            gives the column another name, which a second call needs. Its `stop_after=1000` fails a
            task with a thousand failed rows, and `stop_ratio=0.1` one in which a tenth of the rows
            has failed.
        on_timeout: Results for a row that timed out or exceeded `max_wait`, or a plain function of
            the row that returns them. Python functions only.
        info: A name, such as `"call"`, of a struct column that tells of the calls of each row,
            failed ones included: attempts, seconds, waited, cached, hedged, status and cost.
        cache: Rows with equal keys share one call, and the worker process keeps the results:
            `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,
            cache_missing=, key=)`; `"10min"` sets its `expire_after_write`, `True` means
            `sa.Cache()`.
        journal: A folder that keeps the results of calls, so that a task that runs again and the
            next job do not call for what is known: a path or a URL, or `sa.Journal(path, key=,
            version=, max_age=, again=, keep_input=)`. A Python function needs its `version=`. Not
            for streams.
        channel: The destination of a row, such as its host or tenant: a column, an expression, or
            several. A slow destination does not hold up the others. Each gets a tenth of the calls,
            unless `sa.Channel("tenant", count=3)` gives the number of destinations
            (`max_per_channel=`, `max_backlog=`, `max_backlog_per_channel=`). Native functions that
            know their destinations need no column.
        rate_limit: Calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=,
            cost=, scope=, per_channel=, name=, result_cost=, counts=, per=, server=)`, or a list of
            them. With `"adaptive"`, alone or in the list, the calls per time of each channel follow
            what its destination refuses: a 429, a 503, or a raised `sa.RetryAfter`. Without
            `channel` the task has one rate.
        circuit_breaker: Leaves a destination alone that fails all its calls, and probes it now and
            then; rows wait for up to `max_wait`. `True` means `sa.CircuitBreaker(after_failures=20,
            initial="1s", maximum="60s", when_open="wait")`.
        tuning: How a task begins and how its output leaves, for few jobs:
            `sa.Tuning(buffer_timeout=, max_rows=, max_bytes=, target_latency=, warm_up=)`.
            `max_bytes` limits output batches and the results that wait; `warm_up=False` starts with
            all calls at once. Default: `sa.Tuning("auto", 8192, "64 MB", None, True)`.

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
    ...
