# SPDX-License-Identifier: Apache-2.0
"""Calls that are started and given up again while the event loop is busy with something else."""

import asyncio
import threading

import pyarrow as pa
import pytest

import sparkawait as sa

ROWS = 41
CALLS = 3
OPTIONS = {"timeout": "30ms", "max_concurrency": CALLS, "capacity": CALLS}
OPTIONS |= {"on_error": "null", "tuning": sa.Tuning(buffer_timeout=0, warm_up=False)}


def input_of(rows):
    return [pa.record_batch({"x": pa.array(range(rows), pa.int64())})]


def late(goes_on, calls, batch=None):
    """A function whose first call blocks the loop; notes the rows that it is called for."""

    def answer(row):
        calls.append(row.x)
        if len(calls) == 1:
            assert goes_on.wait(20)
        return {"y": row.x}

    if batch is not None:

        @sa.async_function("y bigint", batch=batch)
        async def of_many(rows):
            return [answer(row) for row in rows]

        return of_many

    @sa.async_function("y bigint")
    async def of_one(row):
        return answer(row)

    return of_one


@pytest.mark.parametrize("batch", [None, sa.Batch(max_rows=1, linger=0)], ids=["row", "batch"])
def test_a_call_that_was_given_up_before_the_loop_saw_it_is_not_made(batch):
    goes_on, calls = threading.Event(), []
    function = late(goes_on, calls, batch)
    given_up, answers = [], {}
    for out in sa.arrow.unordered_wait(input_of(ROWS), function, **OPTIONS):
        for row in out.to_pylist():
            answers[row["x"]] = row["y"]
            if row["y"] is None and not goes_on.is_set():
                given_up.append(row["x"])
        if len(given_up) >= 13:
            goes_on.set()

    assert sorted(answers) == list(range(ROWS))
    assert len(calls) == len(set(calls))
    # The loop had as many before it was blocked.
    assert len(set(calls).intersection(given_up)) <= CALLS


def test_calls_that_were_given_up_do_not_add_to_those_at_a_time():
    goes_on, running, most = threading.Event(), set(), []

    @sa.async_function("y bigint")
    async def hang(row):
        running.add(row.x)
        most.append(len(running))
        try:
            if len(most) == 1:  # the loop is blocked until enough rows have timed out
                assert goes_on.wait(20)
            await asyncio.Event().wait()
        finally:
            running.discard(row.x)

    given_up = []
    for out in sa.arrow.unordered_wait(input_of(ROWS), hang, **OPTIONS):
        given_up += out.column("x").to_pylist()
        if len(given_up) >= 13:
            goes_on.set()

    assert sorted(given_up) == list(range(ROWS))
    assert max(most) <= CALLS


def test_a_call_that_waited_for_a_cancelled_one_begins_after_its_end(session, rows):
    gates, seen = {}, []

    @sa.async_function("y bigint")
    async def wait(row):
        seen.append(f"{row['x']} begins")
        gates[row["x"]] = asyncio.get_running_loop().create_future()
        try:
            return {"y": await gates[row["x"]]}
        finally:
            seen.append(f"{row['x']} ends")

    one = session(wait)
    one.run(*rows(2))
    # Whoever called for row 1 is free in the turn in which row 0 learns that it is cancelled.
    gates[1].set_result(1)
    one.port.send(rows(1, first=2), cancelled=[0])
    one.runner._on_readable()
    one.turn()
    assert seen.index("0 ends") < seen.index("2 begins")

    one.port.send(rows(1, first=3), cancelled=[2])
    one.port.send(cancelled=[3])
    one.runner._on_readable()
    one.runner._on_readable()
    one.turn()
    assert "3 begins" not in seen
