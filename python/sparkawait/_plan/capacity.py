# SPDX-License-Identifier: Apache-2.0
"""How many calls a task makes at a time, and how many rows it holds for them. Pure functions."""

from __future__ import annotations

from sparkawait._plan.checks import MAX_COUNT, refuse, warn_once
from sparkawait._plan.facts import Facts
from sparkawait._policies import Adaptive
from sparkawait._quantities import Bytes
from sparkawait.exceptions import ErrorKind
from sparkawait.wait_options import WaitOptions

__all__ = ["asked_calls", "bounds", "rows_per_call"]


_CALLS = 100
"""Calls in flight if nothing is said: what Flink has by default, whose `capacity` is both."""
_HELD_PER_CALL = 8
"""Rows that ordered mode holds for each call in flight: one call may take eight times as long as
the others before it keeps further ones from being made."""


def bounds(mode: str, options: WaitOptions, facts: Facts) -> tuple[int, int, int | None]:
    """Returns the calls in flight, the rows that are held, and the bytes that completed ones have.

    With these, completed rows are not among the rows that are held.

    Raises:
        ConfigurationError: If there are more calls than rows.
    """
    concurrency, capacity, capacity_bytes = asked_calls(options), options.capacity, None
    if isinstance(capacity, Bytes):
        # Rows that wait are as many as where those that are completed leave at once.
        mode, capacity, capacity_bytes = "unordered", None, int(capacity)
    if concurrency is None:
        # Never more: who wants to hold more rows does not ask for more calls of a service.
        usual = facts.threads or _CALLS
        concurrency = usual if capacity is None else min(usual, capacity)
        if capacity is not None and capacity > concurrency and _is_called_by_row(facts):
            warn_once(
                "`capacity` is %d, the rows that a task holds, and it makes %d calls at a time; for"
                " as many calls as rows, as Flink makes them, write max_concurrency=%d; if these"
                " are enough, write max_concurrency=%d",
                capacity,
                concurrency,
                capacity,
                concurrency,
            )
    if capacity is None:
        capacity = min(rows_per_call(mode, facts) * concurrency, MAX_COUNT)
    if concurrency > capacity:
        refuse(
            f"`max_concurrency` must not be above `capacity`, got {concurrency} and {capacity};"
            " a call in flight takes a slot",
            ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE,
        )
    return concurrency, capacity, capacity_bytes


def _is_called_by_row(facts: Facts) -> bool:
    """Whether each call takes one row, and a thread of its own if the function needs one."""
    return facts.batch is None and facts.threads is None


def asked_calls(options: WaitOptions) -> int | None:
    """Returns the calls in flight that were asked for at most, if any were."""
    asked = options.max_concurrency
    return asked.max if isinstance(asked, Adaptive) else asked


def rows_per_call(mode: str, facts: Facts) -> int:
    """Returns how many rows are held for each call in flight."""
    if facts.batch is not None:
        # Not more: rows that wait to be collected have been called.
        return facts.batch.max_rows
    return _HELD_PER_CALL if mode == "ordered" else 1
