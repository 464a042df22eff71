# SPDX-License-Identifier: Apache-2.0
"""Several operators of one task: each gets what the one before it puts out."""

import asyncio
from operator import itemgetter

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait.exceptions import ErrorKind
from sparkawait.testing import simulated

WAITS = (arrow.ordered_wait, arrow.unordered_wait, arrow.key_ordered_wait)


@sa.async_function("y bigint")
async def double(row):
    await asyncio.sleep(0)
    return {"y": row["x"] * 2}


@sa.async_function("z bigint")
async def add_one(row):
    return {"z": row["y"] + 1}


def batches(count=3, rows=10):
    for index in range(count):
        yield pa.RecordBatch.from_pydict({"x": list(range(index * rows, (index + 1) * rows))})


def rows(output):
    return [row for batch in output for row in batch.to_pylist()]


def wait(function, *arguments, **given):
    if function is arrow.key_ordered_wait:
        given["key"] = "x"
    return function(*arguments, **given)


@pytest.mark.parametrize("first", WAITS)
@pytest.mark.parametrize("second", WAITS)
def test_results_are_those_of_two_tasks(first, second):
    chained = wait(second, wait(first, batches(), double), add_one, chain=True)
    apart = wait(second, wait(first, batches(), double), add_one)

    found = rows(chained)
    by_x = sorted(found, key=itemgetter("x"))
    assert by_x == sorted(rows(apart), key=itemgetter("x"))
    assert [row["z"] for row in by_x] == [2 * x + 1 for x in range(30)]
    if first is second is arrow.ordered_wait:
        assert [row["x"] for row in found] == list(range(30))


@pytest.mark.parametrize("native", [(True, False), (False, True), (True, True)], ids=str)
def test_native_functions_stand_anywhere(native):
    first = simulated() if native[0] else double
    second = simulated(column="second") if native[1] else async_row
    inner = arrow.ordered_wait(batches(), first)
    out = arrow.ordered_wait(inner, second, chain=True)
    assert sum(batch.num_rows for batch in out) == 30


@sa.async_function("w bigint")
async def async_row(row):
    return {"w": row["x"]}


def test_second_function_begins_with_the_first_row():
    released = asyncio.Event()
    seen = []

    @sa.async_function("y bigint")
    async def first(row):
        if row["x"] > 0:
            await released.wait()
        return {"y": row["x"]}

    @sa.async_function("z bigint")
    async def second(row):
        seen.append(row["y"])
        released.set()
        return {"z": row["y"]}

    out = arrow.unordered_wait(arrow.unordered_wait(batches(1), first), second, chain=True)
    assert len(rows(out)) == 10
    assert seen[0] == 0


def test_error_column_of_one_call_is_a_column_of_the_next():
    @sa.async_function("y bigint")
    async def fails(row):
        if row["x"] % 2:
            raise ValueError("odd")
        return {"y": row["x"]}

    @sa.async_function("kind string")
    async def kind(row):
        return {"kind": None if row["error"] is None else row["error"]["kind"]}

    inner = arrow.ordered_wait(batches(1), fails, on_error="capture")
    out = rows(arrow.ordered_wait(inner, kind, chain=True))
    assert [row["kind"] for row in out] == [None, "user-function-failed"] * 5


def test_failure_names_the_operator_and_ends_both():
    closed = []

    class Fails(sa.AsyncFunction):
        def __init__(self, name):
            self.who = name
            self.schema = pa.schema([("a" if name == "one" else "b", pa.int64())])

        async def async_invoke(self, row):
            if self.who == "two" and row["x"] == 3:
                raise ValueError("no")
            return [{"a" if self.who == "one" else "b": 1}]

        async def close(self):
            closed.append(self.who)

    inner = arrow.ordered_wait(batches(), Fails("one"))
    with pytest.raises(sa.AsyncFunctionError, match=r"Fails#2` failed for row 3"):
        rows(arrow.ordered_wait(inner, Fails("two"), chain=True))
    assert closed == ["one", "two"]


def test_metrics_are_told_by_operator():
    from sparkawait._plan.plan import Chain
    from sparkawait._plan.resolve import resolve_unpickled

    def plan(function):
        return resolve_unpickled("ordered", function, input_schema=None)

    totals = {}
    chain = Chain.of(plan(double)).then(plan(add_one))
    list(arrow.run(chain, batches(), on_metrics=totals.update))

    assert (totals["admitted"], totals["emitted"], totals["attempts"]) == (30, 30, 60)
    assert list(totals["operators"]) == ["double", "add_one"]
    assert all(it["attempts"] == 30 for it in totals["operators"].values())


def test_second_function_that_cannot_be_opened_fails_before_any_call():
    class Broken(sa.AsyncFunction):
        schema = pa.schema([("z", pa.int64())])

        async def open(self, context):
            raise RuntimeError("no model")

        async def async_invoke(self, row):
            return [{"z": 1}]

    calls = []

    @sa.async_function("y bigint")
    async def first(row):
        calls.append(row["x"])
        return {"y": 1}

    inner = arrow.ordered_wait(batches(), first)
    with pytest.raises(sa.AsyncFunctionError) as info:
        rows(arrow.ordered_wait(inner, Broken(), chain=True))
    assert info.value.kind is ErrorKind.OPEN_FAILED
    assert calls == []


def test_output_that_is_abandoned_ends_both():
    ended = []

    @sa.async_function("y bigint")
    async def first(row):
        return {"y": row["x"]}

    @sa.async_function("z bigint")
    async def second(row):
        if row["x"] > 0:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(row["x"])
        return {"z": 1}

    inner = arrow.unordered_wait(batches(1), first)
    out = arrow.unordered_wait(inner, second, chain=True, tuning=sa.Tuning(buffer_timeout="1ms"))
    assert next(out).num_rows == 1
    out.close()
    assert ended


@pytest.mark.parametrize(
    "make",
    [
        lambda: list(batches()),
        lambda: pa.Table.from_batches(list(batches())),
        lambda: iter(list(arrow.ordered_wait(batches(), double))),
    ],
    ids=["list", "table", "made of it"],
)
def test_input_that_no_wait_function_returned_is_refused(make):
    with pytest.raises(sa.ConfigurationError, match="`chain` needs what a wait function") as info:
        arrow.ordered_wait(make(), add_one, chain=True)
    assert info.value.kind is ErrorKind.INPUT_INVALID


def test_output_that_was_read_is_refused():
    inner = arrow.ordered_wait(batches(), double)
    next(inner)
    with pytest.raises(sa.ConfigurationError, match="before batches are taken"):
        arrow.ordered_wait(inner, add_one, chain=True)
    inner.close()


def test_output_goes_to_one_operator_only():
    inner = arrow.ordered_wait(batches(), double)
    out = arrow.ordered_wait(inner, add_one, chain=True)
    with pytest.raises(sa.ConfigurationError, match="before batches are taken"):
        arrow.ordered_wait(inner, add_one, chain=True)
    with pytest.raises(sa.ConfigurationError, match="go to the operator"):
        next(inner)
    assert len(rows(out)) == 30


def test_column_that_both_return_is_refused():
    inner = arrow.ordered_wait(batches(), double)
    with pytest.raises(sa.ConfigurationError) as info:
        rows(arrow.ordered_wait(inner, double, chain=True))
    assert info.value.kind is ErrorKind.COLUMN_CLASH
