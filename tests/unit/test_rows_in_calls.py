# SPDX-License-Identifier: Apache-2.0
"""Rows of a batched function wait in line, where their time stands, until calls take them."""

import asyncio
import collections
import uuid

import pytest

import sparkawait as sa
import sparkawait.arrow

COLD = {"tuning": sa.Tuning(warm_up=False)}


async def fails(rows):
    raise ValueError(len(rows))


def fails_in_a_thread(rows):
    raise ValueError(len(rows))


def fails_in_a_frame(batch):
    raise ValueError(batch.num_rows)


CHANNELS = {"channel": sa.Channel("tenant", count=3)}
HANDED_OVER = [
    (fails, {}, {"max_concurrency": 2, "capacity": 191}, 14),
    (fails, {}, {"max_concurrency": 2, "capacity": 9}, 9),
    (fails, {}, {"max_concurrency": 2, "capacity": "1 MB"}, 14),
    # Those of one more call for each channel.
    (fails, {}, {"max_concurrency": 2, "capacity": 191, **CHANNELS}, 35),
    (fails_in_a_thread, {"threads": 3}, {"max_concurrency": 29}, 21),
    (fails_in_a_frame, {"threads": 3}, {"max_concurrency": 29}, 21),
]


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
@pytest.mark.parametrize(("function", "said", "options", "most"), HANDED_OVER)
def test_no_more_rows_are_handed_over_than_calls_take(mode, function, said, options, most):
    batch = sa.Batch(7, linger="20s", arrow=function is fails_in_a_frame)
    called = sa.async_function("r long", batch=batch, **said)(function)
    name = str(uuid.uuid4())
    # What was handed over has paid.
    limit = sa.Budget(1000.0, cost=1, name=name)
    rows = {"id": list(range(191)), "tenant": [it % 3 for it in range(191)]}
    wait = getattr(sa.arrow, f"{mode}_wait")

    out = wait(rows, called, rate_limit=limit, retry=0, **options, **COLD)

    with pytest.raises(sa.AsyncIOError, match="ValueError"):
        out.to_table()
    assert out.metrics["rate_limits"][name]["permits"] <= most


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
@pytest.mark.parametrize("capacity", [None, 39, 500, "1 MB"])
def test_calls_are_full_whatever_the_capacity_is(mode, capacity):
    sizes = []

    @sa.async_function("r long", batch=sa.Batch(13, linger="20s"))
    async def ask(rows):
        sizes.append(len(rows))
        await asyncio.sleep(0)
        return [{"r": row.id} for row in rows]

    wait = getattr(sa.arrow, f"{mode}_wait")
    out = wait({"id": list(range(1001))}, ask, max_concurrency=3, capacity=capacity, **COLD)

    assert sorted(out.to_table()["r"].to_pylist()) == list(range(1001))
    assert sizes == [13] * 77


def test_calls_of_many_channels_are_full_if_the_capacity_lets_them():
    sizes = collections.Counter()

    @sa.async_function("r long", batch=sa.Batch(13, linger="20s"))
    async def ask(rows):
        sizes[rows[0].tenant, len(rows)] += 1
        await asyncio.sleep(0)
        return [{"r": row.id} for row in rows]

    rows = {"id": list(range(1001)), "tenant": [it % 11 for it in range(1001)]}
    channel = sa.Channel("tenant", count=11)
    out = sa.arrow.unordered_wait(
        rows, ask, max_concurrency=2, capacity=999, channel=channel, **COLD
    )

    assert sorted(out.to_table()["r"].to_pylist()) == list(range(1001))
    assert sizes == {(tenant, 13): 7 for tenant in range(11)}


@pytest.mark.parametrize(("linger", "timeout"), [("307ms", "250ms"), ("251ms", "251ms")])
def test_company_that_is_waited_for_longer_than_rows_have_time_is_refused(linger, timeout):
    @sa.async_function("r long", batch=sa.Batch(7, linger=linger))
    async def ask(rows):
        return [{"r": row.id} for row in rows]

    with pytest.raises(sa.ConfigurationError) as raised:
        sa.arrow.unordered_wait({"id": [4711]}, ask, timeout=timeout)

    assert raised.value.kind == "batch-invalid"
    seconds = [f"{int(it[:-2]) / 1000:g} s" for it in (linger, timeout)]
    assert f"got {seconds[0]} and {seconds[1]}" in str(raised.value)


def test_a_row_that_needs_no_company_does_not_wait_for_any():
    @sa.async_function("r long", batch=sa.Batch(1, linger="1h"))
    async def ask(rows):
        return [{"r": row.id} for row in rows]

    out = sa.arrow.unordered_wait({"id": [4711]}, ask, timeout="30s")

    assert out.to_table()["r"].to_pylist() == [4711]
