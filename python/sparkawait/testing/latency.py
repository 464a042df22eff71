# SPDX-License-Identifier: Apache-2.0
"""How long a pretended service takes to answer: distributions for `LookupServer` and `simulated`.

Values only, for any thread. Ranges are checked where values are drawn from a distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from sparkawait import _core
from sparkawait._checks import Duration, flag, integer, number, parse_duration, text
from sparkawait.functions import NativeFunction


@dataclass(frozen=True)
class Latency:
    """A distribution of delays; made by `constant`, `uniform` or `log_normal`.

    The extension module reads its attributes.

    Attributes:
        kind: Which distribution it is.
        first: In seconds, the delay, the shortest one, or the median.
        second: The longest delay in seconds, or `sigma`.
        stragglers: Share of the delays that are multiplied, 0 to 1.
        straggler_factor: What those are multiplied by, at least 1.

    Raises:
        ConfigurationError: If a number is out of range.
    """

    kind: Literal["constant", "uniform", "log_normal"]
    first: float
    second: float = 0.0
    stragglers: float = 0.0
    straggler_factor: float = 10.0

    def __post_init__(self) -> None:
        """Asks the extension module whether there is a distribution like this."""
        number(self.stragglers, "stragglers", 0, 1)
        number(self.straggler_factor, "straggler_factor", 1)
        nothing = pa.schema([])
        made = _core.Native.simulated(latency=self, error_rate=0.0, seed=0, timestamps=False)
        made.check(nothing, nothing)


LatencyLike = Latency | Duration | None
"""A distribution, a duration that is always the same, or `None` for no delay."""


def constant(
    delay: Duration, *, stragglers: float = 0.0, straggler_factor: float = 10.0
) -> Latency:
    """Returns a latency that is always the same.

    Args:
        delay: How long an answer takes.
        stragglers: Share of the answers that take `straggler_factor` times as long.
        straggler_factor: At least 1.

    Raises:
        ConfigurationError: If `delay` is not a duration.
    """
    return Latency("constant", parse_duration(delay, "delay"), 0.0, stragglers, straggler_factor)


def uniform(
    minimum: Duration,
    maximum: Duration,
    *,
    stragglers: float = 0.0,
    straggler_factor: float = 10.0,
) -> Latency:
    """Returns a latency where every delay between two bounds is equally likely.

    Args:
        minimum: The shortest delay.
        maximum: The longest delay, stragglers aside.
        stragglers: Share of the answers that take `straggler_factor` times as long.
        straggler_factor: At least 1.

    Raises:
        ConfigurationError: If a bound is not a duration.
    """
    least, most = parse_duration(minimum, "minimum"), parse_duration(maximum, "maximum")
    return Latency("uniform", least, most, stragglers, straggler_factor)


def log_normal(
    median: Duration,
    sigma: float = 0.5,
    *,
    stragglers: float = 0.0,
    straggler_factor: float = 10.0,
) -> Latency:
    """Returns a latency whose logarithm is normally distributed, as it roughly is on a network.

    Args:
        median: Half of the delays are below this.
        sigma: Standard deviation of the logarithm. With 0.5 the 99th percentile is 3.2 times the
            median, with 1.0 it is 10 times the median.
        stragglers: Share of the answers that take `straggler_factor` times as long.
        straggler_factor: At least 1.

    Raises:
        ConfigurationError: If `median` is not a duration, or `sigma` is below 0.

    Examples:
        >>> log_normal("5ms", stragglers=0.01, straggler_factor=20)
        Latency(kind='log_normal', first=0.005, second=0.5, stragglers=0.01, straggler_factor=20)
    """
    middle, spread = parse_duration(median, "median"), number(sigma, "sigma", 0)
    return Latency("log_normal", middle, spread, stragglers, straggler_factor)


def to_latency(value: LatencyLike, name: str) -> Latency:
    """Returns the distribution that `value` stands for.

    Args:
        value: A distribution, a duration, or `None` for no delay.
        name: The argument it was given for, used in messages.

    Raises:
        ConfigurationError: If `value` has another type.
    """
    if isinstance(value, Latency):
        return value
    return Latency("constant", 0.0 if value is None else parse_duration(value, name))


# -- a native function that only takes time

MAX_SEED = 2**64 - 1


@dataclass(frozen=True)
class Simulated(NativeFunction):
    """A call that waits and returns the row's position in its task. Made by `simulated`.

    Attributes:
        latency: How long a call takes.
        error_rate: Share of the calls that fail.
        seed: Determines latencies and failures, in the order of the calls.
        timestamps: Whether a call also tells when it began.
        column: Names the column of the position.
    """

    latency: Latency
    error_rate: float
    seed: int
    timestamps: bool = False
    column: str = "ordinal"

    def __post_init__(self) -> None:
        """Declares the returned columns."""
        columns = [self.column, "began"] if self.timestamps else [self.column]
        schema = pa.schema([pa.field(name, pa.int64()) for name in columns])
        object.__setattr__(self, "result_schema", schema)

    @property
    def idempotent(self) -> bool:
        """It does nothing at all."""
        return True

    def _native(self, *, retry_misses: bool) -> _core.Native:  # noqa: ARG002 - it never misses
        return _core.Native.simulated(
            latency=self.latency,
            error_rate=self.error_rate,
            seed=self.seed,
            timestamps=self.timestamps,
        )


def simulated(
    delay: LatencyLike = 0,
    *,
    error_rate: float = 0.0,
    seed: int = 0,
    timestamps: bool = False,
    column: str = "ordinal",
) -> Simulated:
    """Returns a native function whose calls take `delay` and touch neither network nor Python.

    Its result is one column ``ordinal bigint``, the row's position in its task, from 0. It shows
    what the operator itself costs, and what a latency does to throughput.

    Args:
        delay: A duration, a distribution of `sparkawait.testing`, or 0 for a call that ends at
            once. Delays are kept to the millisecond, and right on average.
        error_rate: Share of the calls that fail, from 0 to 1. A failure may be retried.
        seed: Determines latencies and failures, in the order of the calls.
        timestamps: Adds a column ``began bigint``: when the row's call began, in nanoseconds of
            the machine's monotonic clock, which is that of `time.monotonic_ns` and of Java's
            ``System.nanoTime`` on Linux. The difference to where a row is looked at is its
            latency, the operator's and the engine's share included.
        column: Names the column of the position, for a second function in a chain.

    Raises:
        ConfigurationError: If `delay` is not a duration, or `error_rate` not from 0 to 1.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait.arrow
        >>> batches = [pa.record_batch({"x": ["a", "b"]})]
        >>> out = sparkawait.arrow.ordered_wait(batches, simulated("1ms"))
        >>> out.to_table().to_pydict()
        {'x': ['a', 'b'], 'ordinal': [0, 1]}
    """
    latency = to_latency(delay, "delay")
    number(error_rate, "error_rate", 0, 1)
    integer(seed, "seed", 0, MAX_SEED)
    flag(timestamps, "timestamps")
    text(column, "column", "a name that is not empty")
    return Simulated(latency, float(error_rate), seed, timestamps, column)
