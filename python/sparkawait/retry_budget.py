# SPDX-License-Identifier: Apache-2.0
"""How many retries calls earn, for ``budget=`` of the strategies of `sparkawait.retry`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sparkawait._plan.checks import integer, refuse, shown
from sparkawait.exceptions import ErrorKind

__all__ = ["RetryBudget", "checked_budget"]

_KIND = ErrorKind.RETRY_INVALID
_MOST = 1000


@dataclass(frozen=True)
class RetryBudget:
    """Makes the retries of each channel a share of its calls, so that an outage gets no storm.

    All strategies have one, with these defaults, unless they are made with ``budget=None``.

    Each first attempt earns a part of a retry, for ten seconds; besides, some come by time. A retry
    for which there is none waits in its back-off, bounded by the row's ``timeout``. A destination
    that fails everything so sees ``1 + ratio`` times the calls of one that does not, whatever
    ``retry=`` allows a row. A retry that is answered gives back what it cost: once the destination
    is well, rows that have waited come as fast as it answers.

    What costs a retry are failures of the destination: it is overloaded, cannot be reached or does
    not answer within ``attempt_timeout``; of a Python function, an exception that ``retry=`` tries
    again. A row that was told when to come again (``Retry-After``, `RetryAfter`), and one that is
    tried again for what it returned (``if_result``, ``if_miss``), costs none.

    Without ``channel=`` the task has one budget. It is of a task: tasks that run at once have one
    each.

    Args:
        ratio: Retries that a first attempt earns, from 0 to 1000.
        min_per_second: Retries a second that need no call to earn them, an int from 0. 10 as in
            Finagle's ``RetryBudget``, so that a task of few rows does not wait for them. With 0,
            rows that wait for a retry when the input has ended time out.

    Raises:
        ConfigurationError: If a value is wrong, or both are 0.

    Examples:
        >>> import sparkawait as sa
        >>> retry = sa.retry.exponential_backoff(5, budget=sa.RetryBudget(0.1, min_per_second=1))
    """

    ratio: float = 0.2
    min_per_second: int = 10

    def __post_init__(self) -> None:
        """Checks the values."""
        ratio = cast("object", self.ratio)
        is_number = isinstance(ratio, int | float) and not isinstance(ratio, bool)
        if not is_number or not 0 <= self.ratio <= _MOST:
            msg = f"`ratio` of RetryBudget must be a number from 0 to {_MOST}, got {shown(ratio)}"
            refuse(msg, _KIND)
        least = integer(self.min_per_second, "min_per_second", 0, of=" of RetryBudget", kind=_KIND)
        if self.ratio == 0 and least == 0:
            msg = "RetryBudget has neither `ratio` nor `min_per_second`: no row is tried again"
            refuse(msg, _KIND)


def checked_budget(value: object) -> RetryBudget | None:
    """Returns a budget, of which a number is the ``ratio``.

    Raises:
        ConfigurationError: If it is something else.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return RetryBudget(value)
    if value is not None and not isinstance(value, RetryBudget):
        rule = "`budget` must be a sparkawait.RetryBudget, a number for its `ratio`, or None"
        refuse(f"{rule}, got {shown(value)}", _KIND)
    return value
