# SPDX-License-Identifier: Apache-2.0
"""How event time advances, told to `unordered_wait` and `key_ordered_wait`."""

from __future__ import annotations

from dataclasses import dataclass

from sparkawait.durations import Duration, parse_duration
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["WatermarkStrategy"]


@dataclass(frozen=True)
class WatermarkStrategy:
    """Makes watermarks from a timestamp column; no row crosses a watermark.

    A watermark follows each input batch that raised the latest event time (Spark: up to 10,000
    rows): rows of one batch may overtake one another, whatever their times.

    Counterpart of Flink's class of this name. Make one with `for_bounded_out_of_orderness`.

    Attributes:
        column: The timestamp column that holds the event time.
        delay: How many seconds a row may be late.
    """

    column: str
    delay: float

    @staticmethod
    def for_bounded_out_of_orderness(column: str, delay: Duration) -> WatermarkStrategy:
        """Places the watermark `delay` behind the latest event time seen.

        Args:
            column: A timestamp column of the input.
            delay: How late a row may be: str with unit, timedelta or seconds. May be zero.

        Raises:
            ConfigurationError: If `column` is no string or `delay` is no duration.
        """
        if not isinstance(column, str) or not column:  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"`column` must be the name of a timestamp column, got {column!r}"
            raise ConfigurationError(msg, ErrorKind.WATERMARK_INVALID)
        return WatermarkStrategy(column, parse_duration(delay, "delay"))
