# SPDX-License-Identifier: Apache-2.0
"""Batched calls that raise because of some of their rows, with `Batch(split_on_error=True)`."""

import asyncio
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkawait import Batch, Channel, ConfigurationError, RetryAfter, arrow, retry
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker import batch_lines
from sparkawait.functions import async_function

SPLITTING = Batch(max_rows=1000, linger=0, split_on_error=True)


class RefusedError(Exception):
    """What clients raise for a 422: the rows are at fault."""

    status = 422


def poisoned(poison, batch=SPLITTING, error=RefusedError):
    """A function that fails with each row in `poison`, and the rows of its calls."""
    calls = []

    @async_function("y bigint", batch=batch)
    async def double(rows):
        numbers = [row["x"] for row in rows]
        calls.append(numbers)
        await asyncio.sleep(0)
        bad = sorted(poison.intersection(numbers))
        if bad:
            raise error(*bad[:1])
        return [{"y": 2 * number} for number in numbers]

    return double, calls


def test_the_row_at_fault_fails_alone(session, rows):
    function, calls = poisoned({5})

    port = session(function).run(*rows(8))

    assert list(port.failures) == [5]
    assert port.results == {i: [{"y": 2 * i}] for i in range(8) if i != 5}
    assert calls == [[*range(8)], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [6, 7], [4], [5]]


def test_an_outage_is_not_multiplied(session, rows):
    """Some rows are called for alone; if none is answered, the service is down."""
    calls = []

    @async_function("y bigint", batch=SPLITTING)
    async def down(rows):
        calls.append([row["x"] for row in rows])
        raise ConnectionError(len(calls))

    port = session(down).run(*rows(64), turns=200)

    assert calls == [[*range(64)], [0], [10], [20], [30], [40], [50]]
    told = {row: error.args[0] for row, (error, *_) in port.failures.items()}
    assert told == dict.fromkeys(range(64), 1) | {0: 2, 10: 3, 20: 4, 30: 5, 40: 6, 50: 7}
    # An attempt begins with the call that is for its row, and with no other one.
    assert port.begun == calls
    assert {port.left_out.count(row) for row in (0, 10, 20, 30, 40, 50)} == {*range(6)}
    assert port.left_out.count(63) == 6


@pytest.mark.parametrize(
    ("poison", "alone"), [({5}, [[0]]), ({0}, [[0], [2]]), ({0, 2, 7}, [[0], [2], [4]])]
)
def test_once_a_row_is_answered_the_others_are_at_fault(session, rows, poison, alone):
    function, calls = poisoned(poison, error=ValueError)

    port = session(function).run(*rows(8), turns=100)

    assert set(port.failures) == poison
    assert {row: error.args for row, (error, *_) in port.failures.items()} == {
        row: (row,) for row in poison
    }
    assert port.results == {i: [{"y": 2 * i}] for i in range(8) if i not in poison}
    assert calls[: len(alone) + 1] == [[*range(8)], *alone]
    assert len(calls[len(alone) + 1]) == (8 - len(alone)) // 2


def test_a_service_that_asks_to_wait_meanwhile_is_asked_no_more(session, rows):
    calls = []

    @async_function("y bigint", batch=SPLITTING)
    async def busy(rows):
        calls.append(len(rows))
        raise ValueError if len(calls) == 1 else RetryAfter("7s")

    port = session(busy).run(*rows(13), turns=100)

    assert calls == [13, 1]
    assert len(port.failures) == 13


def test_rows_that_nobody_waits_for_are_not_called_for_alone(session, rows):
    gates, calls = [], []

    @async_function("y bigint", batch=SPLITTING)
    async def wait(rows):
        calls.append([row["x"] for row in rows])
        gates.append(asyncio.get_running_loop().create_future())
        await gates[-1]
        return [{"y": row["x"]} for row in rows]

    one = session(wait)
    one.run(*rows(8))
    gates[0].set_exception(ValueError())
    one.turn()
    port = one.run(cancelled=[2, 3])
    gates[1].set_exception(ValueError())
    one.turn()
    assert calls[1:] == [[0], [4]]
    one.run(cancelled=[5, 6, 7])
    gates[2].set_result(None)
    one.turn()

    assert calls[3:] == [[1]]
    gates[3].set_result(None)
    one.turn()
    assert sorted(port.results) == [1, 4]
    assert sorted(port.failures) == [0]


def test_a_row_whose_own_call_takes_too_long_is_one_that_was_not_answered(session, rows):
    """Its attempt has a time of its own, which ends its call, and no call of the others."""
    gates, calls = [], []

    @async_function("y bigint", batch=SPLITTING)
    async def wait(rows):
        calls.append([row["x"] for row in rows])
        gates.append(asyncio.get_running_loop().create_future())
        await gates[-1]
        return [{"y": row["x"]} for row in rows]

    one = session(wait)
    one.run(*rows(8))
    gates[0].set_exception(ValueError())
    one.turn()
    one.run(cancelled=[0])
    assert gates[1].cancelled()
    gates[2].set_result(None)
    one.turn()
    for gate in gates[3:]:
        gate.set_result(None)
    one.turn()

    assert calls == one.port.begun == [[*range(8)], [0], [2], [1, 3, 4], [5, 6, 7]]
    assert sorted(one.port.results) == [*range(1, 8)]
    assert one.port.failures == {}


def test_without_it_all_rows_of_the_call_fail(session, rows):
    function, calls = poisoned({5}, Batch(max_rows=1000, linger=0))

    port = session(function).run(*rows(8))

    assert sorted(port.failures) == [*range(8)]
    assert len(calls) == 1


@pytest.mark.parametrize("raised", [RetryAfter, asyncio.CancelledError, SystemExit])
def test_what_is_no_rows_fault_is_not_split(session, rows, raised):
    function, calls = poisoned({5}, error=lambda _: raised("1s"))

    port = session(function).run(*rows(8))

    assert sorted(port.failures) == [*range(8)]
    assert len(calls) == 1


def test_a_service_that_asks_to_wait_is_not_asked_again(session, rows):
    class TooManyRequestsError(Exception):
        def __init__(self, row):
            super().__init__(row)
            self.headers = {"retry-after": "2"}

    function, calls = poisoned({0}, error=TooManyRequestsError)

    port = session(function, retry=retry.fixed_delay(1, "1s")).run(*rows(4))

    assert len(calls) == 1
    assert [delay for *_, delay in port.failures.values()] == [2.0] * 4


def test_a_call_with_too_few_results_is_not_split(session, rows):
    calls = []

    @async_function("y bigint", batch=SPLITTING)
    async def short(rows):
        calls.append(len(rows))
        return []

    port = session(short).run(*rows(8))

    assert sorted(port.failures) == [*range(8)]
    assert calls == [8]


def test_the_failure_of_the_row_alone_asks_for_a_retry(session, rows):
    function, _ = poisoned({2})

    port = session(function, retry=retry.fixed_delay(3, "1s")).run(*rows(4))

    error, _, asks, _ = port.failures[2]
    assert (error.args, asks) == ((2,), True)
    assert sorted(port.results) == [0, 1, 3]


def test_the_parts_take_the_place_of_their_call(session, rows):
    """Nothing else starts beside them that `max_concurrency` would not let start."""
    running, most = [0], [0]

    @async_function("y bigint", batch=Batch(max_rows=4, linger=0, split_on_error=True))
    async def count(rows):
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        running[0] -= 1
        if any(row["x"] % 3 == 0 for row in rows):
            raise ValueError
        return [{"y": row["x"]} for row in rows]

    port = session(count, capacity=100, max_concurrency=2).run(*rows(24), turns=200)

    assert sorted(port.failures) == [*range(0, 24, 3)]
    assert len(port.results) == 16
    assert most == [2]


def test_rows_that_nobody_waits_for_are_not_asked_for_again(session, rows):
    gate, calls = [], []

    @async_function("y bigint", batch=SPLITTING)
    async def wait(rows):
        calls.append([row["x"] for row in rows])
        gate.append(asyncio.get_running_loop().create_future())
        await gate[-1]
        return [{"y": row["x"]} for row in rows]

    one = session(wait)
    one.run(*rows(8))
    one.run(cancelled=[0, 1, 6])
    gate[0].set_exception(RefusedError())
    one.turn()
    assert calls[1:] == [[2, 3], [4, 5, 7]]

    # A part that nobody waits for is cancelled, and the others go on.
    port = one.run(cancelled=[2, 3])
    assert gate[1].cancelled()
    gate[2].set_result(None)
    one.turn()

    assert sorted(port.results) == [4, 5, 7]
    assert port.failures == {}


def returning(session, poison, **options):
    """A function that fails with rows in `poison`; rows come back when the test sends them."""
    function, calls = poisoned(poison, **options)
    one = session(function)
    one.port.gives_back = False
    return one, calls


def test_rows_of_a_part_wait_for_one_another_and_for_no_others(session, rows, attempts):
    batch = Batch(max_rows=8, linger="1h", split_on_error=True)
    one, calls = returning(session, {5}, batch=batch)
    first = rows(8)
    one.run(*first)
    assert one.port.parts == [[0, 1, 2, 3], [4, 5, 6, 7]]

    # They come back as their limits let them, among other rows.
    others = rows(2, first=8)
    one.run(*attempts(2, first, [0, 1, 4]), others[0])
    assert calls[1:] == []
    one.run(*attempts(2, first, [5, 6, 7]), others[1])
    assert calls[1:] == [[4, 5, 6, 7]]
    one.run(*attempts(2, first, [2, 3]))
    assert calls[2:] == [[0, 1, 2, 3]]
    assert sorted(one.port.results) == [0, 1, 2, 3]


def test_a_part_goes_out_without_rows_that_do_not_come_back_in_time(session, rows, attempts):
    batch = Batch(max_rows=8, linger="1h", split_on_error=True)
    one, calls = returning(session, {5}, batch=batch)
    first = rows(8)
    one.run(*first)
    one.run(*attempts(2, first, [4, 5, 7]))
    assert calls[1:] == []

    # The row 6 has timed out, say.
    one.runner._on_timer()
    one.turn()
    assert calls[1:] == [[4, 5, 7]]
    assert one.port.parts[2:] == [[4], [5, 7]]

    # One that comes later after all goes alone.
    one.run(*attempts(2, first, [6]))
    assert calls[2:] == [[6]]


def test_a_row_of_a_part_that_is_cancelled_while_it_waits_is_taken_out(session, rows, attempts):
    batch = Batch(max_rows=8, linger="1h", split_on_error=True)
    one, calls = returning(session, {5}, batch=batch)
    first = rows(8)
    one.run(*first)
    one.run(*attempts(2, first, [0, 1, 2]))
    one.run(cancelled=[0, 2])
    one.run(*attempts(2, first, [3]))

    assert calls[1:] == [[1, 3]]


def test_parts_of_a_channel_wait_for_its_calls(session, rows):
    gates, calls = [], []

    @async_function("y bigint", batch=Batch(max_rows=4, linger=0, split_on_error=True))
    async def wait(rows):
        calls.append([row["x"] for row in rows])
        gates.append(asyncio.get_running_loop().create_future())
        await gates[-1]
        return [{"y": row["x"]} for row in rows]

    channel = Channel("x", max_per_channel=4)
    one = session(wait, capacity=8, max_concurrency=2, channel=channel)
    part, other = rows(4), rows(1, first=9)
    for row in (*part, *other):
        row.__sparkawait_channel__ = row["x"] // 9
    one.run(*part)
    gates[0].set_exception(RefusedError())
    one.turn()
    assert calls[1:] == [[0, 1]], "the channel has one call at a time"
    one.run(*other)
    assert calls[2:] == [[9]]
    gates[1].set_result(None)
    one.turn()
    assert calls[3:] == [[2, 3]]
    gates[2].set_result(None)
    gates[3].set_result(None)
    one.turn()
    assert sorted(one.port.results) == [0, 1, 2, 3, 9]
    assert one.runner._lines == {}


def test_rows_that_never_come_back_are_forgotten_oldest_first(session, rows, attempts, monkeypatch):
    monkeypatch.setattr(batch_lines, "_MOST_DIVIDED", 7)
    one, calls = returning(session, {0, 4, 8})
    first = rows(12)
    for at in (0, 4, 8):
        one.run(*first[at : at + 4])

    assert len(one.runner._divided._lines) == 7
    one.run(*attempts(2, first, [0, 4, 5]))
    assert sorted(calls[3:]) == [[0, 4], [5]]


def test_the_call_ends_when_nobody_waits_for_any_part(session, rows):
    gate, calls = [], []

    @async_function("y bigint", batch=SPLITTING)
    async def wait(rows):
        calls.append(len(rows))
        gate.append(asyncio.get_running_loop().create_future())
        await gate[-1]

    one = session(wait)
    one.run(*rows(4))
    gate[0].set_exception(RefusedError())
    one.turn()
    one.run(cancelled=[0, 1, 2, 3])

    assert gate[1].cancelled()
    assert gate[2].cancelled()
    assert calls == [4, 2, 2]
    assert one.runner._calls == set()


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_it_is_a_bool(value):
    with pytest.raises(ConfigurationError, match=r"`split_on_error` must be a bool"):
        Batch(split_on_error=value)


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    max_examples=60,
)
@given(data=st.data(), count=st.integers(1, 60))
def test_exactly_the_rows_at_fault_fail(session, rows, data, count):
    poison = data.draw(st.sets(st.integers(0, count - 1)))
    function, calls = poisoned(poison)

    port = session(function).run(*rows(count), turns=8 * count + 20)

    assert set(port.failures) == poison
    assert set(port.results) == set(range(count)) - poison
    assert len(calls) <= 2 * count - 1
    # Two more calls in each round of halving, for each row at fault.
    rounds = (count - 1).bit_length()
    assert len(calls) <= 1 + 2 * rounds * len(poison)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(data=st.data(), count=st.integers(1, 40))
def test_whatever_is_raised_rows_fail_that_must_and_no_others_of_a_service_that_is_well(
    session, rows, data, count
):
    poison = data.draw(st.sets(st.integers(0, count - 1)))
    function, calls = poisoned(poison, error=ValueError)

    port = session(function).run(*rows(count), turns=8 * count + 40)

    is_down = poison and all(it in poison for it in batch_lines.asked_alone(count))
    assert set(port.failures) == (set(range(count)) if is_down else poison)
    assert set(port.results) == set(range(count)) - set(port.failures)
    assert len(calls) <= 2 * count + 6


@pytest.mark.parametrize("poison", [{5}, {0, 11}, set(range(13)), set()])
def test_record_batches_are_divided_alike(poison):
    import pyarrow as pa

    calls = []

    @async_function("y bigint", batch=Batch(max_rows=13, arrow=True, split_on_error=True))
    async def double(batch):
        numbers = batch["x"].to_pylist()
        calls.append(numbers)
        if bad := sorted(poison.intersection(numbers)):
            raise ValueError(*bad[:1])
        return pa.record_batch({"y": [2 * it for it in numbers]})

    batch = pa.record_batch({"x": range(13)})
    out = arrow.ordered_wait([batch], double, on_error="capture", retry=0).to_table()

    assert out["y"].to_pylist() == [None if it in poison else 2 * it for it in range(13)]
    if len(poison) == 13:
        assert calls == [[*range(13)], [0], [4], [8]]


def test_in_a_task_rows_are_found_and_tried_again():
    import pyarrow as pa

    left = {3: 2, 11: 1}

    @async_function("y bigint", batch=SPLITTING)
    async def flaky(rows):
        for row in rows:
            if left.get(row.x, 0):
                if len(rows) == 1:
                    left[row.x] -= 1
                msg = f"row {row.x}"
                raise ValueError(msg)
        return [{"y": row.x} for row in rows]

    batch = pa.RecordBatch.from_pydict({"x": list(range(16))})
    again = retry.fixed_delay(2, "1ms")
    waited = arrow.ordered_wait([batch], flaky, retry=again, timeout="60s", capacity=16)
    out = pa.Table.from_batches(waited)

    assert out["y"].to_pylist() == list(range(16))
    assert left == {3: 0, 11: 0}


@pytest.mark.parametrize("error", [RefusedError, ValueError])
def test_the_calls_of_parts_are_no_retries(caplog, error):
    import pyarrow as pa

    function, calls = poisoned({0, 5, 13, 20}, error=error)
    totals = {}
    options = {"mode": "ordered", "input_schema": None, "on_error": "capture"}
    plan = resolve_unpickled(function=function, **options)
    rows = pa.record_batch({"x": list(range(21))})

    with caplog.at_level(logging.WARNING, "sparkawait"):
        out = list(arrow.run(plan, iter([rows]), on_metrics=totals.update))

    values = [row["y"] for batch in out for row in batch.to_pylist()]
    assert values == [None if x in {0, 5, 13, 20} else 2 * x for x in range(21)]
    assert (totals["attempts"], totals["retries"]) == (sum(map(len, calls)), 0)
    assert totals["attempts"] > 2 * 21
    assert not [it for it in caplog.messages if "made again" in it]
