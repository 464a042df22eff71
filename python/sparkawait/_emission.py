# SPDX-License-Identifier: Apache-2.0
"""When rows leave a task: in which batch, behind a watermark, or in a later micro-batch.

Each is a description, made on the driver from any thread, and has its option behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from sparkawait._checks import (
    MAX_COUNT,
    ColumnLike,
    Duration,
    ObjectOf,
    Size,
    choice,
    columns,
    flag,
    integer,
    is_expression,
    named,
    or_none,
    parse_duration,
    parse_size,
    positive_duration,
    refuse,
    shown,
    text,
)
from sparkawait._option import Option, with_known_names
from sparkawait.exceptions import ConfigurationError, ErrorKind

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


def _checked(value: object, name: str) -> Tuning:
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
    _checked,
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
