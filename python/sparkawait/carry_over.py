# SPDX-License-Identifier: Apache-2.0
"""Rows of a stream that outlive their micro-batch, and how.

A `CarryOver` is a description: made on the driver, from any thread, and immutable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from sparkawait._plan.checks import ObjectOf, choice, or_none, refuse, shown
from sparkawait._plan.option import Option
from sparkawait.durations import Duration, parse_duration
from sparkawait.exceptions import ErrorKind

__all__ = ["CARRY_OVER", "CarryOver", "Emit", "Vehicle"]

Emit = Literal["next_batch", "at_once"]
Vehicle = Literal["apply_in_pandas_with_state", "transform_with_state"]


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
            put into the state, so that a batch that is run again emits the same rows, and every
            sink that knows a batch by its number gets each row exactly once. ``"at_once"``: a
            result leaves in the batch in which it comes, which is one trigger earlier.
        linger: How long a micro-batch waits for its calls once all of its rows were admitted: a str
            with unit, a timedelta or seconds. Zero is allowed.
        order_by: The columns whose rows keep their order, such as Kafka's ``partition``; for
            `sparkawait.ordered_wait`, which needs it.
        drain: Whether each micro-batch waits for all calls, as without `CarryOver`: what is in the
            state leaves it. To be set in the last run of a query that is given up or changed.
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
    linger: Duration = "50ms"
    order_by: str | Sequence[str] | None = None
    drain: bool = False
    vehicle: Vehicle | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        choice(self.emit, "emit", "next_batch", "at_once")
        object.__setattr__(self, "linger", parse_duration(self.linger, "linger"))
        object.__setattr__(self, "order_by", _columns(self.order_by))
        if not isinstance(cast("object", self.drain), bool):
            refuse(f"`drain` must be a bool, got {shown(self.drain)}", ErrorKind.OPTION_INVALID)
        if self.vehicle is not None:
            choice(self.vehicle, "vehicle", "apply_in_pandas_with_state", "transform_with_state")
        if self.name is not None and (
            not isinstance(cast("object", self.name), str) or not self.name
        ):
            refuse(f"`name` must be a text, got {shown(self.name)}", ErrorKind.OPTION_INVALID)

    @property
    def patience(self) -> float | None:
        """Seconds that a micro-batch waits for its calls; ``None``: until all are done."""
        return None if self.drain else cast("float", self.linger)


def _columns(order_by: object) -> tuple[str, ...] | None:
    if order_by is None:
        return None
    names = cast("Sequence[object]", [order_by] if isinstance(order_by, str) else order_by)
    if (
        not isinstance(names, (list, tuple))
        or not names
        or not all(isinstance(name, str) for name in names)
    ):
        msg = f"`order_by` must be a column name or a list of them, got {shown(order_by)}"
        refuse(msg, ErrorKind.OPTION_INVALID)
    return tuple(cast("Sequence[str]", names))


CARRY_OVER = Option(
    None,
    ObjectOf(CarryOver, "a sparkawait.CarryOver or True", short={bool: or_none(CarryOver)}),
    "a micro-batch of a stream ends while calls are in flight, and a later one emits their"
    " results: `True`, or `sa.CarryOver(emit=, linger=, order_by=, drain=, vehicle=, name=)`."
    " Streaming DataFrames only",
    type="CarryOver | bool | None",
    of_columns=False,
)
