# SPDX-License-Identifier: Apache-2.0
"""In ordered mode completed rows wait for a slow one, more of them once rows were taken."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import AsyncFunctionError

CALLS = 3
FIRST, MOST = 8 * CALLS, 100 * CALLS


def batches(rows: int, of: int = 50) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, of):
        yield pa.RecordBatch.from_pydict({"id": range(first, min(first + of, rows))})


class Slow(sa.AsyncFunction):
    """Answers row `row` when `others` calls behind it have been answered, or fails it then."""

    schema = "answer bigint"

    def __init__(self, row: int, others: int, *, fails: bool = False) -> None:
        self.row, self.others, self.fails = row, others, fails
        self.called: list[int] = []
        self.answered = 0
        self.enough = asyncio.Event()

    async def async_invoke(self, row: sa.typing.Row) -> dict[str, int]:
        self.called.append(row["id"])
        if row["id"] == self.row:
            await self.enough.wait()
            if self.fails:
                msg = "slow and wrong"
                raise ValueError(msg)
        elif row["id"] > self.row:
            self.answered += 1
            if self.answered == self.others:
                self.enough.set()
        return {"answer": 7 * row["id"]}


class Other(Slow):
    schema = "other bigint"


OTHER = Other(0, 1).with_options(max_concurrency=7)


def answers(out: Any) -> list[int]:
    return [it for batch in out for it in batch["answer"].to_pylist()]


def test_a_slow_row_holds_up_no_other_once_rows_were_taken():
    function = Slow(row=400, others=MOST - 1)
    out = arrow.ordered_wait(batches(1_003), function, max_concurrency=CALLS, timeout="5s")

    assert answers(out) == [7 * it for it in range(1_003)]
    assert sorted(function.called) == list(range(1_003))


def test_before_that_few_calls_are_in_vain():
    function = Slow(row=0, others=FIRST - 1, fails=True)

    with pytest.raises(AsyncFunctionError, match="`Slow` failed for row 0 "):
        answers(arrow.ordered_wait(batches(1_003), function, max_concurrency=CALLS, timeout="5s"))

    assert sorted(function.called) == list(range(FIRST))


def test_no_more_calls_are_in_vain_than_rows_were_taken_and_those_of_the_beginning():
    function = Slow(row=100, others=47, fails=True)

    with pytest.raises(AsyncFunctionError, match="`Slow` failed for row 100 "):
        answers(arrow.ordered_wait(batches(1_003), function, max_concurrency=CALLS, timeout="5s"))

    # A hundred rows were taken, and 24 and 48 are 72: then it holds 96.
    assert 100 + 48 <= len(function.called) <= 100 + 96


@pytest.mark.parametrize("capacity", [26, "1 MB"])
def test_what_is_said_is_held_from_the_beginning(capacity: int | str):
    plan = resolve_unpickled(
        "ordered", Slow(0, 1), input_schema=None, max_concurrency=CALLS, capacity=capacity
    )

    assert plan.growth is None
    assert plan.capacity == (26 if capacity == 26 else CALLS)


@pytest.mark.parametrize(
    ("mode", "function", "given", "capacity", "growth"),
    [
        ("ordered", Slow(0, 1), {}, FIRST, (MOST, 16 << 20)),
        ("unordered", Slow(0, 1), {}, CALLS, None),
        ("key_ordered", Slow(0, 1), {"key": "id"}, CALLS, None),
        ("ordered", [Slow(0, 1), OTHER], {}, 56, (700, 16 << 20)),
    ],
)
def test_rows_become_more_in_ordered_mode_only(
    mode: str, function: Any, given: Any, capacity: int, growth: tuple[int, int] | None
):
    plan = resolve_unpickled(mode, function, input_schema=None, max_concurrency=CALLS, **given)

    assert (plan.capacity, plan.growth) == (capacity, growth)
