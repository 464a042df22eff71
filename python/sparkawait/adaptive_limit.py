# SPDX-License-Identifier: Apache-2.0
"""Limits that follow what a destination bears, for ``sparkawait.Channels(limit=..)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from sparkawait._plan.checks import integer
from sparkawait.durations import Duration, positive_duration
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["AdaptiveLimit", "Bounds"]


class Bounds(NamedTuple):
    """What an `AdaptiveLimit` comes to, in the order of `_core.Task`."""

    initial: int
    min: int
    max_latency: float | None


@dataclass(frozen=True)
class AdaptiveLimit:
    """Finds out how many calls in flight each destination bears, up to ``max_per_channel``.

    The limit of a channel grows while its calls end well: it doubles with each round trip until the
    first call is dropped, and grows by one with each round trip after that. A dropped call takes a
    tenth of the limit away, once in a round trip.

    A call counts as dropped if it failed in a way that is worth another attempt (a status of 429 or
    from 500, a lost connection; of a Python function, an exception that ``retry=`` tries again), if
    it took longer than ``attempt_timeout`` or `max_latency`, or if its row timed out while it ran,
    and had not waited for longer than that. Other failures are of their rows and change nothing.

    Args:
        initial: The limit of a channel that is new, or was forgotten. By default `min`.
        min: The smallest limit.
        max_latency: A call that takes longer counts as dropped, though its result is taken. By
            default however long it takes.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> channels = sa.Channels(max_per_channel=50, limit=sa.AdaptiveLimit(max_latency="2s"))
    """

    initial: int | None = None
    min: int = 1
    max_latency: Duration | None = None

    def __post_init__(self) -> None:
        """Checks what can be checked without the other options."""
        _check("min", self.min, 1)
        if self.initial is not None:
            _check("initial", self.initial, self.min)
        if self.max_latency is not None:
            positive_duration(self.max_latency, "max_latency", hint="None sets no bound")

    def resolve(self, max_per_channel: int) -> Bounds:
        """Returns the numbers for channels of at most so many calls.

        Raises:
            ConfigurationError: If a limit would begin above that.
        """
        initial = self.min if self.initial is None else self.initial
        if initial > max_per_channel:
            _refuse(
                "`initial` and `min` of AdaptiveLimit must not be above `max_per_channel`,"
                f" got {initial} and {max_per_channel}"
            )
        latency = self.max_latency
        seconds = None if latency is None else positive_duration(latency, "max_latency")
        return Bounds(initial, self.min, seconds)


def _check(name: str, value: object, least: int) -> None:
    integer(value, name, least, of=" of AdaptiveLimit", kind=ErrorKind.CHANNELS_INVALID)


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message, ErrorKind.CHANNELS_INVALID)
