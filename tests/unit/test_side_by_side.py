# SPDX-License-Identifier: Apache-2.0
"""Several functions for each row, side by side; the oracle is one call after the other."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import (
    Batch,
    Cache,
    CarryOver,
    ConfigurationError,
    Hedge,
    RateLimit,
    arrow,
    async_function,
    http,
    retry,
)
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import AsyncFunctionError
from sparkawait.testing import simulated

ROWS = 500
MODES = ["ordered", "unordered", "key_ordered"]


@async_function("f bigint, of string")
async def f(row):
    await asyncio.sleep(0.0005 * (row["x"] % 3))
    return {"f": 2 * row["x"], "of": ",".join(row)}


@async_function("g bigint")
async def g(row):
    await asyncio.sleep(0.0005 * (row["x"] % 2))
    return {"g": row["x"] + 1}


def batches(*lengths):
    start = 0
    for length in lengths or (300, 200):
        yield pa.record_batch({"x": range(start, start + length), "k": [1] * length})
        start += length


def wait(mode, source, function, **given):
    key = {"key": "x"} if mode == "key_ordered" else {}
    return getattr(arrow, f"{mode}_wait")(source, function, **key, **given)


def table(out):
    return pa.Table.from_batches(list(out))


@pytest.mark.parametrize("mode", MODES)
def test_columns_of_all_functions_are_appended_as_by_calls_one_after_the_other(mode):
    found = table(wait(mode, batches(), [f, g]))
    one_by_one = table(wait(mode, wait(mode, batches(), f), g))

    assert found.schema == one_by_one.schema
    assert found.sort_by("x").equals(one_by_one.sort_by("x"))
    if mode == "ordered":
        assert found["x"].to_pylist() == list(range(ROWS))
    assert set(found["of"].to_pylist()) == {"x,k"}, "no function sees the results of another"


@pytest.mark.parametrize("mode", MODES)
def test_native_functions_and_batched_ones_go_along(mode):
    @async_function("b bigint", batch=Batch(max_rows=7))
    async def batched(rows):
        return [{"b": -row["x"]} for row in rows]

    found = table(wait(mode, batches(), [simulated(), f, batched])).sort_by("x")

    assert found.column_names == ["x", "k", "ordinal", "f", "of", "b"]
    assert found["b"].to_pylist() == [-x for x in range(ROWS)]
    assert found["f"].to_pylist() == [2 * x for x in range(ROWS)]


def test_all_functions_are_called_for_a_row_before_one_has_answered():
    called = []
    both = asyncio.Event()

    def meeting(name):
        @async_function(f"{name} bigint")
        async def meet(row):
            called.append(name)
            if len(called) == 2:
                both.set()
            await both.wait()
            return {name: row["x"]}

        return meet

    found = table(arrow.ordered_wait(batches(1), [meeting("a"), meeting("b")], timeout="30s"))

    assert found.select(["a", "b"]).to_pylist() == [{"a": 0, "b": 0}]


def test_each_function_has_its_own_options():
    tries = []

    @async_function("a bigint")
    async def twice(row):
        tries.append(row["x"])
        if tries.count(row["x"]) == 1:
            raise ConnectionError
        return {"a": row["x"]}

    @async_function("b bigint")
    async def odd_fails(row):
        if row["x"] % 2:
            raise LookupError
        return {"b": row["x"]}

    @async_function("c bigint")
    async def count(row):
        calls.append(row["x"])
        await asyncio.sleep(0)
        return {"c": len(calls)}

    calls: list[int] = []
    functions = [
        twice.with_options(retry=retry.fixed_delay(2, "1ms"), max_concurrency=3),
        odd_fails.with_options(on_error=sa.OnError(column="why")),
        count.with_options(cache=Cache(key="k")),
    ]

    found = table(arrow.ordered_wait(batches(20), functions))

    assert found.column_names == ["x", "k", "a", "b", "why", "c"]
    assert found["a"].to_pylist() == list(range(20))
    assert found["b"].to_pylist() == [None if x % 2 else x for x in range(20)]
    kinds = [why and why["kind"] for why in found["why"].to_pylist()]
    assert kinds == ["user-function-failed" if x % 2 else None for x in range(20)]
    assert len(calls) == 1
    assert len(tries) == 40


@pytest.mark.parametrize("mode", MODES)
def test_a_row_is_dropped_if_one_function_drops_it(mode):
    @async_function("a bigint")
    async def third_fails(row):
        if row["x"] % 3 == 0:
            raise LookupError
        return {"a": row["x"]}

    @async_function("b bigint")
    async def none_for_odd(row):
        return [] if row["x"] % 2 else {"b": row["x"]}

    functions = [third_fails.with_options(on_error="drop"), none_for_odd, g]

    found = table(wait(mode, batches(), functions)).sort_by("x")

    assert found["x"].to_pylist() == [x for x in range(ROWS) if x % 3 and not x % 2]
    assert found["a"].to_pylist() == found["b"].to_pylist() == found["x"].to_pylist()


def test_a_failure_fails_the_task_and_names_the_function_and_the_row():
    @async_function("a bigint")
    async def fails(row):
        if row["x"] == 7:
            raise LookupError
        return {"a": row["x"]}

    with pytest.raises(AsyncFunctionError, match=r"fails.*row 7"):
        list(arrow.ordered_wait(batches(50), [g, fails]))


def test_several_results_of_a_row_fail_it():
    @async_function("a bigint")
    async def two(row):
        return [{"a": 1}, {"a": 2}] if row["x"] == 3 else {"a": 0}

    found = table(arrow.ordered_wait(batches(5), [two.with_options(on_error="capture"), g]))

    (error,) = [error for error in found["error"].to_pylist() if error]
    assert error["message"].endswith("must return one result for a row, got 2")
    assert found["a"].to_pylist() == [0, 0, 0, None, 0]


def test_calls_side_by_side_are_chained_with_others():
    @async_function("sum bigint")
    async def total(row):
        return {"sum": row["f"] + row["g"]}

    again = sa.async_function(lambda row: {"g2": row["f"], "all": ",".join(row)})
    again = again.with_options(schema="g2 bigint, all string", on_error="capture")
    first = arrow.unordered_wait(batches(), g)
    second = arrow.ordered_wait(first, [f, simulated()], chain=True)
    third = arrow.unordered_wait(second, total, chain=True)
    last = arrow.ordered_wait(third, [again], chain=True)
    found = table(last).sort_by("f")

    assert found.column_names[-3:] == ["g2", "all", "error"]
    assert found["f"].to_pylist() == [2 * x for x in range(ROWS)]
    assert set(found["all"].to_pylist()) == {"x,k,g,f,of,ordinal,sum"}


def test_a_row_that_fails_is_named_by_its_position_in_the_input():
    @async_function("a bigint")
    async def last_fails(row):
        if row["x"] == 9:
            raise LookupError
        await asyncio.sleep(0.001)
        return {"a": row["x"]}

    # Rows of one key are called for one after the other, those of the other beside them.
    keys = [0] * 8 + [1, 1]
    source = [pa.record_batch({"x": range(10), "k": keys})]
    with pytest.raises(AsyncFunctionError, match=r"last_fails.*row 9 "):
        list(arrow.key_ordered_wait(source, [g, last_fails], key="k"))


def test_each_function_keeps_its_limits_and_its_second_calls():
    calls: Counter[int] = Counter()

    @async_function("a bigint", idempotent=True)
    async def slow_at_first(row):
        calls[row["x"]] += 1
        if row["x"] == 3 and calls[3] == 1:
            await asyncio.sleep(3600)
        return {"a": row["x"]}

    functions = [
        slow_at_first.with_options(hedge=Hedge(after="1ms", max_extra=1)),
        g.with_options(rate_limit=RateLimit("1000000/s", name="of g")),
    ]
    seen: list[dict[str, Any]] = []
    chain = Chain.of(resolve_unpickled("ordered", functions, input_schema=None))
    found = table(arrow.run(chain, batches(20), on_metrics=seen.append))

    assert found["a"].to_pylist() == list(range(20))
    assert calls[3] == 2
    assert seen[-1]["rate_limits"] == {"of g": {"permits": 20, "parts": 1}}
    assert (seen[-1]["admitted"], seen[-1]["emitted"]) == (20, 20)
    assert seen[-1]["hedges_won"] == 1
    assert len(seen[-1]["operators"]) == 3


def test_texts_that_are_not_utf8_pass_beside_functions_that_do_not_read_them():
    offsets, data = pa.py_buffer(b"\0\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"\xffAb")
    text = pa.StringArray.from_buffers(2, offsets, data)
    source = [pa.record_batch([pa.array([0, 1]), text], names=["x", "t"])]

    found = table(arrow.ordered_wait(source, [g, f.with_options(schema="f bigint")]))

    assert found["t"].cast(pa.binary()).to_pylist() == [b"\xffA", b"b"]
    assert found.select(["g", "f"]).to_pylist() == [{"g": 1, "f": 0}, {"g": 2, "f": 2}]


def test_the_time_of_a_row_is_that_of_each_function():
    plan = resolve_unpickled(
        "ordered", [f.with_options(timeout="5 min"), g], input_schema=None, timeout="10s"
    )

    assert plan.options.timeout is None
    assert [branch.options.timeout for branch in plan.branches] == [300, 10]


class Found(NamedTuple):
    found: int


async def listed(row) -> list[Found]:
    return []


two_errors = [f.with_options(on_error="capture"), g.with_options(on_error="capture")]
items = http.get("http://h", "f int", rows="items")


@pytest.mark.parametrize(
    ("functions", "given", "message"),
    [
        ([], {}, "must be a function or a list of them"),
        ([f, f], {}, "returned column `f` is returned twice"),
        ([f, g], {"schema": "a int"}, "`schema` is of one function"),
        ([f, g], {"on_timeout": []}, "`on_timeout` is of one function"),
        ([f, 5], {}, "must be an `async def`, a plain function or an AsyncFunction, got `int`"),
        ([f, [g]], {}, "got a list in a list"),
        (two_errors, {}, r"`f` and `g` both capture failures in column `error`.*OnError"),
        ([items, g], {}, "may return several rows for a row.*call it alone"),
        ([listed, g], {}, "`listed` may return several rows for a row"),
        ([f, g], {"carry_over": CarryOver()}, r"got \[f, g\]; call them one after the other"),
    ],
)
def test_what_cannot_be_called_side_by_side_is_refused(functions, given, message):
    with pytest.raises(ConfigurationError, match=message):
        arrow.ordered_wait(batches(), functions, **given)


def test_options_of_rows_are_refused_for_one_function():
    with pytest.raises(ConfigurationError, match="`capacity` is not an option of one function"):
        f.with_options(capacity=5)


def test_one_function_with_options_takes_those_of_the_call_before_its_own():
    @async_function("a bigint")
    async def fails(row):
        raise LookupError

    function = fails.with_options(on_error="drop")

    assert list(arrow.ordered_wait(batches(3), function)) == []
    out = table(arrow.ordered_wait(batches(3), function, on_error="null"))
    assert out["a"].to_pylist() == [None] * 3
    assert function.with_options(timeout="1s").options.given == {
        "on_error": "drop",
        "timeout": "1s",
    }


@pytest.mark.parametrize("max_concurrency", [1, 3, 50])
@pytest.mark.parametrize("retry", [0, sa.retry.fixed_delay(2, "7ms")], ids=["once", "retried"])
def test_a_row_that_is_refused_beside_others_fails_the_task_in_its_own_words(
    max_concurrency, retry
):
    @sa.async_function("a long")
    async def down(row):
        raise ConnectionError

    @sa.async_function("b long")
    async def fine(row):
        await asyncio.sleep(0)
        return {"b": row["id"]}

    refuses = sa.CircuitBreaker(after_failures=1, when_open="fail")
    failing = down.with_options(on_error="fail", circuit_breaker=refuses, retry=retry)
    rows = pa.table({"id": list(range(131))})
    out = sa.arrow.unordered_wait(rows, [failing, fine], max_concurrency=max_concurrency)
    with pytest.raises(sa.AsyncFunctionError, match="ConnectionError"):
        out.to_table()
