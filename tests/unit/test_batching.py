# SPDX-License-Identifier: Apache-2.0
"""Calls of `async_invoke_batch`: how rows are collected and answered."""

import asyncio

import pytest

from sparkawait import AsyncFunction, Batch, Channel
from sparkawait._worker.batching import CallSize
from sparkawait.exceptions import ErrorKind, ResultError
from sparkawait.functions import async_function


def recording(batch, calls=None):
    calls = [] if calls is None else calls

    @async_function("y bigint", batch=batch)
    async def double(rows):
        calls.append([row["x"] for row in rows])
        return [{"y": 2 * row["x"]} for row in rows]

    return double, calls


def gated(batch):
    """A batched function whose calls wait for their gates, in order of the calls."""
    gates = []

    @async_function("y bigint", batch=batch)
    async def wait(rows):
        gates.append(asyncio.get_running_loop().create_future())
        await gates[-1]
        return [{"y": row["x"]} for row in rows]

    return wait, gates


def test_full_batches_are_called_at_once(session, rows):
    function, calls = recording(Batch(max_rows=2, linger="1h"))
    port = session(function).run(*rows(5))
    assert calls == [[0, 1], [2, 3]]
    assert port.results == {i: [{"y": 2 * i}] for i in range(4)}


def test_rows_wait_for_company_no_longer_than_linger(session, rows):
    function, calls = recording(Batch(max_rows=100, linger=0))
    session(function).run(*rows(3))
    assert calls == [[0, 1, 2]]


def test_linger_counts_from_the_oldest_row(session, rows):
    function, calls = recording(Batch(max_rows=100, linger="1h"))
    one = session(function)
    one.run(*rows(1))
    one.run(*rows(1, first=1))
    assert calls == []
    assert one.runner._timer is not None

    one.runner._on_timer()
    one.turn()
    assert calls == [[0, 1]]


def test_a_batch_is_not_expected_to_grow_past_the_capacity(session, rows):
    function, calls = recording(Batch(max_rows=100, linger="1h"))
    session(function, capacity=3).run(*rows(3))
    assert calls == [[0, 1, 2]]


def test_a_batch_is_sent_when_it_has_max_bytes(session, rows):
    function, calls = recording(Batch(max_rows=100, max_bytes=20, linger="1h"))
    session(function).run(*rows(6))  # 8 bytes a row
    assert calls == [[0, 1], [2, 3]]


def test_a_row_larger_than_max_bytes_is_sent_alone(session, rows):
    function, calls = recording(Batch(max_rows=100, max_bytes=1, linger="1h"))
    session(function).run(*rows(2))
    assert calls == [[0], [1]]


def test_max_concurrency_bounds_the_calls_in_flight(session, rows):
    function, gates = gated(Batch(max_rows=1))
    one = session(function, max_concurrency=2)
    one.run(*rows(5))
    assert len(gates) == 2

    gates[0].set_result(None)
    one.turn()
    assert len(gates) == 3


@pytest.mark.parametrize(
    ("results", "kind"),
    [
        (None, ErrorKind.RESULT_IS_NONE),
        ({"y": 1}, ErrorKind.RESULT_NOT_A_LIST),
        ([{"y": 1}], ErrorKind.BATCH_RESULT_COUNT_MISMATCH),
    ],
    ids=["none", "mapping", "too-few"],
)
def test_results_that_are_not_one_per_row_fail_every_row(session, rows, results, kind):
    @async_function("y bigint", batch=Batch(max_rows=2))
    async def wrong(rows):
        return results

    port = session(wrong).run(*rows(2))
    assert sorted(port.failures) == [0, 1]
    assert all(isinstance(error, ResultError) for error, *_ in port.failures.values())
    assert {found for _, found, _, _ in port.failures.values()} == {kind.value}


def test_a_result_that_does_not_fit_fails_its_row_alone(session, rows):
    @async_function("y bigint not null", batch=Batch(max_rows=3))
    async def mixed(rows):
        return [{"y": 1}, None, [{"y": 2}, {"y": 3}]]

    port = session(mixed).run(*rows(3))
    assert port.results == {0: [{"y": 1}], 2: [{"y": 2}, {"y": 3}]}
    assert port.failures[1][1] == "result-schema-mismatch"


@pytest.mark.parametrize("error", [OSError(), asyncio.CancelledError(), SystemExit()], ids=repr)
def test_an_exception_fails_every_row_of_the_batch(session, rows, error):
    @async_function("y bigint", batch=Batch(max_rows=2))
    async def fail(rows):
        raise error

    port = session(fail).run(*rows(2))
    assert [port.failures[i][0] for i in (0, 1)] == [error, error]


def test_a_cancelled_row_leaves_its_batch_running(session, rows):
    function, gates = gated(Batch(max_rows=2))
    one = session(function)
    one.run(*rows(2))
    one.run(cancelled=[0])
    gates[0].set_result(None)
    assert one.run().results == {1: [{"y": 1}]}


def test_a_call_is_cancelled_when_all_its_rows_are(session, rows):
    function, gates = gated(Batch(max_rows=2))
    one = session(function)
    one.run(*rows(2))
    port = one.run(cancelled=[0, 1])
    assert gates[0].cancelled()
    assert port.failures == {}


def test_a_call_that_is_cancelled_before_its_first_step_makes_room_for_the_next(session, rows):
    function, calls = recording(Batch(max_rows=1))
    one = session(function, max_concurrency=1)
    one.port.send(rows(1))
    one.port.send(cancelled=[0])
    # In one turn of the loop: the task of the call has not begun.
    one.runner._on_readable()
    one.runner._on_readable()
    one.turn()
    assert calls == []

    port = one.run(*rows(3, first=1))

    assert calls == [[1], [2], [3]]
    assert sorted(port.results) == [1, 2, 3]


def test_calls_of_a_channel_that_are_cancelled_before_their_first_step_leave_it_free(session, rows):
    function, calls = recording(Batch(max_rows=1))
    sent = rows(8)
    for row in sent:
        row.__sparkawait_channel__ = row["x"] % 2
    channel = Channel("x", max_per_channel=1)
    one = session(function, channel=channel, capacity=4, max_concurrency=4)
    for first in range(0, 6, 2):
        one.port.send(sent[first : first + 2])
        one.port.send(cancelled=[first, first + 1])
        one.runner._on_readable()
        one.runner._on_readable()
        one.turn()

    one.run(*sent[6:])

    assert calls == [[6], [7]]
    assert one.runner._lines == {}


def test_a_cancelled_row_that_waits_is_taken_out(session, rows):
    function, calls = recording(Batch(max_rows=3, linger="1h"))
    one = session(function)
    one.run(*rows(2))
    one.run(*rows(2, first=2), cancelled=[0])
    assert calls == [[1, 2, 3]]


def test_closing_cancels_calls_and_drops_rows_that_wait(session, rows):
    function, gates = gated(Batch(max_rows=2, linger="1h"))
    one = session(function)
    one.run(*rows(3))
    one.close()
    assert gates[0].cancelled()
    assert (one.port.results, one.port.failures) == ({}, {})


def test_a_call_that_would_begin_behind_the_end_of_the_task_is_not_made(session, rows):
    function, calls = recording(Batch(max_rows=1))
    one = session(function)
    one.run(*rows(1))
    one.port.has_ended = True
    one.run(*rows(1, first=1))
    assert calls == [[0]]


def test_the_class_form_is_called_with_batches(session, rows):
    class Double(AsyncFunction):
        schema = "y bigint"
        batch = Batch(max_rows=2)

        async def async_invoke_batch(self, rows):
            return [{"y": row["x"]} for row in rows]

    assert session(Double()).run(*rows(2)).results == {0: [{"y": 0}], 1: [{"y": 1}]}


def test_rows_of_a_call_are_of_one_channel_and_channels_take_turns(session, rows):
    function, calls = recording(Batch(max_rows=2, linger="1h"))
    sent = rows(6)
    for row in sent:
        row.__sparkawait_channel__ = row["x"] % 2
    session(function, channel="x").run(*sent)
    assert calls == [[0, 2], [1, 3]]


def test_a_channel_has_its_share_of_the_calls(session, rows):
    function, gates = gated(Batch(max_rows=1, linger="1h"))
    sent = rows(8)
    for row in sent:
        row.__sparkawait_channel__ = int(row["x"] == 7)
    channel = Channel("x", max_per_channel=4)
    one = session(function, channel=channel, capacity=8, max_concurrency=4)
    one.run(*sent)

    # Two calls of the first channel, which has half of the rows, and the one of the other.
    assert len(gates) == 3
    gates[0].set_result(None)
    one.turn()
    assert len(gates) == 4


def test_cancelled_rows_leave_no_channel_behind(session, rows):
    function, _ = recording(Batch(max_rows=2, linger="1h"))
    (row,) = rows(1)
    row.__sparkawait_channel__ = 5
    one = session(function, channel="x")
    one.run(row)
    assert list(one.runner._lines) == [5]

    one.run(cancelled=[0])

    assert one.runner._lines == {}


def test_the_size_of_calls_follows_the_throughput_towards_a_target_latency():
    size = CallSize(100, target=0.5)
    size.answered(0, 1, 1.0)
    size.answered(20, 1, 1.125)
    assert size.rows == 100, "nothing was measured yet"

    size.answered(30, 2, 1.25)
    assert size.rows == 50, "200 rows a second for half a second over two calls"


def test_the_size_of_calls_stays_without_a_target():
    size = CallSize(100, target=None)
    for second in range(10):
        size.answered(1, 1, float(second))
    assert size.rows == 100
