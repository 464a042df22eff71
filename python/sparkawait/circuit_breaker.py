# SPDX-License-Identifier: Apache-2.0
"""When a destination that fails its calls is left alone, for the option ``circuit_breaker=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from sparkawait._plan.checks import ObjectOf, integer, or_none, refuse, shown
from sparkawait._plan.option import Option
from sparkawait.durations import Duration, positive_duration
from sparkawait.exceptions import ErrorKind

__all__ = ["CIRCUIT_BREAKER", "CircuitBreaker", "PauseTerms", "WhenOpen"]

WhenOpen = Literal["wait", "fail"]

_KIND = ErrorKind.RATE_LIMIT_INVALID


class PauseTerms(NamedTuple):
    """What a `CircuitBreaker` comes to, as `_core.Task` takes it; times are in seconds."""

    after_drops: int
    initial: float
    maximum: float
    refuses: bool


@dataclass(frozen=True)
class CircuitBreaker:
    """Leaves a destination alone that fails all its calls, and probes it now and then.

    A refusal, such as a status of 401 or 404, is an answer and does not open it: the destination is
    there. With a wrong key each row costs a call, unless ``on_error="fail"`` ends the job.

    While it is open rows wait by default, for ``max_wait`` at most; other circuit breakers fail
    whatever comes, which is ``when_open="fail"``.

    After `after_failures` failed calls in a row a channel makes no call but one probe, after
    `initial`, then twice as long, up to `maximum`, each a tenth more or less. The first answer
    closes it again: one call at a time, and one more for each answer. A call has failed if it was
    dropped, as `Adaptive` says; any answer, be it a failure of its row, ends a row of them.
    Other channels are not touched. Without ``channel=`` the task has one.

    Args:
        after_failures: Failed calls in a row, at least 1.
        initial: Time until the first probe: str with unit, timedelta or seconds.
        maximum: Longest time between two.
        when_open: ``"wait"``: rows wait, each for ``max_wait`` at most. ``"fail"``: they fail at
            once, with kind ``destination-paused``, those that are to be tried again too.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> CircuitBreaker(maximum="30s").resolve()
        PauseTerms(after_drops=20, initial=1.0, maximum=30.0, refuses=False)
    """

    after_failures: int = 20
    initial: Duration = "1s"
    maximum: Duration = "60s"
    when_open: WhenOpen = "wait"

    def __post_init__(self) -> None:
        """Checks the values."""
        self.resolve()

    def resolve(self) -> PauseTerms:
        """Returns the numbers.

        Raises:
            ConfigurationError: If one of them is wrong.
        """
        of = " of CircuitBreaker"
        failures = integer(self.after_failures, "after_failures", 1, of=of, kind=_KIND)
        when_open = cast("object", self.when_open)
        if not isinstance(when_open, str) or when_open not in ("wait", "fail"):
            refuse(f"`when_open`{of} must be 'wait' or 'fail', got {shown(when_open)}", _KIND)
        initial = positive_duration(self.initial, "initial")
        maximum = positive_duration(self.maximum, "maximum")
        if maximum < initial:
            refuse(
                f"`maximum`{of} must not be below `initial`,"
                f" got {shown(self.maximum)} and {shown(self.initial)}",
                _KIND,
            )
        return PauseTerms(failures, initial, maximum, when_open == "fail")


CIRCUIT_BREAKER = Option(
    None,
    ObjectOf(
        CircuitBreaker,
        "a sparkawait.CircuitBreaker or True",
        ErrorKind.RATE_LIMIT_INVALID,
        {bool: or_none(CircuitBreaker)},
    ),
    "leaves a destination alone that fails all its calls, and probes it now and then; rows wait"
    " while it is open, for up to `max_wait`: `sa.CircuitBreaker(after_failures=20,"
    ' initial="1s", maximum="60s", when_open="wait")`, which is `True`',
    type="CircuitBreaker | bool | None",
)
