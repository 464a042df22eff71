# SPDX-License-Identifier: Apache-2.0
"""What editors show of `sparkawait.spark`. `make signatures` writes this file; nothing runs it.

The functions themselves are in `sparkawait.spark.wait` and `sparkawait.spark.udf`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from pyspark.sql import DataFrame

from sparkawait._emission import CarryOver, OutputBatches, WatermarkStrategy
from sparkawait._policies import Adaptive, CircuitBreaker, Hedge
from sparkawait._quantities import ColumnsLike, Duration, Size
from sparkawait.cache import Cache
from sparkawait.capture import OnError
from sparkawait.channels import Channels
from sparkawait.functions import AsyncFunctionLike, AsyncFunctionsLike
from sparkawait.rate_limit import RateLimits
from sparkawait.retry import AsyncRetryStrategy
from sparkawait.spark.metrics import Metrics
from sparkawait.spark.udf import AsyncUserDefinedFunction
from sparkawait.types import Output, ReturnsLike, Row, SchemaLike
from sparkawait.wait_options import WaitOptions

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
    max_concurrency: int | Adaptive | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnError = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    output: Output = "append",
    cache: Cache | str | bool | None = None,
    channel: ColumnsLike | None = None,
    channels: Channels | int | None = None,
    rate_limit: RateLimits | None = None,
    adaptive_rate: bool = False,
    circuit_breaker: CircuitBreaker | bool | None = None,
    watermark: WatermarkStrategy | None = None,
    output_batches: OutputBatches | None = None,
    warm_up: bool = True,
    carry_over: CarryOver | bool | None = None,
) -> DataFrame:
    """Calls `function` for every row of `df`; rows keep their order within a partition.

    Counterpart of Flink's ``AsyncDataStream.orderedWait``. A slow call holds back the rows behind
    it from leaving, while up to `capacity` of them are called for.

    Args:
        df: A batch or streaming DataFrame, of a classic session or of Spark Connect.
        function: What is called: an ``async def``, or a plain function, which is called in threads
            (`sparkawait.blocking`), declared with `sparkawait.async_function`; an
            `sparkawait.AsyncFunction`, or a native function. Of a list, all are called for a row
            side by side, and their columns are appended in its order: each has one result a row,
            and options of its own by ``function.with_options(..)``; the options of this call are
            those of each function that has no other.
        chain: Whether this call joins the Python worker of the call that returned `df`, which must
            be untouched: one thread drives both operators, rows pass from one to the other without
            Spark, and this one begins with the first row that the other completes. The query then
            contains no `df`: if that was persisted, it is computed once more.
        metrics: Collects the metrics of all tasks; classic sessions only.
        options: A set of options; those that are given by themselves win over it.
        schema: The columns that the function returns, if it does not say so itself or says
            otherwise: a DDL string, a `StructType` or a `pyarrow.Schema`. Default: the function's.
        timeout: For one row, all attempts and the back-offs between them, from its first call on;
            time in line does not count, be it for a permit, a limit or an earlier row of its key.
            `None` for no bound. Durations are texts such as `"5s"`, timedeltas or seconds.
        attempt_timeout: For one attempt, which is cancelled then and may be tried again, unless the
            function is not idempotent: then it may have been carried out, and is the last one.
        max_wait: How long a row waits in line for a destination that is not there: whose circuit
            breaker is open, or which has not answered for `timeout`. Then it fails with kind
            `destination-unavailable`, as a timeout, or has the results of `on_timeout`. A pause
            that a service asks for, such as `Retry-After`, is waited out unless `max_wait` is
            given. Default: `timeout`.
        max_concurrency: Calls in flight per task: the only number that makes more of them.
            `sa.Adaptive(1, 500)` lets them follow what the destination bears. Default: 100; no more
            than `capacity`.
        capacity: Rows per task that were admitted and have not left, completed ones included. In
            ordered mode completed rows wait for slow ones, so there are eight times as many as
            calls: the reorder buffer. For a batched function there are those of all calls. As a
            text, such as `"256 MB"` (powers of 1024), it bounds completed rows by the bytes of
            their results alone, each with 128 bytes more for its place, however many they are.
            Default: `max_concurrency`; 8 x if ordered.
        retry: Which calls are made again that failed, and when: `3` is
            `sa.retry.exponential_backoff(3)`, and `0` none; or `sa.retry.exponential_backoff(..)`,
            `sa.retry.fixed_delay(..)`. Without it those that were not carried out: not sent,
            refused with a status of 429 or 503 and the like, or a raised `sa.RetryAfter(delay)`,
            which sets the delay; reads of Redis and PostgreSQL also after a lost connection.
            Default: 3 times what was not carried out.
        hedge: A second call for a row whose call is slow, and the first answer wins:
            `sa.Hedge(after="p95", max_extra=0.05)`, which is `True`; `"p95"` or `"300ms"` is its
            `after`. For functions that are idempotent: lookups, GET, and Python functions declared
            so.
        on_error: What becomes of a row that failed for good: `"fail"` fails the task, `"null"`
            leaves its returned columns null, `"drop"` drops it, `"capture"` adds a struct column
            `error` with kind, message, attempts and status, which is null for other rows;
            `sa.Capture(..)` gives it another name, which calls after one another need.
        on_timeout: Results for a row that timed out or waited for longer than `max_wait`, or a
            plain function of the row that makes them; without it a timeout is a failure. Python
            functions only.
        output: `"append"`: the columns of the input and the returned ones; `"replace"`: the
            returned columns only.
        cache: Rows with equal keys share one call, and results are kept in the worker process:
            `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,
            cache_missing=, key=)`; `"10min"` is its `expire_after_write`, `True` is `sa.Cache()`.
        channel: Where a row goes, such as the host or the tenant that is called: a column, an
            expression, or several. A destination that stands still does not hold the calls of
            others. Each has a tenth of the calls, unless `channels=` says how many there are, such
            as `channels=3`.
        channels: How calls are spread over channels: `sa.Channels(..)`; `3` is its `count`, how
            many are expected at a time. Alone, for a native function that knows its destinations,
            it makes each of them a channel.
        rate_limit: Calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=,
            cost=, scope=, per_channel=, name=, result_cost=, counts=, per=)`, or a list of them.
        adaptive_rate: Whether the calls per time of each channel follow what its destination
            refuses: a status of 429 or 503, or a raised `sa.RetryAfter`. Without `channel` the task
            has one rate.
        circuit_breaker: Leaves a destination alone that fails all its calls, and probes it now and
            then; rows wait while it is open, for up to `max_wait`:
            `sa.CircuitBreaker(after_failures=20, initial="1s", maximum="60s", when_open="wait")`,
            which is `True`.
        watermark: Where event time comes from:
            `sa.WatermarkStrategy.for_bounded_out_of_orderness(column, delay)`, a column or an
            expression. A watermark follows each input batch, or with `every=n` so many rows; no row
            of the unordered mode crosses one.
        output_batches: When output batches leave, and how large they are:
            `sa.OutputBatches(buffer_timeout=, max_rows=, max_bytes=, target_latency=)`. `max_bytes`
            also bounds the results that wait. Default: `sa.OutputBatches("auto", 8192, "64 MB",
            None)`.
        warm_up: The first task of a function in a worker process begins with an eighth of its
            calls, at least 4, so that `show()`, `take` and `limit` do not pay for rows that nobody
            wants; all are made 100 ms after the first rows were taken.
        carry_over: A micro-batch of a stream ends while calls are in flight, and a later one emits
            their results: `True`, or `sa.CarryOver(emit=, linger=, order_by=, drain=, vehicle=,
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
    max_concurrency: int | Adaptive | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnError = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    output: Output = "append",
    cache: Cache | str | bool | None = None,
    channel: ColumnsLike | None = None,
    channels: Channels | int | None = None,
    rate_limit: RateLimits | None = None,
    adaptive_rate: bool = False,
    circuit_breaker: CircuitBreaker | bool | None = None,
    watermark: WatermarkStrategy | None = None,
    output_batches: OutputBatches | None = None,
    warm_up: bool = True,
    carry_over: CarryOver | bool | None = None,
) -> DataFrame:
    """Calls `function` for every row of `df`; rows are emitted as their calls complete.

    Counterpart of Flink's ``AsyncDataStream.unorderedWait``. With `watermark`, no row crosses a
    watermark in either direction. The result and the errors are those of `ordered_wait`.

    Args:
        df: A batch or streaming DataFrame, of a classic session or of Spark Connect.
        function: What is called for every row, as in `ordered_wait`.
        chain: Whether this call joins the Python worker of the call that returned `df`.
        metrics: Collects the metrics of all tasks; classic sessions only.
        options: A set of options; those that are given by themselves win over it.
        schema: The columns that the function returns, if it does not say so itself or says
            otherwise: a DDL string, a `StructType` or a `pyarrow.Schema`. Default: the function's.
        timeout: For one row, all attempts and the back-offs between them, from its first call on;
            time in line does not count, be it for a permit, a limit or an earlier row of its key.
            `None` for no bound. Durations are texts such as `"5s"`, timedeltas or seconds.
        attempt_timeout: For one attempt, which is cancelled then and may be tried again, unless the
            function is not idempotent: then it may have been carried out, and is the last one.
        max_wait: How long a row waits in line for a destination that is not there: whose circuit
            breaker is open, or which has not answered for `timeout`. Then it fails with kind
            `destination-unavailable`, as a timeout, or has the results of `on_timeout`. A pause
            that a service asks for, such as `Retry-After`, is waited out unless `max_wait` is
            given. Default: `timeout`.
        max_concurrency: Calls in flight per task: the only number that makes more of them.
            `sa.Adaptive(1, 500)` lets them follow what the destination bears. Default: 100; no more
            than `capacity`.
        capacity: Rows per task that were admitted and have not left, completed ones included. In
            ordered mode completed rows wait for slow ones, so there are eight times as many as
            calls: the reorder buffer. For a batched function there are those of all calls. As a
            text, such as `"256 MB"` (powers of 1024), it bounds completed rows by the bytes of
            their results alone, each with 128 bytes more for its place, however many they are.
            Default: `max_concurrency`; 8 x if ordered.
        retry: Which calls are made again that failed, and when: `3` is
            `sa.retry.exponential_backoff(3)`, and `0` none; or `sa.retry.exponential_backoff(..)`,
            `sa.retry.fixed_delay(..)`. Without it those that were not carried out: not sent,
            refused with a status of 429 or 503 and the like, or a raised `sa.RetryAfter(delay)`,
            which sets the delay; reads of Redis and PostgreSQL also after a lost connection.
            Default: 3 times what was not carried out.
        hedge: A second call for a row whose call is slow, and the first answer wins:
            `sa.Hedge(after="p95", max_extra=0.05)`, which is `True`; `"p95"` or `"300ms"` is its
            `after`. For functions that are idempotent: lookups, GET, and Python functions declared
            so.
        on_error: What becomes of a row that failed for good: `"fail"` fails the task, `"null"`
            leaves its returned columns null, `"drop"` drops it, `"capture"` adds a struct column
            `error` with kind, message, attempts and status, which is null for other rows;
            `sa.Capture(..)` gives it another name, which calls after one another need.
        on_timeout: Results for a row that timed out or waited for longer than `max_wait`, or a
            plain function of the row that makes them; without it a timeout is a failure. Python
            functions only.
        output: `"append"`: the columns of the input and the returned ones; `"replace"`: the
            returned columns only.
        cache: Rows with equal keys share one call, and results are kept in the worker process:
            `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,
            cache_missing=, key=)`; `"10min"` is its `expire_after_write`, `True` is `sa.Cache()`.
        channel: Where a row goes, such as the host or the tenant that is called: a column, an
            expression, or several. A destination that stands still does not hold the calls of
            others. Each has a tenth of the calls, unless `channels=` says how many there are, such
            as `channels=3`.
        channels: How calls are spread over channels: `sa.Channels(..)`; `3` is its `count`, how
            many are expected at a time. Alone, for a native function that knows its destinations,
            it makes each of them a channel.
        rate_limit: Calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=,
            cost=, scope=, per_channel=, name=, result_cost=, counts=, per=)`, or a list of them.
        adaptive_rate: Whether the calls per time of each channel follow what its destination
            refuses: a status of 429 or 503, or a raised `sa.RetryAfter`. Without `channel` the task
            has one rate.
        circuit_breaker: Leaves a destination alone that fails all its calls, and probes it now and
            then; rows wait while it is open, for up to `max_wait`:
            `sa.CircuitBreaker(after_failures=20, initial="1s", maximum="60s", when_open="wait")`,
            which is `True`.
        watermark: Where event time comes from:
            `sa.WatermarkStrategy.for_bounded_out_of_orderness(column, delay)`, a column or an
            expression. A watermark follows each input batch, or with `every=n` so many rows; no row
            of the unordered mode crosses one.
        output_batches: When output batches leave, and how large they are:
            `sa.OutputBatches(buffer_timeout=, max_rows=, max_bytes=, target_latency=)`. `max_bytes`
            also bounds the results that wait. Default: `sa.OutputBatches("auto", 8192, "64 MB",
            None)`.
        warm_up: The first task of a function in a worker process begins with an eighth of its
            calls, at least 4, so that `show()`, `take` and `limit` do not pay for rows that nobody
            wants; all are made 100 ms after the first rows were taken.
        carry_over: A micro-batch of a stream ends while calls are in flight, and a later one emits
            their results: `True`, or `sa.CarryOver(emit=, linger=, order_by=, drain=, vehicle=,
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
    max_concurrency: int | Adaptive | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnError = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    output: Output = "append",
    cache: Cache | str | bool | None = None,
    channel: ColumnsLike | None = None,
    channels: Channels | int | None = None,
    rate_limit: RateLimits | None = None,
    adaptive_rate: bool = False,
    circuit_breaker: CircuitBreaker | bool | None = None,
    watermark: WatermarkStrategy | None = None,
    output_batches: OutputBatches | None = None,
    warm_up: bool = True,
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
        metrics: Collects the metrics of all tasks; classic sessions only.
        options: A set of options; those that are given by themselves win over it.
        schema: The columns that the function returns, if it does not say so itself or says
            otherwise: a DDL string, a `StructType` or a `pyarrow.Schema`. Default: the function's.
        timeout: For one row, all attempts and the back-offs between them, from its first call on;
            time in line does not count, be it for a permit, a limit or an earlier row of its key.
            `None` for no bound. Durations are texts such as `"5s"`, timedeltas or seconds.
        attempt_timeout: For one attempt, which is cancelled then and may be tried again, unless the
            function is not idempotent: then it may have been carried out, and is the last one.
        max_wait: How long a row waits in line for a destination that is not there: whose circuit
            breaker is open, or which has not answered for `timeout`. Then it fails with kind
            `destination-unavailable`, as a timeout, or has the results of `on_timeout`. A pause
            that a service asks for, such as `Retry-After`, is waited out unless `max_wait` is
            given. Default: `timeout`.
        max_concurrency: Calls in flight per task: the only number that makes more of them.
            `sa.Adaptive(1, 500)` lets them follow what the destination bears. Default: 100; no more
            than `capacity`.
        capacity: Rows per task that were admitted and have not left, completed ones included. In
            ordered mode completed rows wait for slow ones, so there are eight times as many as
            calls: the reorder buffer. For a batched function there are those of all calls. As a
            text, such as `"256 MB"` (powers of 1024), it bounds completed rows by the bytes of
            their results alone, each with 128 bytes more for its place, however many they are.
            Default: `max_concurrency`; 8 x if ordered.
        retry: Which calls are made again that failed, and when: `3` is
            `sa.retry.exponential_backoff(3)`, and `0` none; or `sa.retry.exponential_backoff(..)`,
            `sa.retry.fixed_delay(..)`. Without it those that were not carried out: not sent,
            refused with a status of 429 or 503 and the like, or a raised `sa.RetryAfter(delay)`,
            which sets the delay; reads of Redis and PostgreSQL also after a lost connection.
            Default: 3 times what was not carried out.
        hedge: A second call for a row whose call is slow, and the first answer wins:
            `sa.Hedge(after="p95", max_extra=0.05)`, which is `True`; `"p95"` or `"300ms"` is its
            `after`. For functions that are idempotent: lookups, GET, and Python functions declared
            so.
        on_error: What becomes of a row that failed for good: `"fail"` fails the task, `"null"`
            leaves its returned columns null, `"drop"` drops it, `"capture"` adds a struct column
            `error` with kind, message, attempts and status, which is null for other rows;
            `sa.Capture(..)` gives it another name, which calls after one another need.
        on_timeout: Results for a row that timed out or waited for longer than `max_wait`, or a
            plain function of the row that makes them; without it a timeout is a failure. Python
            functions only.
        output: `"append"`: the columns of the input and the returned ones; `"replace"`: the
            returned columns only.
        cache: Rows with equal keys share one call, and results are kept in the worker process:
            `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,
            cache_missing=, key=)`; `"10min"` is its `expire_after_write`, `True` is `sa.Cache()`.
        channel: Where a row goes, such as the host or the tenant that is called: a column, an
            expression, or several. A destination that stands still does not hold the calls of
            others. Each has a tenth of the calls, unless `channels=` says how many there are, such
            as `channels=3`.
        channels: How calls are spread over channels: `sa.Channels(..)`; `3` is its `count`, how
            many are expected at a time. Alone, for a native function that knows its destinations,
            it makes each of them a channel.
        rate_limit: Calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=,
            cost=, scope=, per_channel=, name=, result_cost=, counts=, per=)`, or a list of them.
        adaptive_rate: Whether the calls per time of each channel follow what its destination
            refuses: a status of 429 or 503, or a raised `sa.RetryAfter`. Without `channel` the task
            has one rate.
        circuit_breaker: Leaves a destination alone that fails all its calls, and probes it now and
            then; rows wait while it is open, for up to `max_wait`:
            `sa.CircuitBreaker(after_failures=20, initial="1s", maximum="60s", when_open="wait")`,
            which is `True`.
        watermark: Where event time comes from:
            `sa.WatermarkStrategy.for_bounded_out_of_orderness(column, delay)`, a column or an
            expression. A watermark follows each input batch, or with `every=n` so many rows; no row
            of the unordered mode crosses one.
        output_batches: When output batches leave, and how large they are:
            `sa.OutputBatches(buffer_timeout=, max_rows=, max_bytes=, target_latency=)`. `max_bytes`
            also bounds the results that wait. Default: `sa.OutputBatches("auto", 8192, "64 MB",
            None)`.
        warm_up: The first task of a function in a worker process begins with an eighth of its
            calls, at least 4, so that `show()`, `take` and `limit` do not pay for rows that nobody
            wants; all are made 100 ms after the first rows were taken.
        carry_over: A micro-batch of a stream ends while calls are in flight, and a later one emits
            their results: `True`, or `sa.CarryOver(emit=, linger=, order_by=, drain=, vehicle=,
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
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    schema: SchemaLike | None = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    max_wait: Duration | None = None,
    max_concurrency: int | Adaptive | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnError = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    cache: Cache | str | bool | None = None,
    channel: ColumnsLike | None = None,
    channels: Channels | int | None = None,
    rate_limit: RateLimits | None = None,
    adaptive_rate: bool = False,
    circuit_breaker: CircuitBreaker | bool | None = None,
    output_batches: OutputBatches | None = None,
) -> AsyncUserDefinedFunction: ...


@overload
def async_udf(
    returns: ReturnsLike | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    schema: SchemaLike | None = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    max_wait: Duration | None = None,
    max_concurrency: int | Adaptive | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnError = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    cache: Cache | str | bool | None = None,
    channel: ColumnsLike | None = None,
    channels: Channels | int | None = None,
    rate_limit: RateLimits | None = None,
    adaptive_rate: bool = False,
    circuit_breaker: CircuitBreaker | bool | None = None,
    output_batches: OutputBatches | None = None,
) -> Callable[[AsyncFunctionLike], AsyncUserDefinedFunction]: ...


def async_udf(
    function: AsyncFunctionLike | ReturnsLike | None = None,
    returns: ReturnsLike | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    schema: SchemaLike | None = None,
    timeout: Duration | None = "60s",
    attempt_timeout: Duration | None = None,
    max_wait: Duration | None = None,
    max_concurrency: int | Adaptive | None = None,
    capacity: Size | None = None,
    retry: AsyncRetryStrategy | int | None = None,
    hedge: Hedge | str | bool | None = None,
    on_error: OnError = "fail",
    on_timeout: Any | Callable[[Row], Any] = None,
    cache: Cache | str | bool | None = None,
    channel: ColumnsLike | None = None,
    channels: Channels | int | None = None,
    rate_limit: RateLimits | None = None,
    adaptive_rate: bool = False,
    circuit_breaker: CircuitBreaker | bool | None = None,
    output_batches: OutputBatches | None = None,
) -> AsyncUserDefinedFunction | Callable[[AsyncFunctionLike], AsyncUserDefinedFunction]:
    """Makes a column function that calls `function` for every row, with many calls in flight.

    The asynchronous form of ``pyspark.sql.functions.udf``: also a decorator, with or without
    arguments. A bare ``async def``, or a plain function, which is called in threads, is called with
    the values of its columns, by position and by keyword; a function that was declared for rows, by
    `sparkawait.async_function` or as an `sparkawait.AsyncFunction`, with the row that its columns
    make up.

    There is one result per row; none, ``None`` or an empty list, is null. It is a plain column if
    the type is one, such as ``"long"``, else a struct of the returned columns; a function of rows
    that returns a single column gives that. It is marked as non-deterministic, so that Spark's
    optimiser does not call it twice for a row.

    Use `ordered_wait` for functions with several results per row, or to drop rows that failed.

    Args:
        function: As for `ordered_wait`. A native function, such as ``sa.http.get(..)``, takes the
            columns that it names in the order in which it names them.
        returns: What it returns, if it does not say so itself: a type alone (``"long"``, a
            ``LongType()``) or columns (``"name string, tier int"``, a ``StructType``).
        columns: Names of the arguments in the row that a function of rows gets. Without it they
            are called as their columns; in SQL, pass one ``named_struct`` then.
        metrics: Collects the metrics of all tasks; classic sessions only.
        options: A set of options; those that are given by themselves win over it.
        schema: The columns that the function returns, if it does not say so itself or says
            otherwise: a DDL string, a `StructType` or a `pyarrow.Schema`. Default: the function's.
        timeout: For one row, all attempts and the back-offs between them, from its first call on;
            time in line does not count, be it for a permit, a limit or an earlier row of its key.
            `None` for no bound. Durations are texts such as `"5s"`, timedeltas or seconds.
        attempt_timeout: For one attempt, which is cancelled then and may be tried again, unless the
            function is not idempotent: then it may have been carried out, and is the last one.
        max_wait: How long a row waits in line for a destination that is not there: whose circuit
            breaker is open, or which has not answered for `timeout`. Then it fails with kind
            `destination-unavailable`, as a timeout, or has the results of `on_timeout`. A pause
            that a service asks for, such as `Retry-After`, is waited out unless `max_wait` is
            given. Default: `timeout`.
        max_concurrency: Calls in flight per task: the only number that makes more of them.
            `sa.Adaptive(1, 500)` lets them follow what the destination bears. Default: 100; no more
            than `capacity`.
        capacity: Rows per task that were admitted and have not left, completed ones included. In
            ordered mode completed rows wait for slow ones, so there are eight times as many as
            calls: the reorder buffer. For a batched function there are those of all calls. As a
            text, such as `"256 MB"` (powers of 1024), it bounds completed rows by the bytes of
            their results alone, each with 128 bytes more for its place, however many they are.
            Default: `max_concurrency`; 8 x if ordered.
        retry: Which calls are made again that failed, and when: `3` is
            `sa.retry.exponential_backoff(3)`, and `0` none; or `sa.retry.exponential_backoff(..)`,
            `sa.retry.fixed_delay(..)`. Without it those that were not carried out: not sent,
            refused with a status of 429 or 503 and the like, or a raised `sa.RetryAfter(delay)`,
            which sets the delay; reads of Redis and PostgreSQL also after a lost connection.
            Default: 3 times what was not carried out.
        hedge: A second call for a row whose call is slow, and the first answer wins:
            `sa.Hedge(after="p95", max_extra=0.05)`, which is `True`; `"p95"` or `"300ms"` is its
            `after`. For functions that are idempotent: lookups, GET, and Python functions declared
            so.
        on_error: What becomes of a row that failed for good: `"fail"` fails the task, `"null"`
            leaves its returned columns null, `"drop"` drops it, `"capture"` adds a struct column
            `error` with kind, message, attempts and status, which is null for other rows;
            `sa.Capture(..)` gives it another name, which calls after one another need.
        on_timeout: Results for a row that timed out or waited for longer than `max_wait`, or a
            plain function of the row that makes them; without it a timeout is a failure. Python
            functions only.
        cache: Rows with equal keys share one call, and results are kept in the worker process:
            `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,
            cache_missing=, key=)`; `"10min"` is its `expire_after_write`, `True` is `sa.Cache()`.
        channel: Where a row goes, such as the host or the tenant that is called: a column, an
            expression, or several. A destination that stands still does not hold the calls of
            others. Each has a tenth of the calls, unless `channels=` says how many there are, such
            as `channels=3`.
        channels: How calls are spread over channels: `sa.Channels(..)`; `3` is its `count`, how
            many are expected at a time. Alone, for a native function that knows its destinations,
            it makes each of them a channel.
        rate_limit: Calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=,
            cost=, scope=, per_channel=, name=, result_cost=, counts=, per=)`, or a list of them.
        adaptive_rate: Whether the calls per time of each channel follow what its destination
            refuses: a status of 429 or 503, or a raised `sa.RetryAfter`. Without `channel` the task
            has one rate.
        circuit_breaker: Leaves a destination alone that fails all its calls, and probes it now and
            then; rows wait while it is open, for up to `max_wait`:
            `sa.CircuitBreaker(after_failures=20, initial="1s", maximum="60s", when_open="wait")`,
            which is `True`.
        output_batches: When output batches leave, and how large they are:
            `sa.OutputBatches(buffer_timeout=, max_rows=, max_bytes=, target_latency=)`. `max_bytes`
            also bounds the results that wait. Default: `sa.OutputBatches("auto", 8192, "64 MB",
            None)`.

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
