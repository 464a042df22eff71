# SPDX-License-Identifier: Apache-2.0
"""How event time advances, told to `unordered_wait` and `key_ordered_wait`."""

from __future__ import annotations

from dataclasses import dataclass

from sparkawait._plan.checks import MAX_COUNT, ObjectOf, shown
from sparkawait._plan.option import Option
from sparkawait.columns import ColumnLike, is_expression
from sparkawait.durations import Duration, parse_duration
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["WATERMARK", "WatermarkStrategy"]


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
            ConfigurationError: If `column` is no column, `delay` is no duration or `every` is no
                int of at least 1.
        """
        if not column if isinstance(column, str) else not is_expression(column):
            msg = f"`column` must be the name of a timestamp column, got {shown(column)}"
            raise ConfigurationError(msg, ErrorKind.WATERMARK_INVALID)
        if every is not None:
            _check_every(every)
        return WatermarkStrategy(column, parse_duration(delay, "delay"), every)


def _check_every(every: object) -> None:
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        msg = f"`every` must be an int of at least 1 or None, got {shown(every)}"
        raise ConfigurationError(msg, ErrorKind.WATERMARK_INVALID)
    if every > MAX_COUNT:
        msg = f"`every` must be at most {MAX_COUNT}, got {shown(every)}"
        raise ConfigurationError(msg, ErrorKind.WATERMARK_INVALID)


WATERMARK = Option(
    None,
    ObjectOf(
        WatermarkStrategy, "made by sparkawait.WatermarkStrategy", ErrorKind.WATERMARK_INVALID
    ),
    "where event time comes from: `sa.WatermarkStrategy.for_bounded_out_of_orderness(column,"
    " delay)`, a column or an expression. A watermark follows each input batch, or with"
    " `every=n` so many rows; no row of the unordered mode crosses one",
    type="WatermarkStrategy | None",
    of_task=True,
    of_columns=False,
    is_rare=True,
)
