# SPDX-License-Identifier: Apache-2.0
"""What protects a service, and a job from it: fewer calls, none for a while, or a second one.

Each is a description, made on the driver from any thread, and has its option behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from sparkawait._checks import (
    Duration,
    ObjectOf,
    choice,
    integer,
    or_none,
    positive_duration,
    refuse,
    shown,
)
from sparkawait._option import Option, with_known_names
from sparkawait.exceptions import ConfigurationError, ErrorKind


class AdaptiveTerms(NamedTuple):
    """What an `Adaptive` comes to, as `_core.Task` takes it; the latency is in seconds."""

    initial: int
    min: int
    max: int
    max_latency: float | None


@with_known_names
@dataclass(frozen=True)
class Adaptive:
    """Finds out how many calls in flight a destination bears, for ``max_concurrency=``.

    The number grows while calls end well: it doubles with each round trip until the first call is
    dropped, and grows by one with each round trip after that. A dropped call takes a tenth of it
    away, once in a round trip.

    A call counts as dropped if it failed in a way that is worth another attempt: a status of 429 or
    from 500, a lost connection, an exception that ``retry=`` retries. It also does if it took
    longer than ``attempt_timeout`` or `max_latency`, or if its row timed out while it ran and had
    not waited for longer than that. Other failures change nothing.

    Without ``channel=`` the task has one such number. With it each channel has its own, which also
    stays within ``max_per_channel`` of its `Channel`. Of a batched function the rows in its calls
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
    kind = ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE
    return integer(value, name, 1, other=" or a sparkawait.Adaptive", kind=kind)


MAX_CONCURRENCY = Option(
    "calls in flight per task. `sa.Adaptive(1, 500)` finds out what the destination bears",
    _checked,
    type="int | Adaptive | None",
    shown="100; no more than `capacity`",
)


# -- when a destination that fails its calls is left alone, for the option ``circuit_breaker=``

WhenOpen = Literal["wait", "fail"]


class PauseTerms(NamedTuple):
    """What a `CircuitBreaker` comes to, as `_core.Task` takes it; times are in seconds."""

    after_drops: int
    initial: float
    maximum: float
    refuses: bool


@with_known_names
@dataclass(frozen=True)
class CircuitBreaker:
    """Leaves a destination alone that fails all its calls, and probes it now and then.

    A refusal, such as a status of 401 or 404, is an answer and does not open it: the destination is
    there. With a wrong key each row costs a call, unless ``on_error="fail"`` ends the job.

    While it is open, rows wait for up to ``max_wait``, or fail at once with ``when_open="fail"``.

    Where they wait, an outage takes one try of a row, however many of its calls are dropped, as
    long as the channel has no answer between them. A row that would end opens it, too, and waits
    for a probe.

    It opens after `after_failures` failed calls in a row. Then the channel makes one probe after
    `initial`, and the next ones after twice that time each, up to `maximum` (give or take a tenth).
    The first answer closes it; calls then grow from one at a time. A call has failed if it was
    dropped, as `Adaptive` says. Any answer, also a failure of its row, starts the count again.
    Other channels are not touched. Without ``channel=`` the task has one.

    Args:
        after_failures: Failed calls in a row, at least 1.
        initial: Time until the first probe: str with unit, timedelta or seconds.
        maximum: Longest time between two.
        when_open: ``"wait"``: rows wait, each for ``max_wait`` at most. ``"fail"``: they fail at
            once, with kind ``destination-paused``, also those that wait for a retry.

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
        failures = integer(self.after_failures, "after_failures", 1, of=of)
        when_open = choice(self.when_open, "when_open", "wait", "fail", of=of)
        initial = positive_duration(self.initial, "initial")
        maximum = positive_duration(self.maximum, "maximum")
        if maximum < initial:
            refuse(
                f"`maximum`{of} must not be below `initial`,"
                f" got {shown(self.maximum)} and {shown(self.initial)}"
            )
        return PauseTerms(failures, initial, maximum, when_open == "fail")


CIRCUIT_BREAKER = Option(
    "leaves a destination alone that fails all its calls, and probes it now and then; rows"
    " wait for up to `max_wait`. `True` means `sa.CircuitBreaker(after_failures=20,"
    ' initial="1s", maximum="60s", when_open="wait")`',
    ObjectOf(
        CircuitBreaker,
        "a sparkawait.CircuitBreaker or True",
        short={bool: or_none(CircuitBreaker)},
    ),
    type="CircuitBreaker | bool | None",
)


# -- a second call beside one that is slow, for the option ``hedge=``

_PERCENTILE = re.compile(r"p(\d{2}(?:\.\d+)?)")
_RULE = "a percentile from p50 to below p100 such as 'p95', or a duration such as '200ms'"


class HedgeBounds(NamedTuple):
    """What a `Hedge` comes to, as `_core.Task` takes it.

    Attributes:
        seconds: When the second call starts, if it is said as a time.
        share: The share of the calls that are faster, otherwise.
        max_extra: Second calls for each first one.
    """

    seconds: float | None
    share: float
    max_extra: float


@with_known_names
@dataclass(frozen=True)
class Hedge:
    """Makes a second call for a row whose call is slow; the first answer wins.

    The other call is cancelled. A second call takes a credit of its channel, ahead of rows that
    wait, and pays each limit. Rows with two calls never hold all credits of the task or of a
    channel, so there are none with fewer than three calls at a time. A channel whose `Adaptive`
    shrinks gets none. Of two calls the one that fails in a way that is worth a retry leaves its row
    to the other. They are one attempt to ``retry=``; ``attempt_timeout`` is for each.

    Only for functions where a second call does no harm.

    Args:
        after: How slow: a percentile of the task's calls, such as ``"p95"``, which follows what
            they take, in steps of an eighth; or a time, as str with unit, timedelta or seconds. Of
            fewer than 20 calls there is no percentile.
        max_extra: Second calls for each first one at most, above 0 and up to 1. Up to ten are saved
            up.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> Hedge(after="200ms", max_extra=0.02).resolve()
        HedgeBounds(seconds=0.2, share=0.0, max_extra=0.02)
    """

    after: Duration = "p95"
    max_extra: float = 0.05

    def __post_init__(self) -> None:
        """Checks the values."""
        self.resolve()

    def resolve(self) -> HedgeBounds:
        """Returns the numbers.

        Raises:
            ConfigurationError: If one of them is wrong.
        """
        extra = cast("object", self.max_extra)
        if not isinstance(extra, int | float) or isinstance(extra, bool) or not 0 < extra <= 1:
            refuse(f"`max_extra` of Hedge must be a number above 0 and up to 1, got {shown(extra)}")
        after = self.after
        if isinstance(after, str) and after.startswith("p"):
            found = _PERCENTILE.fullmatch(after)
            share = float(found[1]) / 100 if found else 0.0
            if not 0.5 <= share < 1:  # noqa: PLR2004 - as the message says
                refuse(f"`after` of Hedge must be {_RULE}, got {shown(after)}")
            return HedgeBounds(None, share, float(extra))
        try:
            return HedgeBounds(positive_duration(after, "after"), 0.0, float(extra))
        except ConfigurationError as error:
            refuse(f"{error}; `after` of Hedge is {_RULE}")


HEDGE = Option(
    "a second call for a row whose call is slow; the first answer wins. `True` means"
    ' `sa.Hedge(after="p95", max_extra=0.05)`; `"p95"` or `"300ms"` sets its `after`. Only for'
    " idempotent functions: lookups, GET, and Python functions declared so",
    ObjectOf(
        Hedge,
        "a sparkawait.Hedge, True, or a text such as 'p95' or '300ms' for its `after`",
        short={bool: or_none(Hedge), str: lambda after: Hedge(after=after)},
    ),
    type="Hedge | str | bool | None",
    of_task=True,
)
