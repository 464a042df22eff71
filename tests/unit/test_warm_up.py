# SPDX-License-Identifier: Apache-2.0
"""A task begins with few calls, until somebody has taken rows and asks for more."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker import life_cycle
from sparkawait.testing import simulated

CALLS = 40
FEW = 5
"""An eighth of them."""


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life_cycle, "_wanted", {})


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"id": range(rows)})])


class Gate(sa.AsyncFunction):
    """Answers rows below `first` when they are all there, and the others when `enough` are."""

    schema = "answer bigint"

    def __init__(self, first: int, enough: int) -> None:
        self.first, self.enough = first, enough
        self.started: list[int] = []
        self.all_first, self.all = asyncio.Event(), asyncio.Event()

    async def async_invoke(self, row: sa.typing.Row) -> dict[str, int]:
        self.started.append(row["id"])
        if len(self.started) == self.first:
            self.all_first.set()
        if len(self.started) == self.enough:
            self.all.set()
        await (self.all_first if row["id"] < self.first else self.all).wait()
        return {"answer": row["id"]}


def test_calls_are_few_until_the_first_rows_were_taken_and_more_are_asked_for():
    # The last call that is needed starts only when all of them may.
    function = Gate(first=FEW, enough=FEW + CALLS)
    out = arrow.unordered_wait(batches(100), function, max_concurrency=CALLS, timeout=None)

    rows = next(out).num_rows

    assert 1 <= rows <= FEW
    assert len(function.started) <= 2 * FEW, "a call for each row that was answered"
    assert rows + sum(batch.num_rows for batch in out) == 100


def test_later_tasks_of_a_function_make_all_calls_at_once():
    list(arrow.unordered_wait(batches(10), Gate(1, 1), max_concurrency=CALLS))

    # With few calls the first row would time out.
    out = arrow.unordered_wait(batches(CALLS), Gate(CALLS, 0), max_concurrency=CALLS, timeout="5s")

    assert sum(batch.num_rows for batch in out) == CALLS


def test_later_tasks_expect_results_as_large_as_those_before():
    def most_in_flight(rows: int, enough: int) -> int:
        seen.clear()
        seen.update(enough=enough, in_flight=0, most=0, gate=asyncio.Event())
        out = list(
            arrow.unordered_wait(
                # Room for not quite 4 x 10 results.
                *(batches(rows), large),
                capacity=rows,
                tuning=sa.Tuning(max_bytes=10_000, warm_up=False),
                timeout="10s",
            )
        )
        assert sum(batch.num_rows for batch in out) == rows
        return seen["most"]

    seen: dict[str, Any] = {}

    @sa.async_function("answer string")
    async def large(row):
        seen["in_flight"] += 1
        seen["most"] = max(seen["most"], seen["in_flight"])
        if seen["in_flight"] == seen["enough"]:
            seen["gate"].set()
        await seen["gate"].wait()
        seen["in_flight"] -= 1
        return {"answer": "x" * 1000}

    most_in_flight(200, 4)

    assert 30 <= most_in_flight(200, 30) <= 40


def test_first_results_are_taken_for_large_ones_until_one_is_there():
    # Room for 32 results of 1 MB. The first calls end when so many are in flight, the last ones
    # when twice as many are.
    in_flight, most_at_first = 0, 0
    first, later = asyncio.Event(), asyncio.Event()

    @sa.async_function("answer bigint")
    async def answer(row):
        nonlocal in_flight, most_at_first
        in_flight += 1
        if not first.is_set():
            most_at_first = max(most_at_first, in_flight)
        if row["id"] < 32:
            if in_flight == 32:
                # Whatever else was started with these comes first.
                for _ in range(100):
                    await asyncio.sleep(0)
                first.set()
            await first.wait()
        else:
            if in_flight == 64:
                later.set()
            await later.wait()
        in_flight -= 1
        return {"answer": row["id"]}

    out = arrow.unordered_wait(
        batches(200),
        answer,
        capacity=100,
        tuning=sa.Tuning(max_bytes="8 MB", warm_up=False),
        timeout="10s",
    )

    assert sum(batch.num_rows for batch in out) == 200
    assert most_at_first == 32


def test_without_a_warm_up_all_calls_are_made_at_once():
    out = arrow.unordered_wait(
        batches(CALLS),
        Gate(CALLS, 0),
        max_concurrency=CALLS,
        timeout="5s",
        tuning=sa.Tuning(warm_up=False),
    )

    assert sum(batch.num_rows for batch in out) == CALLS


def test_a_consumer_that_leaves_has_not_wanted_the_rows():
    function = Gate(first=FEW, enough=FEW + CALLS)
    out = arrow.unordered_wait(batches(100), function, max_concurrency=CALLS, timeout=None)
    next(out)
    out.close()

    assert len(function.started) <= 2 * FEW
    assert not life_cycle.is_known(resolve_unpickled("unordered", function, input_schema=None))


def test_batches_of_the_first_calls_are_full():
    sizes: list[int] = []

    @sa.async_function("answer bigint", batch=sa.Batch(max_rows=10, linger="1h"))
    async def answer(rows):
        sizes.append(len(rows))
        return [{"answer": row["id"]} for row in rows]

    out = arrow.unordered_wait(batches(200), answer, capacity=100, timeout=None)

    assert sum(batch.num_rows for batch in out) == 200
    assert sizes == [10] * 20


def _greet(name):
    @sa.async_function("greeting string")
    async def greet(row):
        return {"greeting": name}

    return greet


def _part(name):
    @sa.async_function("greeting string")
    async def greet(row):
        return {"greeting": name, "more": 1}

    return greet


async def _hello(name, row) -> str:
    return f"{name} {row['id']}"


async def _bye(name, row) -> str:
    return f"{row['id']} {name}"


@pytest.mark.parametrize(
    ("function", "same", "other"),
    [
        (_greet("a"), _greet("b"), _part("a")),
        (Gate(1, 1), Gate(2, 2), _greet("a")),
        (partial(_hello, "a"), partial(_hello, "b"), partial(_bye, "a")),
        (simulated("1ms"), simulated("1ms"), simulated("2ms")),
    ],
)
def test_a_function_is_known_by_its_place_and_code_and_a_native_one_by_its_description(
    function, same, other
):
    known, equal, unknown = (
        resolve_unpickled("ordered", it, input_schema=None) for it in (function, same, other)
    )

    life_cycle.remember(known)

    assert life_cycle.is_known(equal)
    assert life_cycle.is_known(replace(known, options=sa.WaitOptions(timeout=None)))
    assert not life_cycle.is_known(unknown)


def test_the_memory_of_functions_is_bounded(monkeypatch):
    monkeypatch.setattr(life_cycle, "MOST_FUNCTIONS", 3)
    plans = [
        resolve_unpickled("ordered", simulated(number), input_schema=None) for number in range(5)
    ]

    for plan in plans:
        life_cycle.remember(plan)
        assert life_cycle.is_known(plan)

    assert sum(map(life_cycle.is_known, plans)) <= 3
