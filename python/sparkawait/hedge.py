# SPDX-License-Identifier: Apache-2.0
"""A second call beside one that is slow, for the option ``hedge=``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, cast

from sparkawait._plan.checks import ObjectOf, or_none, refuse, shown
from sparkawait._plan.option import Option
from sparkawait.durations import Duration, positive_duration
from sparkawait.exceptions import ConfigurationError

__all__ = ["HEDGE", "Hedge", "HedgeBounds"]

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


@dataclass(frozen=True)
class Hedge:
    """Makes a second call for a row whose call is slow; the first answer wins.

    The other call is cancelled. A second call takes a credit like any other, of its channel and
    ahead of rows that wait, and pays each limit; but rows with two calls never hold all credits of
    the task or of a channel, so that fewer than three calls at a time leave none. A channel whose
    `Adaptive` shrinks gets none. Of two calls the one that fails in a way that is worth a
    retry leaves its row to the other. They are one attempt to ``retry=``; ``attempt_timeout`` is
    for each.

    For functions of which a call made twice does no harm only.

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
    None,
    ObjectOf(
        Hedge,
        "a sparkawait.Hedge, True, or a text such as 'p95' or '300ms' for its `after`",
        short={bool: or_none(Hedge), str: lambda after: Hedge(after=after)},
    ),
    "a second call for a row whose call is slow, and the first answer wins:"
    ' `sa.Hedge(after="p95", max_extra=0.05)`, which is `True`; `"p95"` or `"300ms"` is its'
    " `after`. For functions that are idempotent: lookups, GET, and Python functions declared"
    " so",
    type="Hedge | str | bool | None",
    of_task=True,
)
