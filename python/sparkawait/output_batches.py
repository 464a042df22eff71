# SPDX-License-Identifier: Apache-2.0
"""When output batches leave, and how large they are, for the option ``output_batches=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from sparkawait._plan.checks import MAX_COUNT, integer, refuse, shown
from sparkawait._plan.option import Option
from sparkawait.durations import Duration, parse_duration, positive_duration
from sparkawait.exceptions import ConfigurationError
from sparkawait.sizes import Size, parse_size

__all__ = ["OUTPUT_BATCHES", "OutputBatches", "OutputTerms"]

_OF = " of OutputBatches"


class OutputTerms(NamedTuple):
    """What `OutputBatches` come to, as `_core.Task` takes it; times are in seconds."""

    buffer_timeout: float | Literal["auto"] | None
    max_rows_per_batch: int
    max_bytes_per_batch: int
    target_latency: float | None


@dataclass(frozen=True)
class OutputBatches:
    """Says when an output batch leaves that is not full, and when one is full.

    The defaults serve nearly all jobs: a batch leaves when Spark waits for it.

    Args:
        buffer_timeout: When a batch that is not full leaves, as Flink's. ``"auto"``: as soon as it
            is waited for, as long as batches take no more than 2 % of the time, and at most 100 ms
            after the one before. A duration (str with unit, timedelta or seconds): when its first
            row is this old. ``None``: not before it is full.
        max_rows: Most rows of a batch.
        max_bytes: Most bytes of a batch, unless one row has more: an int, or a text (powers of
            1024). Four times as much bounds the results that calls bring while others wait to be
            emitted; fewer calls are in flight then.
        target_latency: Sizes batches, and the calls of a batched function, so that a row takes
            about this long through them at the measured throughput, never above their limits.
            ``None`` lets them grow to these.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> OutputBatches(buffer_timeout="10ms", max_bytes="16 MB").resolve().max_bytes_per_batch
        16777216
    """

    buffer_timeout: Duration | None = "auto"
    max_rows: int = 8192
    max_bytes: Size = "64 MB"
    target_latency: Duration | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        self.resolve()

    def resolve(self) -> OutputTerms:
        """Returns the numbers.

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


def _checked(value: object, name: str) -> OutputBatches:
    """Returns how output is cut into batches."""
    if value is None:
        return OutputBatches()
    if not isinstance(value, OutputBatches):
        refuse(f"`{name}` must be a sparkawait.OutputBatches, got {shown(value)}")
    return value


OUTPUT_BATCHES = Option(
    None,
    _checked,
    "when output batches leave, and how large they are: `sa.OutputBatches(buffer_timeout=,"
    " max_rows=, max_bytes=, target_latency=)`. `max_bytes` also bounds the results that wait",
    type="OutputBatches | None",
    shown='= `sa.OutputBatches("auto", 8192, "64 MB", None)`',
    of_function=False,
    is_rare=True,
)
