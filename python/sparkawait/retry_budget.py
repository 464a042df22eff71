# SPDX-License-Identifier: Apache-2.0
"""How many retries calls earn, for the option ``retry_budget=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

from sparkawait._plan.checks import integer, refuse, shown
from sparkawait.exceptions import ErrorKind

__all__ = ["BudgetTerms", "RetryBudget"]

_KIND = ErrorKind.RATE_LIMIT_INVALID
_MOST = 1000


class BudgetTerms(NamedTuple):
    """What a `RetryBudget` comes to, as `_core.Task` takes it."""

    ratio: float
    min_per_second: int


@dataclass(frozen=True)
class RetryBudget:
    """Makes the retries of each channel a share of its calls, so that an outage gets no storm.

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
        min_per_second: Retries a second that need no call to earn them, an int from 0. With 0,
            rows that wait for a retry when the input has ended time out.

    Raises:
        ConfigurationError: If a value is wrong, or both are 0.

    Examples:
        >>> RetryBudget(ratio=0.1).resolve()
        BudgetTerms(ratio=0.1, min_per_second=1)
    """

    ratio: float = 0.2
    min_per_second: int = 1

    def __post_init__(self) -> None:
        """Checks the values."""
        self.resolve()

    def resolve(self) -> BudgetTerms:
        """Returns the numbers.

        Raises:
            ConfigurationError: If one of them is wrong.
        """
        ratio = cast("object", self.ratio)
        is_number = isinstance(ratio, int | float) and not isinstance(ratio, bool)
        if not is_number or not 0 <= self.ratio <= _MOST:
            msg = f"`ratio` of RetryBudget must be a number from 0 to {_MOST}, got {shown(ratio)}"
            refuse(msg, _KIND)
        least = integer(self.min_per_second, "min_per_second", 0, of=" of RetryBudget", kind=_KIND)
        if self.ratio == 0 and least == 0:
            msg = "RetryBudget has neither `ratio` nor `min_per_second`: no row is tried again"
            refuse(msg, _KIND)
        return BudgetTerms(float(self.ratio), least)
