# SPDX-License-Identifier: Apache-2.0
"""A native function that only takes time."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.checks import flag, integer, number
from sparkawait.native_function import NativeFunction
from sparkawait.testing.latency import Latency, LatencyLike, to_latency

__all__ = ["Simulated", "simulated"]

MAX_SEED = 2**64 - 1


@dataclass(frozen=True)
class Simulated(NativeFunction):
    """A call that waits and returns the row's position in its task. Made by `simulated`.

    Attributes:
        latency: How long a call takes.
        error_rate: Share of the calls that fail.
        seed: Determines latencies and failures, in the order of the calls.
        timestamps: Whether a call also tells when it began.
    """

    latency: Latency
    error_rate: float
    seed: int
    timestamps: bool = False

    def __post_init__(self) -> None:
        """Declares the returned columns."""
        columns = ["ordinal", "began"] if self.timestamps else ["ordinal"]
        schema = pa.schema([pa.field(name, pa.int64()) for name in columns])
        object.__setattr__(self, "result_schema", schema)

    @property
    def idempotent(self) -> bool:
        """It does nothing at all."""
        return True

    def _native(self, *, retry_misses: bool) -> _core.Native:  # noqa: ARG002 - it never misses
        latency = self.latency.to_parts()
        return _core.Native.simulated(
            latency=latency,
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

    Raises:
        ConfigurationError: If `delay` is no duration, or `error_rate` not from 0 to 1.

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
    return Simulated(latency, float(error_rate), seed, timestamps)
