# SPDX-License-Identifier: Apache-2.0
"""The options of the wait functions. Each is said once, in `WaitOptions`.

```text
  one field of WaitOptions:        a line of ColumnArguments or WaitArguments:
  default, check, meaning          the type, for keywords
        |                                |
        +--> signatures, help(), docs/options.md <--------+
        +--> WaitOptions in a Plan --> of_task: an argument of `_core.Task`
```

Made on the driver, from any thread; immutable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict

from sparkawait._plan.checks import ObjectOf
from sparkawait._plan.option import Option, documented, options_of, refuse_unknown
from sparkawait._plan.option_checks import (
    anything,
    boolean,
    calls,
    one_of,
    optional,
    route,
    rows_or_bytes,
    seconds,
    the_cache,
    the_carry_over,
    the_channels,
    the_circuit_breaker,
    the_hedge,
    the_on_error,
    the_output_batches,
    the_retry,
    the_watermark,
)
from sparkawait.adaptive import Adaptive
from sparkawait.cache import Cache
from sparkawait.capture import Capture
from sparkawait.carry_over import CarryOver
from sparkawait.channels import Channels
from sparkawait.circuit_breaker import CircuitBreaker
from sparkawait.columns import ColumnsLike
from sparkawait.durations import Duration
from sparkawait.hedge import Hedge
from sparkawait.output_batches import OutputBatches
from sparkawait.rate_limit import RateLimits, checked_limits
from sparkawait.retry import AsyncRetryStrategy
from sparkawait.sizes import Size
from sparkawait.types import Row, SchemaLike
from sparkawait.watermark import WatermarkStrategy

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "ColumnArguments",
    "FunctionArguments",
    "OnError",
    "Output",
    "WaitArguments",
    "WaitOptions",
]

OnError = Literal["fail", "null", "drop", "capture"] | Capture
Output = Literal["append", "replace"]


_HINTS = {
    "key": "it belongs to key_ordered_wait",
    "setup_timeout": "it is an attribute of an AsyncFunction, whose `open` and `close` it bounds",
    "blocked_loop_timeout": "it is said where the function is: @sa.async_function(..,"
    " blocked_loop_timeout=), or an attribute of an AsyncFunction",
}
"""What to write instead of names that are no options."""


class FunctionArguments(TypedDict, total=False):
    """The options that each of several functions may have for itself, as keywords."""

    schema: SchemaLike | None
    timeout: Duration | None
    attempt_timeout: Duration | None
    max_wait: Duration | None
    max_concurrency: int | Adaptive | None
    retry: AsyncRetryStrategy | int | None
    hedge: Hedge | str | bool | None
    on_error: OnError
    on_timeout: Any | Callable[[Row], Any]
    cache: Cache | str | bool | None
    channel: ColumnsLike | None
    channels: Channels | int | None
    rate_limit: RateLimits | None
    adaptive_rate: bool
    circuit_breaker: CircuitBreaker | bool | None


class ColumnArguments(FunctionArguments, total=False):
    """The options that column functions have, too, as keywords."""

    capacity: Size | None
    output_batches: OutputBatches | None


class WaitArguments(ColumnArguments, total=False):
    """The options of the wait functions as keywords: the types of what `WaitOptions` takes."""

    output: Output
    watermark: WatermarkStrategy | None
    warm_up: bool
    carry_over: CarryOver | bool | None


class WaitOptions:  # noqa: PLW1641 - what it holds may not be hashable
    """A set of options for the wait functions, to be used for several calls.

    Pass it as ``options=``; a keyword that is given besides wins over it. Options that are not
    given have their defaults. The attributes are the checked values: durations are seconds, sizes
    are bytes.

    Args:
        **options: Each option by its name.

    Raises:
        ConfigurationError: If a value is wrong, or an option unknown. What depends on several
            options, or on the function, is checked when a wait function is called.

    Examples:
        >>> import sparkawait as sa
        >>> patient = sa.WaitOptions(timeout="5 min", retry=9)
        >>> patient.timeout
        300.0
        >>> sa.ordered_wait(df, lookup, options=patient, on_error="null")  # doctest: +SKIP
    """

    schema = Option(
        None,
        anything,
        "the columns that the function returns, if it does not say so itself or says otherwise: a"
        " DDL string, a `StructType` or a `pyarrow.Schema`",
        shown="the function's",
    )
    timeout = Option(
        "60s",
        seconds,
        "for one row, all attempts and the back-offs between them, from its first call on; time in"
        " line does not count, be it for a permit, a limit or an earlier row of its key. `None` for"
        ' no bound. Durations are texts such as `"5s"`, timedeltas or seconds',
        of_task=True,
    )
    attempt_timeout = Option(
        None,
        seconds,
        "for one attempt, which is cancelled then and may be tried again, unless the function is"
        " not idempotent: then it may have been carried out, and is the last one",
        of_task=True,
        is_rare=True,
    )
    max_wait = Option(
        None,
        seconds,
        "how long a row waits in line for a destination that is not there: whose circuit breaker"
        " is open, or which has not answered for `timeout`. Then it fails with kind"
        " `destination-unavailable`, as a timeout, or has the results of `on_timeout`. A pause that"
        " a service asks for, such as `Retry-After`, is waited out unless `max_wait` is given",
        shown="= `timeout`",
        of_task=True,
        is_rare=True,
    )
    max_concurrency = Option(
        None,
        calls,
        "calls in flight per task: the only number that makes more of them. `sa.Adaptive(1, 500)`"
        " lets them follow what the destination bears",
        shown="100; no more than `capacity`",
    )
    capacity = Option(
        None,
        optional(rows_or_bytes),
        "rows per task that were admitted and have not left, completed ones included. In ordered"
        " mode completed rows wait for slow ones, so there are eight times as many as calls: the"
        " reorder buffer. For a batched function there are those of all calls. As a text, such as"
        ' `"256 MB"` (powers of 1024), it bounds completed rows by the bytes of their results'
        " alone, each with 128 bytes more for its place, however many they are",
        shown="= `max_concurrency`; 8 x if ordered",
        of_function=False,
    )
    retry = Option(
        None,
        the_retry,
        "which calls are made again that failed, and when: `3` is"
        " `sa.retry.exponential_backoff(3)`, and `0` none; or `sa.retry.exponential_backoff(..)`,"
        " `sa.retry.fixed_delay(..)`. Without it those that were not carried out: not sent, refused"
        " with a status of 429 or 503 and the like, or a raised `sa.RetryAfter(delay)`, which sets"
        " the delay; reads of Redis and PostgreSQL also after a lost connection",
        shown="3 times what was not carried out",
    )
    hedge = Option(
        None,
        the_hedge,
        "a second call for a row whose call is slow, and the first answer wins:"
        ' `sa.Hedge(after="p95", max_extra=0.05)`, which is `True`; `"p95"` or `"300ms"` is its'
        " `after`. For functions that are idempotent: lookups, GET, and Python functions declared"
        " so",
    )
    on_error = Option(
        "fail",
        the_on_error,
        'what becomes of a row that failed for good: `"fail"` fails the task, `"null"` leaves its'
        ' returned columns null, `"drop"` drops it, `"capture"` adds a struct column `error` with'
        " kind, message, attempts and status, which is null for other rows; `sa.Capture(..)` gives"
        " it another name, which calls after one another need",
    )
    on_timeout = Option(
        None,
        anything,
        "results for a row that timed out or waited for longer than `max_wait`, or a plain function"
        " of the row that makes them; without it a timeout is a failure. Python functions only",
    )
    output: Option[Output] = Option(
        "append",
        one_of("append", "replace"),
        '`"append"`: the columns of the input and the returned ones; `"replace"`: the returned'
        " columns only",
        of_columns=False,
        of_task=True,
    )
    cache = Option(
        None,
        the_cache,
        "rows with equal keys share one call, and results are kept in the worker process:"
        " `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,"
        ' cache_missing=, key=)`; `"10min"` is its `expire_after_write`, `True` is `sa.Cache()`',
    )
    channel = Option(
        None,
        route,
        "where a row goes, such as the host or the tenant that is called: a column, an expression,"
        " or several. A destination that stands still does not hold the calls of others. Each has a"
        " tenth of the calls, unless `channels=` says how many there are, such as `channels=3`",
    )
    channels = Option(
        None,
        the_channels,
        "how calls are spread over channels: `sa.Channels(..)`; `3` is its `count`, how many are"
        " expected at a time. Alone, for a native function that knows its destinations, it makes"
        " each of them a channel",
        is_rare=True,
    )
    rate_limit = Option(
        None,
        checked_limits,
        'calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=, cost=,'
        " scope=, per_channel=, name=, result_cost=, counts=, per=)`, or a list of them",
    )
    adaptive_rate = Option(
        False,  # noqa: FBT003 - the default
        boolean,
        "whether the calls per time of each channel follow what its destination refuses: a status"
        " of 429 or 503, or a raised `sa.RetryAfter`. Without `channel` the task has one rate",
        is_rare=True,
    )
    circuit_breaker = Option(
        None,
        the_circuit_breaker,
        "leaves a destination alone that fails all its calls, and probes it now and then; rows wait"
        " while it is open, for up to `max_wait`: `sa.CircuitBreaker(after_failures=20,"
        ' initial="1s", maximum="60s", when_open="wait")`, which is `True`',
    )
    watermark = Option(
        None,
        the_watermark,
        "where event time comes from: `sa.WatermarkStrategy.for_bounded_out_of_orderness(column,"
        " delay)`, a column or an expression. A watermark follows each input batch, or with"
        " `every=n` so many rows; no row of the unordered mode crosses one",
        of_columns=False,
        is_rare=True,
    )
    output_batches = Option(
        None,
        the_output_batches,
        "when output batches leave, and how large they are: `sa.OutputBatches(buffer_timeout=,"
        " max_rows=, max_bytes=, target_latency=)`. `max_bytes` also bounds the results that wait",
        shown='= `sa.OutputBatches("auto", 8192, "64 MB", None)`',
        of_function=False,
        is_rare=True,
    )
    warm_up = Option(
        True,  # noqa: FBT003 - the default
        boolean,
        "the first task of a function in a worker process begins with an eighth of its calls, at"
        " least 4, so that `show()`, `take` and `limit` do not pay for rows that nobody wants; all"
        " are made 100 ms after the first rows were taken",
        of_columns=False,
        is_rare=True,
    )
    carry_over = Option(
        None,
        the_carry_over,
        "a micro-batch of a stream ends while calls are in flight, and a later one emits their"
        " results: `True`, or `sa.CarryOver(emit=, linger=, order_by=, drain=, vehicle=, name=)`."
        " Streaming DataFrames only",
        of_columns=False,
    )

    given: dict[str, Any]
    """The options that were given, by name and as they were given, but for short forms: each is
    the object that it stands for, so that calls with this set share its cache."""

    def __init__(self, **options: Unpack[WaitArguments]) -> None:
        """Checks each value by itself."""
        given: dict[str, Any] = {**options}
        known = options_of(WaitOptions)
        for name in given:
            if name not in known:
                refuse_unknown(name, known, _HINTS.get(name, ""))
        values = {name: given.get(name, option.default) for name, option in known.items()}
        self.__dict__["given"] = given
        for name, option in known.items():
            checked = self.__dict__[name] = option.check(values[name], name)
            # `None` may be what a short form stands for, as 0 of `retry`, and mean something else.
            if name in given and isinstance(option.check, ObjectOf) and checked is not None:
                given[name] = checked

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuses: two calls may share the set."""
        msg = f"`{name}` cannot be set; make another set, WaitOptions(..)"
        raise AttributeError(msg)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WaitOptions) and self.given == other.given

    def __repr__(self) -> str:
        """Shows what was given."""
        return f"WaitOptions({', '.join(f'{name}={it!r}' for name, it in self.given.items())})"


OPTIONS = options_of(WaitOptions)
"""All options by name."""
COLUMN_OPTIONS = {name: option for name, option in OPTIONS.items() if option.of_columns}
"""Those that column functions have."""

documented(OPTIONS, WaitArguments)(WaitOptions)
