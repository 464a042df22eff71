# SPDX-License-Identifier: Apache-2.0
"""What happens to a row: its failure, what is told of it, what is kept, when it leaves.

Each is a description, made on the driver from any thread, and has its option behind it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import pyarrow as pa

from sparkawait._checks import (
    MAX_BYTES,
    MAX_COUNT,
    ColumnLike,
    ColumnsLike,
    Duration,
    ObjectOf,
    Size,
    choice,
    columns,
    flag,
    integer,
    is_expression,
    named,
    number,
    or_none,
    parse_duration,
    parse_size,
    positive_duration,
    refuse,
    shown,
    text,
)
from sparkawait._option import Option, optional, with_known_names
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["CALL_TYPE", "ERROR_TYPE", "INFO", "ON_ERROR", "OnError", "OnErrorLike", "action_of"]

Action: TypeAlias = Literal["fail", "null", "drop", "capture"]

ACTIONS = ("fail", "null", "drop", "capture")
COLUMN = "error"
"""The column of failures, unless it has another name."""
FAILED_ROWS = 100
"""Failed rows from which on a share of them says something while a task runs."""
ENDED_ROWS = 20
"""Rows of a task from which on a share of them says something when it has ended."""
_PARTS = 1_000_000

ERROR_TYPE = pa.struct(
    [
        ("kind", pa.string()),
        ("message", pa.string()),
        ("attempts", pa.int32()),
        ("status", pa.int32()),
    ]
)
"""The type of the column, as the extension module makes it."""


@with_known_names
@dataclass(frozen=True)
class OnError:
    """What happens to a row that failed for good, and when there are too many of them.

    A wrong key or a service that is down so ends a job early, and some bad rows do not. Counted are
    the rows of a task that failed for good. Where they are too many, the task fails, and Spark runs
    it again as it does with each task that fails. ``on_error="null"`` is ``OnError("null")``.

    Args:
        action: ``"capture"`` keeps the failure in a column, beside null returned columns: a struct
            of kind, message, attempts and status, which is null for other rows. ``"null"`` leaves
            the returned columns null, ``"drop"`` drops the row, ``"fail"`` fails the task.
        column: The name of the column with ``"capture"``; ``"error"`` by default. In a chain, and
            with several functions in one call, give each another name.
        stop_after: The task fails when so many rows have failed. With `stop_ratio`, from so many on
            that share is looked at while the task runs; 100 by default.
        stop_ratio: The task fails when this share of the rows that have ended has failed, above 0
            and up to 1. When all rows of a task have ended, it is looked at once more, however few
            of them have failed, if there are at least 20 rows. With a classic session the driver
            adds up all tasks of an action that runs, too, from as many failed rows on, and cancels
            its job: tasks may be too small to have many.

    Raises:
        ConfigurationError: If a value is wrong, or of no use with this action.

    Examples:
        >>> import sparkawait as sa
        >>> named = sa.OnError("capture", column="why")
        >>> some = sa.OnError("capture", stop_after=1000)  # a thousand failed rows in a task
        >>> few = sa.OnError("null", stop_ratio=0.1)  # a tenth of its rows
        >>> sa.unordered_wait(df, lookup, on_error=some)  # doctest: +SKIP
    """

    action: Action = "capture"
    column: str | None = None
    stop_after: int | None = None
    stop_ratio: float | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        choice(self.action, "action", *ACTIONS, of=" of OnError")
        if self.action == "capture":
            column = COLUMN if self.column is None else self.column
            object.__setattr__(self, "column", column)
            text(column, "column", "a name that is not empty", of=" of OnError")
        elif self.column is not None:
            refuse(f"`column` of OnError names what 'capture' adds, got it with {self.action!r}")
        if self.stop_after is not None:
            integer(self.stop_after, "stop_after", 1, MAX_COUNT, of=" of OnError")
        if self.stop_ratio is not None:
            number(self.stop_ratio, "stop_ratio", 1 / _PARTS, 1, of=" of OnError")
        if self.action == "fail" and self.is_bounded:
            refuse(
                "`stop_after` and `stop_ratio` of OnError are for failures that are kept, got them"
                " with 'fail', which ends the task with the first one"
            )

    @property
    def is_bounded(self) -> bool:
        """Whether a task may have too many failures."""
        return self.stop_after is not None or self.stop_ratio is not None

    @property
    def terms(self) -> tuple[int, int, int | None] | None:
        """The failed rows and the share in parts of a million that are too many in a running task.

        A task with so many rows as the third number says has its share looked at once more at its
        end. ``None`` if nothing is too many.
        """
        if not self.is_bounded:
            return None
        share = round((self.stop_ratio or 0) * _PARTS)
        return self.stop_after or FAILED_ROWS, share, ENDED_ROWS if share else None

    @property
    def terms_of_job(self) -> tuple[int, float] | None:
        """From how many failed rows on, and above which share, a job has too many of them."""
        return (
            None if self.stop_ratio is None else (self.stop_after or FAILED_ROWS, self.stop_ratio)
        )

    def of_task(self) -> dict[str, Any]:
        """Returns what `_core.Task` takes."""
        return {
            "on_error": self.action,
            "error_column": self.column or COLUMN,
            "fail_after": self.terms,
        }

    def __str__(self) -> str:
        """Shows when a task fails."""
        bounds = {"stop_after": self.stop_after, "stop_ratio": self.stop_ratio}
        given = "".join(f", {name}={it:g}" for name, it in bounds.items() if it is not None)
        return f"OnError({self.action!r}{given})"


OnErrorLike: TypeAlias = Action | OnError
"""What happens to a row that failed for good: a word, or an `OnError`."""


def action_of(on_error: object) -> object:
    """Returns what happens to a row that failed, of a value that may not have been checked."""
    return on_error.action if isinstance(on_error, OnError) else on_error


def _checked_on_error(value: object, name: str) -> OnError:
    if isinstance(value, OnError):
        return value
    if not isinstance(value, str) or value not in ACTIONS:
        known = ", ".join(map(repr, ACTIONS))
        refuse(f"`{name}` must be one of {known} or a sparkawait.OnError, got {shown(value)}")
    return OnError(value)


ON_ERROR = Option(
    'what happens to a row that failed for good: `"fail"` fails the task, `"null"` leaves its'
    ' returned columns null, `"drop"` drops it, `"capture"` adds a struct column `error` with'
    ' kind, message, attempts and status. `sa.OnError("capture", column="why")` gives the column'
    " another name, which a second call needs. Its `stop_after=1000` fails a task with a thousand"
    " failed rows, and `stop_ratio=0.1` one in which a tenth of the rows has failed",
    _checked_on_error,
    default="fail",
    type="OnErrorLike",
)


# -- the column that tells of the calls of each row, for the option ``info=``


CALL_TYPE = pa.struct(
    [
        ("attempts", pa.int32()),
        ("seconds", pa.float64()),
        ("waited", pa.float64()),
        ("cached", pa.bool_()),
        ("hedged", pa.bool_()),
        ("status", pa.int32()),
        ("cost", pa.float64()),
    ]
)
"""The type of the column, as the extension module makes it."""


INFO = Option(
    'a name, such as `"call"`, of a struct column that tells of the calls of each row, failed ones'
    " included: attempts, seconds, waited, cached, hedged, status and cost",
    optional(lambda value, name: text(value, name, "the name of a column, such as 'call'")),
    type="str | None",
    of_task=True,
    is_rare=True,
)


# -- results that are kept, so that one key is looked up once
#
# A `Cache` is a description. The cache itself lives in each Python worker process of the executors,
# where all tasks that get the same description share it.


@with_known_names
@dataclass(frozen=True)
class Cache:
    """A cache in front of an async function, for the option ``cache=``.

    Rows with equal values in the key columns share one result. Concurrent misses on one key make
    one call; the others wait for what it brings. Failures are never kept. A full cache drops keys
    by recency and frequency of use.

    Every Python worker process has its own cache, one per core of an executor, that lives as long
    as the process. Tasks, queries and micro-batches share it when they are given this very object.
    A process keeps the last 16 caches. A short form, ``cache="10min"`` or ``cache=True``, makes a
    new cache for each call; calls with one `WaitOptions` share that of the set.

    Functions share the results of a cache only if they are the same: native ones if they were made
    with equal arguments, Python ones if Spark sends the same bytes for them. Two closures of one
    factory, two instances of a class with other attributes, and a function before and after it was
    edited are different. A function whose bytes differ for less counts as another one, too: a
    global of the notebook that it uses or an attribute of its instance has changed, or its class
    was defined again. Then it is called again. Without Spark, a Python function is the same if it
    is the same object.

    Keys are equal where Spark's ``GROUP BY`` takes them for equal: ``-0.0`` is ``0.0``, NaN is NaN,
    and null is a key like any other. Maps cannot be keys.

    Args:
        max_rows: Most keys; ``None`` for no bound, and then `max_bytes` must be given.
        max_bytes: Most bytes of keys and results in a process, an int or a text such as
            ``"64 MB"``; ``None`` for no bound.
        expire_after_write: How long a result is used after its call: a str with unit, a timedelta
            or seconds.
        expire_after_access: How long a result is used after it was used last.
        cache_missing: Whether it is kept that a key has no result.
        key: The columns that the result depends on, by name or as expressions, such as
            ``F.lower("city")``. By default those that a native function names; a Python function
            must be told, because it sees all of them.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait as sa
        >>> @sa.async_function("length bigint")
        ... async def measure(row):
        ...     print("called for", row["word"])
        ...     return {"length": len(row["word"])}
        >>> words = [pa.record_batch({"word": ["one", "three", "one"]})]
        >>> cache = sa.Cache(max_rows=1000, expire_after_write="10min", key="word")
        >>> out = sa.arrow.ordered_wait(words, measure, cache=cache).to_table()
        called for one
        called for three
        >>> out["length"].to_pylist()
        [3, 5, 3]
    """

    max_rows: int | None = 100_000
    max_bytes: Size | None = None
    expire_after_write: Duration | None = None
    expire_after_access: Duration | None = None
    cache_missing: bool = True
    key: ColumnsLike | None = field(default=None, compare=False)
    id: str = field(default_factory=lambda: uuid.uuid4().hex, init=False, repr=False)

    def __post_init__(self) -> None:
        """Checks the values."""
        kind = ErrorKind.CACHE_INVALID
        if self.max_rows is None and self.max_bytes is None:
            refuse("`Cache` needs `max_rows` or `max_bytes`, got None for both", kind)
        if self.max_rows is not None:
            integer(self.max_rows, "max_rows", 1, MAX_BYTES, kind=kind)
        if self.max_bytes is not None:
            size = parse_size(self.max_bytes, "max_bytes", most=MAX_BYTES, kind=kind)
            object.__setattr__(self, "max_bytes", size)
        for name in ("expire_after_write", "expire_after_access"):
            value = getattr(self, name)
            if value is not None:
                seconds = positive_duration(value, name, hint="None keeps results")
                object.__setattr__(self, name, seconds)
        flag(self.cache_missing, "cache_missing", kind=kind)
        if self.key is not None:
            key = columns(self.key, "key", ErrorKind.CACHE_INVALID, " of a Cache")
            object.__setattr__(self, "key", key)

    @property
    def columns(self) -> tuple[ColumnLike, ...]:
        """The columns of the key; none if the function has to name them."""
        return cast("tuple[ColumnLike, ...]", self.key or ())

    def with_key(self, key: Sequence[ColumnLike]) -> Cache:
        """Returns this very cache with the columns of its key called otherwise."""
        renamed = copy(self)
        object.__setattr__(renamed, "key", tuple(key))
        return renamed


CACHE = Option(
    "rows with equal keys share one call, and the worker process keeps the results:"
    " `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,"
    ' cache_missing=, key=)`; `"10min"` sets its `expire_after_write`, `True` means'
    " `sa.Cache()`",
    ObjectOf(
        Cache,
        "a sparkawait.Cache, True, or a text such as '10min' for its `expire_after_write`",
        ErrorKind.CACHE_INVALID,
        {bool: or_none(Cache), str: lambda time: Cache(expire_after_write=time)},
    ),
    type="Cache | str | bool | None",
)


# -- when rows leave a task: in which batch, behind a watermark, or in a later micro-batch
#
# Each is a description, made on the driver from any thread, and has its option behind it.


_OF = " of Tuning"


class OutputTerms(NamedTuple):
    """What a `Tuning` says of output batches, as `_core.Task` takes it; times are in seconds."""

    buffer_timeout: float | Literal["auto"] | None
    max_rows_per_batch: int
    max_bytes_per_batch: int
    target_latency: float | None


@with_known_names
@dataclass(frozen=True)
class Tuning:
    """How a task begins and how its output leaves, for the option ``tuning=``.

    The defaults serve nearly all jobs: a batch leaves when Spark waits for it.

    Args:
        buffer_timeout: When a batch that is not full leaves, as Flink's. ``"auto"``: as soon as it
            is waited for, as long as batches take no more than 2 % of the time, and at most 100 ms
            after the one before. A duration (str with unit, timedelta or seconds): when its first
            row is this old. ``None``: not before it is full.
        max_rows: Most rows of an output batch.
        max_bytes: Most bytes of an output batch, unless one row has more: an int, or a text
            (powers of 1024). Four times as much bounds the results that calls bring while others
            wait to be emitted; fewer calls are in flight then.
        target_latency: Sizes batches, and the calls of a batched function, so that a row takes
            about this long through them at the measured throughput, never above their limits.
            ``None`` lets them grow to these.
        warm_up: Whether a task starts with few calls (an eighth, at least 4), so that ``show()``
            and ``limit`` do not pay for rows that you won't see; full speed 100 ms after the first
            rows were taken. Only in the first tasks of a function in a worker: a later ``show(3)``
            may pay for ``max_concurrency`` rows and more.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> Tuning(buffer_timeout="10ms", max_bytes="16 MB").resolve().max_bytes_per_batch
        16777216
    """

    buffer_timeout: Duration | None = "auto"
    max_rows: int = 8192
    max_bytes: Size = "64 MB"
    target_latency: Duration | None = None
    warm_up: bool = True

    def __post_init__(self) -> None:
        """Checks the values."""
        self.resolve()
        flag(self.warm_up, "warm_up", of=_OF)

    def resolve(self) -> OutputTerms:
        """Returns the numbers of output batches.

        Raises:
            ConfigurationError: If one of them is wrong.
        """
        latency = self.target_latency
        return OutputTerms(
            _time_of(self.buffer_timeout),
            integer(self.max_rows, "max_rows", 1, of=_OF),
            # As many as 32-bit offsets reach.
            parse_size(self.max_bytes, "max_bytes", most=MAX_COUNT),
            None if latency is None else positive_duration(latency, "target_latency"),
        )


def _time_of(value: object) -> float | Literal["auto"] | None:
    if value is None:
        return None
    if isinstance(value, str) and value == "auto":
        return "auto"
    try:
        return parse_duration(value, "buffer_timeout")
    except ConfigurationError as error:
        msg = f"{error}; or 'auto', or None for full batches only"
        raise ConfigurationError(msg, error.kind) from None


def _checked_tuning(value: object, name: str) -> Tuning:
    """Returns how a task begins and how its output leaves."""
    if value is None:
        return Tuning()
    if not isinstance(value, Tuning):
        refuse(f"`{name}` must be a sparkawait.Tuning, got {shown(value)}")
    return value


TUNING = Option(
    "how a task begins and how its output leaves, for few jobs: `sa.Tuning(buffer_timeout=,"
    " max_rows=, max_bytes=, target_latency=, warm_up=)`. `max_bytes` limits output batches and the"
    " results that wait; `warm_up=False` starts with all calls at once",
    _checked_tuning,
    type="Tuning | None",
    shown='= `sa.Tuning("auto", 8192, "64 MB", None, True)`',
    of_function=False,
    is_rare=True,
)


# -- how event time advances, told to `unordered_wait` and `key_ordered_wait`


@dataclass(frozen=True)
class WatermarkStrategy:
    """Makes watermarks from a timestamp column; no row crosses a watermark.

    A watermark follows each run of rows that raised the latest event time. A run is an input batch
    (Spark: up to 10,000 rows), or shorter with `every`: rows of one run may overtake one another,
    whatever their times.

    Counterpart of Flink's class of this name. Make one with `for_bounded_out_of_orderness`.

    Attributes:
        column: The timestamp column that holds the event time, or an expression.
        delay: How many seconds a row may be late.
        every: Most rows of a run; ``None`` for those of an input batch.
    """

    column: ColumnLike
    delay: float
    every: int | None = None

    @staticmethod
    def for_bounded_out_of_orderness(
        column: ColumnLike, delay: Duration, *, every: int | None = None
    ) -> WatermarkStrategy:
        """Places the watermark `delay` behind the latest event time seen.

        Args:
            column: A timestamp column of the input, by name or as an expression such as
                ``F.to_timestamp("at")``.
            delay: How late a row may be: str with unit, timedelta or seconds. May be zero.
            every: Most rows between two watermarks; ``None`` for one after each input batch. With
                1, no row crosses a row that raised the latest event time, as after Flink's
                punctuated watermarks.

        Raises:
            ConfigurationError: If `column` is not a column, `delay` is not a duration or `every` is
                not an int of at least 1.
        """
        if not column if isinstance(column, str) else not is_expression(column):
            msg = f"`column` must be the name of a timestamp column, got {shown(column)}"
            raise ConfigurationError(msg, ErrorKind.WATERMARK_INVALID)
        if every is not None:
            kind = ErrorKind.WATERMARK_INVALID
            integer(every, "every", 1, other=" or None", kind=kind)
        return WatermarkStrategy(column, parse_duration(delay, "delay"), every)


WATERMARK = Option(
    "event time: `sa.WatermarkStrategy.for_bounded_out_of_orderness(column, delay)`, of a"
    " column or an expression. A watermark follows each input batch, or with `every=n` each n"
    " rows; no row of the unordered mode crosses one",
    ObjectOf(
        WatermarkStrategy, "made by sparkawait.WatermarkStrategy", ErrorKind.WATERMARK_INVALID
    ),
    type="WatermarkStrategy | None",
    of_task=True,
    of_columns=False,
    is_rare=True,
)


# -- rows of a stream that outlive their micro-batch, and how.
#
# A `CarryOver` is a description: made on the driver, from any thread, and immutable.

Emit = Literal["next_batch", "at_once"]
Vehicle = Literal["apply_in_pandas_with_state", "transform_with_state"]


@with_known_names
@dataclass(frozen=True)
class CarryOver:
    """Lets a micro-batch end while calls are in flight, for the option ``carry_over=``.

    Without it a micro-batch of a stream waits for its slowest call. With it, rows whose calls are
    still in flight when all others are done are kept in the state of the query. Their calls go on
    in the Python worker that made them, and a later micro-batch emits their results: each row
    exactly once, whatever is lost meanwhile. A call is made again if its worker is gone.

    Rows are spread over ``spark.sql.shuffle.partitions`` tasks: set that to the number of cores
    before the first start of the query, whose checkpoint keeps the number. Use a
    ``processingTime`` trigger. ``docs/streaming.md`` says what is promised, and the limits.

    Args:
        emit: When results leave. ``"next_batch"``: a micro-batch emits what the one before it has
            put into the state. A batch that is run again then emits the same rows, so a sink that
            knows a batch by its number gets each row exactly once. ``"at_once"``: a result leaves
            in the batch in which it comes, which is one trigger earlier.
        linger: How long a micro-batch waits for its calls once all of its rows were admitted: a str
            with unit, a timedelta or seconds. ``"auto"``: 50 ms, or about half of the time between
            two micro-batches if the query is idle for longer than a second between them. With
            zero, nearly every row is carried over, and leaves a trigger later.
        order_by: The columns whose rows keep their order, such as Kafka's ``partition``; for
            `sparkawait.ordered_wait`, which needs it.
        name_rows_by: Columns whose values the error of a row that fails the query shows, such as
            Kafka's ``("topic", "partition", "offset")``. Errors have no value of a row otherwise.
        vehicle: The operator of Spark that keeps the rows. ``"apply_in_pandas_with_state"``, the
            default, is there on each Spark, and once in a query. ``"transform_with_state"`` lets a
            query have several, and an ``applyInPandasWithState`` of your own; it needs Spark 4.0,
            over Spark Connect 4.1, the RocksDB state store and protobuf. The checkpoint of a query
            keeps its vehicle.
        name: Names the numbers of this call in the progress of the query, as ``sparkawait_<name>``.
            For calls in branches that come together, as in a join; one that comes behind another
            has the name of its function.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> sa.CarryOver(linger="20ms").linger
        0.02
        >>> out = sa.unordered_wait(stream, lookup, carry_over=sa.CarryOver())  # doctest: +SKIP
    """

    emit: Emit = "next_batch"
    linger: Duration = "auto"
    order_by: str | Sequence[str] | None = None
    name_rows_by: str | Sequence[str] | None = None
    vehicle: Vehicle | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        choice(self.emit, "emit", "next_batch", "at_once")
        if self.linger != "auto":
            object.__setattr__(self, "linger", _lingering(self.linger))
        for option in ("order_by", "name_rows_by"):
            if (value := getattr(self, option)) is not None:
                object.__setattr__(self, option, named(columns(value, option), option))
        if self.vehicle is not None:
            choice(self.vehicle, "vehicle", "apply_in_pandas_with_state", "transform_with_state")
        if self.name is not None:
            text(self.name, "name", "a text")

    @property
    def patience(self) -> float | None:
        """Seconds that a micro-batch waits for its calls; ``None``: what its query can spare."""
        return None if self.linger == "auto" else cast("float", self.linger)


def _lingering(value: object) -> float:
    try:
        return parse_duration(value, "linger")
    except ConfigurationError as error:
        msg = f"{error}; or 'auto'"
        raise ConfigurationError(msg, error.kind) from None


CARRY_OVER = Option(
    "a micro-batch ends while calls are in flight, and a later one emits their results:"
    " `True`, or `sa.CarryOver(emit=, linger=, order_by=, name_rows_by=, vehicle=, name=)`."
    " Streaming DataFrames only",
    ObjectOf(CarryOver, "a sparkawait.CarryOver or True", short={bool: or_none(CarryOver)}),
    type="CarryOver | bool | None",
    of_columns=False,
)
