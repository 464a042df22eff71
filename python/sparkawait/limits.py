# SPDX-License-Identifier: Apache-2.0
"""What a service is asked at a time: rows of a call, calls of a destination, fewer or none.

Each is a description, made on the driver from any thread, and has its option behind it. Limits in
time are in `sparkawait.rate_limit`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

from sparkawait._checks import (
    MAX_BYTES,
    MAX_COUNT,
    ColumnLike,
    ColumnsLike,
    Duration,
    ObjectOf,
    Size,
    choice,
    flag,
    integer,
    or_none,
    parse_duration,
    parse_size,
    positive_duration,
    refuse,
    shown,
)
from sparkawait._checks import columns as columns_of
from sparkawait._option import Option, with_known_names
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.rate_limit import PerJob


@with_known_names
@dataclass(frozen=True)
class Batch:
    """How rows are collected for `AsyncFunction.async_invoke_batch`.

    A call is made when `max_rows` or `max_bytes` is reached, and at the latest `linger` after its
    first row.

    Args:
        max_rows: Most rows in one call; no more than `capacity` rows are ever collected.
        max_bytes: Sends a batch once its cells hold this many bytes, an int or a text such as
            ``"64 KB"``; a larger single row is sent alone. ``None`` does not look at bytes, which
            is faster.
        linger: Longest time that a row waits for company: str with unit, timedelta or seconds.
        split_on_error: Whether a call that raises is made again for each half of its rows, until
            the rows at fault are alone: they fail, the others have their results. Before that, up
            to log2(n) of n rows are called for alone, unless the exception has status 400, 413 or
            422: if none is answered, the service is down and all rows fail. Each half is a call
            like any: an attempt of its rows, which takes permits of rate limits but no retry. One
            row at fault of n costs 3 log2(n) more calls at most. False fails all rows of the call.
            Not split is a call whose exception asks to come again later, as `sparkawait.RetryAfter`
            does, and one that does not return a list with one result per row.
        arrow: Calls the function with a `pyarrow.RecordBatch` of the rows, instead of a list.
            It returns one of as many rows, in their order, with the declared columns by name; what
            has ``__arrow_c_stream__``, such as a data frame of polars, will do. For clients and
            libraries that work on columns; no row becomes an object of Python. A row whose text is
            not UTF-8 fails, in any column. Not with `max_bytes`.
    """

    max_rows: int = 100
    max_bytes: Size | None = None
    linger: Duration = "10ms"
    split_on_error: bool = False
    arrow: bool = False

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ConfigurationError: If one of them is wrong.
        """
        kind = ErrorKind.BATCH_INVALID
        integer(self.max_rows, "max_rows", 1, MAX_BYTES, kind=kind)
        if self.max_bytes is not None:
            size = parse_size(self.max_bytes, "max_bytes", most=MAX_BYTES, kind=kind)
            object.__setattr__(self, "max_bytes", size)
        object.__setattr__(self, "linger", parse_duration(self.linger, "linger"))
        for name in ("split_on_error", "arrow"):
            flag(getattr(self, name), name, kind=kind)
        if self.arrow and self.max_bytes is not None:
            refuse("`max_bytes` counts the cells of rows; leave it out with `arrow=True`", kind)

    @property
    def linger_seconds(self) -> float:
        """The linger in seconds."""
        return parse_duration(self.linger, "linger")


the_batch = ObjectOf(
    Batch,
    "a sparkawait.Batch, or an int for its `max_rows`",
    ErrorKind.BATCH_INVALID,
    {int: lambda rows: Batch(max_rows=rows)},
)


# -- destinations that do not hold one another: how calls and waiting rows are spread over channels
#
# A `Channel` is checked on the driver, where the wait function is called, and travels as plain
# numbers.


COUNT = 10
"""Channels that are expected when nothing is said: Flink's 2, 8 and 10 buffers for 100 calls."""
MIN_BACKLOG = 10_000
"""Default of `max_backlog` for a small capacity: a batch of Spark."""
_KIND = ErrorKind.CHANNELS_INVALID


class Credits(NamedTuple):
    """What a `Channel` comes to for one call, in the order of `_core.Task`."""

    exclusive: int
    floating: int
    max_per_channel: int
    max_backlog: int
    max_backlog_per_channel: int


@with_known_names
@dataclass(frozen=True)
class Channel:
    """The destination of a row, and how calls are spread over destinations, for ``channel=``.

    A channel is a destination: a host, a shard, a tenant. A call of a channel takes a *credit*.
    Some credits are the channel's own while it has rows (*exclusive*), the others *float*: they are
    lent to channels that have rows waiting, one at a time in turn. So a destination that stands
    still holds its own calls and no others. ``max_concurrency`` and `count` set the number of each
    kind. Rows that wait for a credit count towards `max_backlog` instead of ``capacity``, as long
    as not all calls are in flight; the input stops when either is used up.

    ``channel="tenant"`` is ``Channel("tenant")``.

    Defaults follow ``max_concurrency``, or what a native function can have on its way if that is
    less (``connections=``), and `count`: of 100 calls and 10 channels, 2 credits are each channel's
    own, 80 float, and a channel has at most 10 calls in flight.

    Args:
        columns: What tells one destination from another: a column, an expression of Spark, or
            several. Without it, the destination is the host for `sparkawait.http`, if there are
            columns in it, and the node for `sparkawait.redis` with ``cluster=True``; other
            functions need it.
        count: How many channels are expected to have rows at the same time; 10 by default. More
            than that work, too, and are isolated by their floating credits only.
        max_per_channel: Most calls in flight of one channel. By default its even share: raise it if
            one channel alone shall be able to use more.
        max_backlog: Rows that may wait for a credit, all channels together, beyond ``capacity``.
            By default ten times the capacity, and at least 10 000.
        max_backlog_per_channel: Rows of them that may be of one channel; its further rows take
            slots of ``capacity``. By default `max_backlog`.

    Raises:
        ConfigurationError: If a value is wrong. What depends on ``max_concurrency`` is checked when
            the wait function is called.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait as sa
        >>> @sa.async_function("greeting string")
        ... async def greet(row):
        ...     return {"greeting": f"hello {row['tenant']}"}
        >>> rows = [pa.record_batch({"tenant": ["a", "b", None]})]
        >>> out = sa.arrow.ordered_wait(rows, greet, channel=sa.Channel("tenant", count=3))
        >>> out.to_table()["greeting"].to_pylist()
        ['hello a', 'hello b', 'hello None']
    """

    columns: ColumnsLike | None = None
    count: int | None = None
    max_per_channel: int | None = None
    max_backlog: int | None = None
    max_backlog_per_channel: int | None = None

    def __post_init__(self) -> None:
        """Checks what can be checked without the other options."""
        if self.columns is not None:
            found = columns_of(self.columns, "columns", _KIND, " of Channel")
            object.__setattr__(self, "columns", found)
        for name in ("count", "max_per_channel", "max_backlog", "max_backlog_per_channel"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, 1, of=" of Channel", kind=_KIND)

    @property
    def by(self) -> tuple[ColumnLike, ...]:
        """The columns; none if the function has to know its destinations."""
        return cast("tuple[ColumnLike, ...]", self.columns or ())

    @property
    def expected(self) -> int:
        """How many channels are expected to have rows at the same time."""
        return self.count or COUNT

    def with_columns(self, columns: Sequence[ColumnLike]) -> Channel:
        """Returns the same with the columns called otherwise."""
        return replace(self, columns=tuple(columns))

    def resolve(self, max_concurrency: int, capacity: int) -> Credits:
        """Returns the numbers for a call with these options.

        Raises:
            ConfigurationError: If bounds contradict each other.
        """
        count = self.expected
        # One credit floats at least: a channel that comes when all others are taken would wait for
        # ever. Channels that nobody has counted have the expected share.
        most = (max_concurrency - 1) // (self.count or 1)
        # Where calls are few all float: what a channel that does not come would have lies idle.
        least = 1 if max_concurrency >= 2 * count else 0
        exclusive = min(max(max_concurrency // (5 * count), least), most)
        share = max(-(-max_concurrency // count), exclusive, 1)
        max_per_channel = self.max_per_channel or min(share, max_concurrency)
        if max_per_channel > max_concurrency:
            refuse(
                "`max_per_channel` must not be above `max_concurrency`,"
                f" got {max_per_channel} and {max_concurrency}",
                _KIND,
            )
        exclusive = min(exclusive, max_per_channel)
        floating = max(max_concurrency - exclusive * count, 1)
        max_backlog = self.max_backlog or max(MIN_BACKLOG, 10 * capacity)
        max_backlog = min(max_backlog, MAX_COUNT - capacity)
        per_channel = self.max_backlog_per_channel or max_backlog
        if per_channel > max_backlog:
            refuse(
                f"`max_backlog_per_channel` must not be above `max_backlog`,"
                f" got {per_channel} and {max_backlog}",
                _KIND,
            )
        return Credits(exclusive, floating, max_per_channel, max_backlog, per_channel)


CHANNEL = Option(
    "the destination of a row, such as its host or tenant: a column, an expression, or"
    " several. A slow destination does not hold up the others. Each gets a tenth of the"
    ' calls, unless `sa.Channel("tenant", count=3)` gives the number of destinations'
    " (`max_per_channel=`, `max_backlog=`, `max_backlog_per_channel=`). Native functions that know"
    " their destinations need no column",
    ObjectOf(
        Channel,
        "a column, an expression, a list of them, or a sparkawait.Channel",
        _KIND,
        {object: Channel},
    ),
    type="Channel | ColumnsLike | None",
)


# -- what protects a service, and a job from it: fewer calls, none for a while, or a second one
#
# Each is a description, made on the driver from any thread, and has its option behind it.


class AdaptiveTerms(NamedTuple):
    """What an `Adaptive` comes to, as `_core.Task` takes it; the latency is in seconds."""

    initial: int
    min: int
    max: int
    max_latency: float | None


@with_known_names
@dataclass(frozen=True)
class Adaptive:
    """Finds out how many calls in flight a destination bears, for ``max_concurrency=``.

    The number grows while calls end well: it doubles with each round trip until the first call is
    dropped, and grows by one with each round trip after that. A dropped call takes a tenth of it
    away, once in a round trip.

    A call counts as dropped if it failed in a way that is worth another attempt: a status of 429 or
    from 500, a lost connection, an exception that ``retry=`` retries. It also does if it took
    longer than ``attempt_timeout`` or `max_latency`, or if its row timed out while it ran and had
    not waited for longer than that. Other failures change nothing.

    Without ``channel=`` the task has one such number. With it each channel has its own, which also
    stays within ``max_per_channel`` of its `Channel`. Of a batched function the rows in its calls
    count, `min` and `max` times those that a call takes.

    Args:
        min: Least calls in flight, of each channel.
        max: Most calls in flight of a task, all channels together.
        initial: Those of a channel that is new, or was forgotten. By default `min`.
        max_latency: A call that takes longer counts as dropped, though its result is taken. By
            default however long it takes.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> found = sa.WaitOptions(max_concurrency=sa.Adaptive(1, 500, max_latency="2s"))
    """

    min: int = 1
    max: int = 100
    initial: int | None = None
    max_latency: Duration | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        _check("min", self.min, 1)
        _check("max", self.max, self.min)
        if self.initial is not None:
            _check("initial", self.initial, self.min, self.max)
        if self.max_latency is not None:
            positive_duration(self.max_latency, "max_latency", hint="None sets no bound")

    def resolve(self, rows_per_call: int = 1) -> AdaptiveTerms:
        """Returns the numbers for a function whose calls have at most so many rows."""
        initial = self.min if self.initial is None else self.initial
        latency = self.max_latency
        seconds = None if latency is None else positive_duration(latency, "max_latency")
        least, most = self.min * rows_per_call, self.max * rows_per_call
        return AdaptiveTerms(initial * rows_per_call, least, most, seconds)


def _check(name: str, value: object, least: int, most: int = 2**31 - 1) -> None:
    kind = ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE
    integer(value, name, least, most, of=" of Adaptive", kind=kind)


def _checked(value: object, name: str) -> int | Adaptive | PerJob | None:
    """Returns a number of calls, or what finds it."""
    if value is None or isinstance(value, (Adaptive, PerJob)):
        return value
    kind = ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE
    other = ", a sparkawait.Adaptive or a sparkawait.PerJob"
    return integer(value, name, 1, other=other, kind=kind)


MAX_CONCURRENCY = Option(
    "calls in flight per task. `sa.Adaptive(1, 500)` finds out what the destination bears;"
    " `sa.PerJob(500)` bounds those of all tasks together",
    _checked,
    type="int | Adaptive | PerJob | None",
    shown="100; no more than `capacity`",
)


# -- when a destination that fails its calls is left alone, for the option ``circuit_breaker=``

WhenOpen = Literal["wait", "fail"]


class PauseTerms(NamedTuple):
    """What a `CircuitBreaker` comes to, as `_core.Task` takes it; times are in seconds."""

    after_drops: int
    initial: float
    maximum: float
    refuses: bool


@with_known_names
@dataclass(frozen=True)
class CircuitBreaker:
    """Leaves a destination alone that fails all its calls, and probes it now and then.

    A refusal, such as a status of 401 or 404, is an answer and does not open it: the destination is
    there. With a wrong key each row costs a call, unless ``on_error="fail"`` ends the job.

    While it is open, rows wait for up to ``max_wait``, or fail at once with ``when_open="fail"``.

    Where they wait, an outage takes one try of a row, however many of its calls are dropped, as
    long as the channel has no answer between them. A row that would end opens it, too, and waits
    for a probe.

    It opens after `after_failures` failed calls in a row. Then the channel makes one probe after
    `initial`, and the next ones after twice that time each, up to `maximum` (give or take a tenth).
    The first answer closes it; calls then grow from one at a time. A call has failed if it was
    dropped, as `Adaptive` says. Any answer, also a failure of its row, starts the count again.
    Other channels are not touched. Without ``channel=`` the task has one.

    Args:
        after_failures: Failed calls in a row, at least 1.
        initial: Time until the first probe: str with unit, timedelta or seconds.
        maximum: Longest time between two.
        when_open: ``"wait"``: rows wait, each for ``max_wait`` at most. ``"fail"``: they fail at
            once, with kind ``destination-paused``, also those that wait for a retry.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> CircuitBreaker(maximum="30s").resolve()
        PauseTerms(after_drops=20, initial=1.0, maximum=30.0, refuses=False)
    """

    after_failures: int = 20
    initial: Duration = "1s"
    maximum: Duration = "60s"
    when_open: WhenOpen = "wait"

    def __post_init__(self) -> None:
        """Checks the values."""
        self.resolve()

    def resolve(self) -> PauseTerms:
        """Returns the numbers.

        Raises:
            ConfigurationError: If one of them is wrong.
        """
        of = " of CircuitBreaker"
        failures = integer(self.after_failures, "after_failures", 1, of=of)
        when_open = choice(self.when_open, "when_open", "wait", "fail", of=of)
        initial = positive_duration(self.initial, "initial")
        maximum = positive_duration(self.maximum, "maximum")
        if maximum < initial:
            refuse(
                f"`maximum`{of} must not be below `initial`,"
                f" got {shown(self.maximum)} and {shown(self.initial)}"
            )
        return PauseTerms(failures, initial, maximum, when_open == "fail")


CIRCUIT_BREAKER = Option(
    "leaves a destination alone that fails all its calls, and probes it now and then; rows"
    " wait for up to `max_wait`. `True` means `sa.CircuitBreaker(after_failures=20,"
    ' initial="1s", maximum="60s", when_open="wait")`',
    ObjectOf(
        CircuitBreaker,
        "a sparkawait.CircuitBreaker or True",
        short={bool: or_none(CircuitBreaker)},
    ),
    type="CircuitBreaker | bool | None",
)


# -- a second call beside one that is slow, for the option ``hedge=``

_PERCENTILE = re.compile(r"p(\d{2}(?:\.\d+)?)")
_RULE = "a percentile from p50 to below p100 such as 'p95', or a duration such as '200ms'"


class HedgeBounds(NamedTuple):
    """What a `Hedge` comes to, as `_core.Task` takes it.

    Attributes:
        seconds: When the second call starts, if it is said as a time.
        share: The share of the calls that are faster, otherwise.
        max_extra: Second calls for each first one.
    """

    seconds: float | None
    share: float
    max_extra: float


@with_known_names
@dataclass(frozen=True)
class Hedge:
    """Makes a second call for a row whose call is slow; the first answer wins.

    The other call is cancelled. A second call takes a credit of its channel, ahead of rows that
    wait, and pays each limit. Rows with two calls never hold all credits of the task or of a
    channel, so there are none with fewer than three calls at a time. A channel whose `Adaptive`
    shrinks gets none. Of two calls the one that fails in a way that is worth a retry leaves its row
    to the other. They are one attempt to ``retry=``; ``attempt_timeout`` is for each.

    Only for functions where a second call does no harm.

    Args:
        after: How slow: a percentile of the task's calls, such as ``"p95"``, which follows what
            they take, in steps of an eighth; or a time, as str with unit, timedelta or seconds. Of
            fewer than 20 calls there is no percentile.
        max_extra: Second calls for each first one at most, above 0 and up to 1. Up to ten are saved
            up.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> Hedge(after="200ms", max_extra=0.02).resolve()
        HedgeBounds(seconds=0.2, share=0.0, max_extra=0.02)
    """

    after: Duration = "p95"
    max_extra: float = 0.05

    def __post_init__(self) -> None:
        """Checks the values."""
        self.resolve()

    def resolve(self) -> HedgeBounds:
        """Returns the numbers.

        Raises:
            ConfigurationError: If one of them is wrong.
        """
        extra = cast("object", self.max_extra)
        if not isinstance(extra, int | float) or isinstance(extra, bool) or not 0 < extra <= 1:
            refuse(f"`max_extra` of Hedge must be a number above 0 and up to 1, got {shown(extra)}")
        after = self.after
        if isinstance(after, str) and after.startswith("p"):
            found = _PERCENTILE.fullmatch(after)
            share = float(found[1]) / 100 if found else 0.0
            if not 0.5 <= share < 1:  # noqa: PLR2004 - as the message says
                refuse(f"`after` of Hedge must be {_RULE}, got {shown(after)}")
            return HedgeBounds(None, share, float(extra))
        try:
            return HedgeBounds(positive_duration(after, "after"), 0.0, float(extra))
        except ConfigurationError as error:
            refuse(f"{error}; `after` of Hedge is {_RULE}")


HEDGE = Option(
    "a second call for a row whose call is slow; the first answer wins. `True` means"
    ' `sa.Hedge(after="p95", max_extra=0.05)`; `"p95"` or `"300ms"` sets its `after`. Only for'
    " idempotent functions: lookups, GET, and Python functions declared so",
    ObjectOf(
        Hedge,
        "a sparkawait.Hedge, True, or a text such as 'p95' or '300ms' for its `after`",
        short={bool: or_none(Hedge), str: lambda after: Hedge(after=after)},
    ),
    type="Hedge | str | bool | None",
    of_task=True,
)
