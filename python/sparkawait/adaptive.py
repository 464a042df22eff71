# SPDX-License-Identifier: Apache-2.0
"""A number of calls that follows what a destination bears, for the option ``max_concurrency=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sparkawait._plan.checks import integer, refuse, shown
from sparkawait._plan.option import Option, count
from sparkawait.durations import Duration, positive_duration
from sparkawait.exceptions import ErrorKind

__all__ = ["MAX_CONCURRENCY", "Adaptive", "AdaptiveTerms"]


class AdaptiveTerms(NamedTuple):
    """What an `Adaptive` comes to, as `_core.Task` takes it; the latency is in seconds."""

    initial: int
    min: int
    max: int
    max_latency: float | None


@dataclass(frozen=True)
class Adaptive:
    """Finds out how many calls in flight a destination bears, for ``max_concurrency=``.

    The number grows while calls end well: it doubles with each round trip until the first call is
    dropped, and grows by one with each round trip after that. A dropped call takes a tenth of it
    away, once in a round trip.

    A call counts as dropped if it failed in a way that is worth another attempt (a status of 429 or
    from 500, a lost connection; of a Python function, an exception that ``retry=`` tries again), if
    it took longer than ``attempt_timeout`` or `max_latency`, or if its row timed out while it ran,
    and had not waited for longer than that. Other failures are of their rows and change nothing.

    Without ``channel=`` the task has one such number. With it each channel has its own, which also
    stays within ``max_per_channel`` of its `Channels`. Of a batched function the rows in its calls
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


def _checked(value: object, name: str) -> int | Adaptive | None:
    """Returns a number of calls, or what finds it."""
    if value is None or isinstance(value, Adaptive):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"`{name}` must be an int or a sparkawait.Adaptive, got {shown(value)}"
        refuse(msg, ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE)
    return count(ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE)(value, name)


MAX_CONCURRENCY = Option(
    None,
    _checked,
    "calls in flight per task: the only number that makes more of them. `sa.Adaptive(1, 500)`"
    " lets them follow what the destination bears",
    type="int | Adaptive | None",
    shown="100; no more than `capacity`",
)
