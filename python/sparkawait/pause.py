# SPDX-License-Identifier: Apache-2.0
"""When a destination that drops its calls is left alone, for the option ``pause=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from sparkawait._plan.checks import integer, refuse, shown
from sparkawait.durations import Duration, positive_duration
from sparkawait.exceptions import ErrorKind

__all__ = ["OnPause", "Pause", "PauseTerms"]

OnPause = Literal["wait", "fail"]

_KIND = ErrorKind.RATE_LIMIT_INVALID


class PauseTerms(NamedTuple):
    """What a `Pause` comes to, as `_core.Task` takes it; times are in seconds."""

    after_drops: int
    initial: float
    maximum: float
    refuses: bool


@dataclass(frozen=True)
class Pause:
    """Leaves a destination alone that drops all its calls, and probes it now and then.

    After `after_drops` drops in a row a channel makes no call but one probe, after `initial`, then
    twice as long, up to `maximum`, each a tenth more or less. The first answer opens it again: one
    call at a time, and one more for each answer. What a drop is says `AdaptiveLimit`; any answer,
    be it a failure of its row, ends a row of them. Other channels are not touched. Without
    ``channel=`` the task has one.

    In the place of a circuit breaker, whose open state fails whatever comes: here rows wait by
    default, and their ``timeout`` runs.

    Args:
        after_drops: Drops in a row, at least 1.
        initial: Time until the first probe: str with unit, timedelta or seconds.
        maximum: Longest time between two.
        on_pause: ``"wait"``: rows wait, as long as their ``timeout`` allows. ``"fail"``: they fail
            at once, with kind ``destination-paused``, those that are to be tried again too.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> Pause(maximum="30s").resolve()
        PauseTerms(after_drops=20, initial=1.0, maximum=30.0, refuses=False)
    """

    after_drops: int = 20
    initial: Duration = "1s"
    maximum: Duration = "60s"
    on_pause: OnPause = "wait"

    def __post_init__(self) -> None:
        """Checks the values."""
        self.resolve()

    def resolve(self) -> PauseTerms:
        """Returns the numbers.

        Raises:
            ConfigurationError: If one of them is wrong.
        """
        drops = integer(self.after_drops, "after_drops", 1, of=" of Pause", kind=_KIND)
        on_pause = cast("object", self.on_pause)
        if not isinstance(on_pause, str) or on_pause not in ("wait", "fail"):
            refuse(f"`on_pause` of Pause must be 'wait' or 'fail', got {shown(on_pause)}", _KIND)
        initial = positive_duration(self.initial, "initial")
        maximum = positive_duration(self.maximum, "maximum")
        if maximum < initial:
            refuse(
                "`maximum` of Pause must not be below `initial`,"
                f" got {shown(self.maximum)} and {shown(self.initial)}",
                _KIND,
            )
        return PauseTerms(drops, initial, maximum, on_pause == "fail")
