# SPDX-License-Identifier: Apache-2.0
"""How many calls a task makes at a time, and how many rows it holds for them. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkawait._checks import MAX_COUNT, Bytes, refuse, warn_once
from sparkawait._plan.facts import Facts
from sparkawait.exceptions import ErrorKind
from sparkawait.limits import Adaptive
from sparkawait.options import WaitOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bounds", "Growth", "asked_calls", "bounds", "held"]


_CALLS = 100
"""Calls in flight if nothing is said: what Flink has by default, whose `capacity` is both."""
_FIRST_PER_CALL, _MOST_PER_CALL = 8, 100
"""Rows that ordered mode holds for each call in flight, at first and later. One call may take as
many times as long as the others before it keeps further ones from being made."""
_MOST_BYTES = 16 << 20
"""Bytes that they grow to: four tasks of an executor fit into what Spark leaves for them."""


class Growth(NamedTuple):
    """How far the rows that are held become more, as rows are taken.

    Attributes:
        rows: Rows that are held at most.
        bytes: Bytes of their results, and of the rows' places, beyond which they become no more.
    """

    rows: int
    bytes: int


class Bounds(NamedTuple):
    """What a task may have at a time.

    Attributes:
        calls: Calls in flight.
        rows: Rows that are held; at first, if there is a `growth`.
        bytes: Bytes that completed rows have, which are then not among `rows`; `None`: these bound
            them.
        growth: How far `rows` grows; `None`: not at all.
    """

    calls: int
    rows: int
    bytes: int | None = None
    growth: Growth | None = None


def bounds(mode: str, options: WaitOptions, facts: Facts) -> Bounds:
    """Returns what a task may have at a time.

    Raises:
        ConfigurationError: If there are more calls than rows.
    """
    concurrency, capacity = asked_calls(options), options.capacity
    if isinstance(capacity, Bytes):
        capacity = None
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
        return held(mode, options, [(concurrency, facts)])
    if concurrency > capacity:
        refuse(
            f"`max_concurrency` must not be above `capacity`, got {concurrency} and {capacity};"
            " a call in flight takes a slot",
            ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE,
        )
    return Bounds(concurrency, capacity)


def held(mode: str, options: WaitOptions, called: Sequence[tuple[int, Facts]]) -> Bounds:
    """Returns what a task may have where the rows that it holds are not told as a number.

    Args:
        mode: Which order the output has.
        options: The options of the call.
        called: The calls in flight of each function that a row is for, and what is known of it.
    """
    calls = max(calls for calls, _ in called)

    def rows(per_call: int) -> int:
        # Not more of a function that takes many: rows that wait to be collected have been called.
        each = (n * (per_call if it.batch is None else it.batch.max_rows) for n, it in called)
        return min(max(each), MAX_COUNT)

    if isinstance(options.capacity, Bytes):
        # Rows that wait are as many as where those that are completed leave at once.
        return Bounds(calls, rows(1), int(options.capacity))
    if mode != "ordered":
        return Bounds(calls, rows(1))
    first, most = rows(_FIRST_PER_CALL), rows(_MOST_PER_CALL)
    growth = Growth(most, _MOST_BYTES) if most > first else None
    return Bounds(calls, first, growth=growth)


def _is_called_by_row(facts: Facts) -> bool:
    """Whether each call takes one row, and a thread of its own if the function needs one."""
    return facts.batch is None and facts.threads is None


def asked_calls(options: WaitOptions) -> int | None:
    """Returns the calls in flight that were asked for at most, if any were."""
    asked = options.max_concurrency
    return asked.max if isinstance(asked, Adaptive) else asked
