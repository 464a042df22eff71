# SPDX-License-Identifier: Apache-2.0
"""The whole operator: every row comes out exactly once, and in order where that is promised."""

import asyncio
from collections import Counter

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkawait import Batch, Tuning, async_function, retry
from sparkawait.arrow import key_ordered_wait, ordered_wait, unordered_wait

LENGTHS = st.lists(st.integers(0, 40), max_size=8)
SIZES = st.fixed_dictionaries(
    {
        "capacity": st.integers(1, 60),
        "tuning": st.builds(Tuning, st.sampled_from([0, "1ms", "auto", None]), st.integers(1, 50)),
    }
)
TURNS = st.lists(st.integers(0, 5), min_size=1, max_size=7)
"""How many turns of the loop calls wait, in rotation."""


def batches(lengths):
    start = 0
    for length in lengths:
        x = pa.array(range(start, start + length), pa.int64())
        keys = pa.array([i % 5 if i % 7 else None for i in range(start, start + length)], pa.int8())
        yield pa.RecordBatch.from_pydict({"x": x, "k": keys})
        start += length


def waiting(turns):
    @async_function("y bigint")
    async def wait(row):
        for _ in range(turns[row["x"] % len(turns)]):
            await asyncio.sleep(0)
        return {"y": -row["x"]}

    return wait


def column(results, name):
    return [value for batch in results for value in batch.column(name).to_pylist()]


@given(LENGTHS, SIZES, TURNS)
@settings(max_examples=60)
def test_ordered_wait_emits_every_row_once_in_order(lengths, sizes, turns):
    results = list(ordered_wait(batches(lengths), waiting(turns), **sizes))
    assert column(results, "x") == list(range(sum(lengths)))
    assert column(results, "y") == [-x for x in range(sum(lengths))]
    assert all(0 < batch.num_rows <= sizes["tuning"].max_rows for batch in results)


@given(LENGTHS, SIZES, TURNS)
@settings(max_examples=60)
def test_unordered_wait_emits_every_row_once(lengths, sizes, turns):
    results = list(unordered_wait(batches(lengths), waiting(turns), **sizes))
    pairs = zip(column(results, "x"), column(results, "y"), strict=True)
    assert sorted(pairs) == [(x, -x) for x in range(sum(lengths))]


@given(LENGTHS, SIZES, TURNS)
@settings(max_examples=60)
def test_key_ordered_wait_keeps_the_order_of_each_key(lengths, sizes, turns):
    results = list(key_ordered_wait(batches(lengths), waiting(turns), key="k", **sizes))
    by_key = {}
    for x, key in zip(column(results, "x"), column(results, "k"), strict=True):
        by_key.setdefault(key, []).append(x)
    assert sorted(x for xs in by_key.values() for x in xs) == list(range(sum(lengths)))
    assert all(xs == sorted(xs) for key, xs in by_key.items() if key is not None)


@given(LENGTHS, SIZES, st.lists(st.integers(0, 3), min_size=1, max_size=5))
@settings(max_examples=40)
def test_every_result_of_a_row_is_emitted(lengths, sizes, counts):
    @async_function("y bigint")
    async def repeat(row):
        return [{"y": i} for i in range(counts[row["x"] % len(counts)])]

    results = list(ordered_wait(batches(lengths), repeat, **sizes))
    expected = [x for x in range(sum(lengths)) for _ in range(counts[x % len(counts)])]
    assert column(results, "x") == expected


@given(LENGTHS, SIZES, st.integers(1, 3))
@settings(max_examples=40)
def test_failed_rows_are_tried_again_as_often_as_allowed(lengths, sizes, retries):
    attempts = Counter()

    @async_function("y bigint")
    async def flaky(row):
        attempts[row["x"]] += 1
        if attempts[row["x"]] <= row["x"] % (retries + 2):
            raise OSError
        return {"y": 1}

    strategy = retry.fixed_delay(retries, 0, budget=None)
    options = {**sizes, "retry": strategy, "on_error": "null"}
    results = list(ordered_wait(batches(lengths), flaky, **options))
    total = sum(lengths)
    assert column(results, "x") == list(range(total))
    failed = [x % (retries + 2) > retries for x in range(total)]
    assert [y is None for y in column(results, "y")] == failed
    assert all(attempts[x] == min(x % (retries + 2), retries) + 1 for x in range(total))


@given(LENGTHS, SIZES, st.integers(1, 20), TURNS)
@settings(max_examples=40)
def test_batched_calls_answer_every_row_once(lengths, sizes, max_rows, turns):
    @async_function("y bigint", batch=Batch(max_rows=max_rows, linger=0))
    async def negate(rows):
        assert 1 <= len(rows) <= max_rows
        for _ in range(turns[rows[0]["x"] % len(turns)]):
            await asyncio.sleep(0)
        return [{"y": -row["x"]} for row in rows]

    results = list(ordered_wait(batches(lengths), negate, **sizes))
    assert column(results, "y") == [-x for x in range(sum(lengths))]
