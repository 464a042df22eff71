# SPDX-License-Identifier: Apache-2.0
"""Bounds in bytes of the wait functions over record batches."""

import asyncio

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import Batch, arrow, async_function

MEGABYTE = 1 << 20
WAITS = [arrow.ordered_wait, arrow.unordered_wait]


def batches(*lengths):
    start = 0
    for length in lengths:
        yield pa.RecordBatch.from_pydict({"x": list(range(start, start + length))})
        start += length


def returns(ddl, result):
    @async_function(ddl)
    async def function(row):
        return result

    return function


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize(
    ("ddl", "result"),
    [
        ("y string", {"y": "x" * 100_000}),
        ("y binary", {"y": b"x" * 100_000}),
        ("y array<string>", {"y": ["x" * 100_000]}),
        ("y string", [{"y": "x" * 50_000}] * 2),
    ],
    ids=["text", "bytes", "list", "many"],
)
def test_output_batches_have_no_more_bytes_than_permitted(wait, ddl, result):
    function = returns(ddl, result)
    out = list(
        wait(
            batches(60, 40),
            function,
            tuning=sa.Tuning(max_bytes="1 MB"),
            on_error="drop",
        )
    )

    table = pa.Table.from_batches(out)
    assert sorted(set(table["x"].to_pylist())) == list(range(100))
    assert max(batch.nbytes for batch in out) <= MEGABYTE
    assert all(batch.num_rows >= 9 for batch in out[:-20])


def test_input_columns_count_too():
    wide = pa.RecordBatch.from_pydict({"x": range(50), "wide": ["x" * 100_000] * 50})
    bounds = sa.Tuning(max_bytes="1 MB", buffer_timeout=None)
    function = returns("y int", {"y": 1})
    out = list(arrow.ordered_wait([wide], function, tuning=bounds))
    assert [batch.num_rows for batch in out] == [10] * 5
    narrow = wide.select(["x"])
    (whole,) = arrow.ordered_wait([narrow], function, tuning=bounds)
    assert whole.num_rows == 50


def test_a_row_that_has_more_than_a_batch_may_have_is_one_of_its_own():
    function = returns("y string", {"y": "x" * 5000})
    out = arrow.ordered_wait(batches(3), function, tuning=sa.Tuning(max_bytes=9))
    assert [batch.num_rows for batch in out] == [1, 1, 1]


@pytest.mark.parametrize("wait", WAITS)
def test_large_input_goes_through_with_few_bytes_permitted(wait):
    text = "x" * 10_000
    inputs = (
        pa.RecordBatch.from_pydict({"x": range(100), "text": [text] * 100}) for _ in range(20)
    )
    full = sa.Tuning(max_bytes="64 KB", buffer_timeout=None)
    out = wait(inputs, returns("y int", {"y": 1}), tuning=full)
    assert sum(batch.num_rows for batch in out) == 2000


def test_results_of_megabytes_are_not_lost():
    function = returns("y string", {"y": "x" * 2_200_000})
    rows = sum(
        batch.num_rows for batch in arrow.unordered_wait(batches(150), function, on_error="drop")
    )
    assert rows == 150


@pytest.mark.parametrize("wait", [arrow.ordered_wait, arrow.key_ordered_wait])
def test_a_capacity_in_bytes_holds_more_rows_than_any_number_of_slots_would(wait):
    """The first row waits for a thousand others, where eight calls have 64 slots."""

    @async_function("y bigint")
    async def function(row):
        if row["x"] == 0:
            await enough.wait()
        called.append(row["x"])
        if len(called) == 1000:
            enough.set()
        return {"y": -row["x"]}

    called, enough = [], asyncio.Event()
    given = {"key": "x"} if wait is arrow.key_ordered_wait else {}

    out = wait(batches(3000), function, capacity="1 MB", max_concurrency=8, **given)

    table = pa.Table.from_batches(list(out))
    assert sorted(table["y"].to_pylist()) == list(range(-2999, 1))
    assert called.index(0) >= 1000


def test_a_capacity_in_bytes_goes_with_channels_and_batches():
    @async_function("y bigint", batch=Batch(max_rows=10))
    async def function(rows):
        return [{"y": row["x"]} for row in rows]

    for given in ({}, {"channel": "x"}):
        out = arrow.ordered_wait(batches(500), function, capacity="10 KB", **given)
        assert pa.Table.from_batches(list(out))["y"].to_pylist() == list(range(500))
