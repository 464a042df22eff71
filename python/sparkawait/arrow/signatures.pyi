# SPDX-License-Identifier: Apache-2.0
"""What editors show of `sparkawait.arrow`. `make signatures` writes this file; nothing runs it.

The functions themselves are in `sparkawait.arrow.wait`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparkawait._checks import ColumnsLike, Duration, Size
from sparkawait._schema.types import Row, SchemaLike
from sparkawait.arrow.output import Batches
from sparkawait.arrow.wait import ArrowInput
from sparkawait.functions import AsyncFunctionsLike
from sparkawait.journal import JournalLike
from sparkawait.limits import Adaptive, Channel, CircuitBreaker, Hedge
from sparkawait.metrics import Metrics
from sparkawait.options import WaitOptions
from sparkawait.outcomes import Cache, CarryOver, OnErrorLike, Tuning, WatermarkStrategy
from sparkawait.rate_limit import PerJob, RateLimits
from sparkawait.retry import AsyncRetryStrategy

__all__ = ["key_ordered_wait", "ordered_wait", "unordered_wait"]


def ordered_wait(
    batches: ArrowInput,
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
) -> Batches:
    """Calls `function` for every row; the output has the order of the input.

    Args:
        batches: What has ``__arrow_c_stream__``, such as a PyArrow table or a polars DataFrame; a
            list of dicts, one for each row; or a dict with a list for each column. Or an iterable
            of these and of record batches, all of one schema, which is pulled lazily and ahead of
            need. An asynchronous one is for an ``async for`` over the output.
        function: An ``async def``, or a plain function, which is called in threads, decorated with
            `sparkawait.async_function` or with ``schema=`` given here; an `AsyncFunction` or a
            native function; or a list of several, which are called for a row side by side.
        chain: Whether this call joins the task of the call that returned `batches`: one thread
            drives both operators, and this one begins with the first row that the other completes.
        metrics: Adds up what this and other calls count, while they run and after they ended:
            `sparkawait.Metrics`.
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
        An iterator of non-empty batches, whose row counts do not follow those of the input, and an
        Arrow stream: ``polars.DataFrame(out)``, ``out.to_table()`` and others, see `Batches`.

    Raises:
        ConfigurationError: At once if an argument is wrong; from the iterator if it does not go
            with the input.
        AsyncFunctionError: From the iterator, if a row failed on its last attempt and `on_error`
            is ``"fail"``. Rows that completed before it have been emitted.
        ResultError: The same, if what the function returned does not fit its schema.
        OperatorStateError: On the event loop that runs the functions, in a coroutine or `open`.
    """
    ...


def unordered_wait(
    batches: ArrowInput,
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
) -> Batches:
    """Calls `function` for every row; rows are emitted as they complete.

    With ``watermark=`` rows between two watermarks may overtake one another, and no row crosses a
    watermark. Result and exceptions are those of `ordered_wait`.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        chain: As in `ordered_wait`.
        metrics: As in `ordered_wait`.
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
    batches: ArrowInput,
    function: AsyncFunctionsLike,
    *,
    key: str | Sequence[str],
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
) -> Batches:
    """Calls `function` for every row, one at a time per key; each key keeps its order.

    Rows with a null key have no order among themselves. Result and exceptions are those of
    `ordered_wait`; `timeout` includes the wait for the key.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        key: Column, or columns, of the key.
        chain: As in `ordered_wait`.
        metrics: As in `ordered_wait`.
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
