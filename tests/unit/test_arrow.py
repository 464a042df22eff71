# SPDX-License-Identifier: Apache-2.0
"""The wait functions over record batches, with the real operator and event loop."""

import asyncio
import gc
import threading

import pyarrow as pa
import pytest

from sparkawait import (
    AsyncFunction,
    AsyncFunctionError,
    Batch,
    ConfigurationError,
    ElementTimeoutError,
    ErrorKind,
    ResultError,
    RetryAfter,
    arrow,
    async_function,
    retry,
)
from sparkawait.event_loop import event_loop_thread
from sparkawait.options import resolve_unpickled

WAITS = [arrow.ordered_wait, arrow.unordered_wait]
FOREVER = "1h"


@async_function("y bigint")
async def double(row):
    return {"y": 2 * row["x"]}


@async_function("y bigint")
async def hang(row):
    await asyncio.Event().wait()


def batches(*lengths):
    start = 0
    for length in lengths:
        yield pa.record_batch({"x": pa.array(range(start, start + length), pa.int64())})
        start += length


def rows_of(results):
    return [row for batch in results for row in batch.to_pylist()]


def failing(error, *, times=10**9):
    """A function that raises for row 1, so many times, and the attempts it saw."""
    attempts = []

    @async_function("y bigint")
    async def fail(row):
        attempts.append(row["x"])
        if row["x"] == 1 and attempts.count(1) <= times:
            raise error
        return {"y": row["x"]}

    return fail, attempts


# -- order and content


@pytest.mark.parametrize("wait", WAITS)
def test_every_row_is_emitted_once_with_its_result(wait):
    results = rows_of(wait(batches(3, 0, 500, 1), double))
    assert sorted(row["x"] for row in results) == list(range(504))
    assert all(row["y"] == 2 * row["x"] for row in results)


def test_ordered_wait_keeps_the_order_of_the_input():
    @async_function("y bigint")
    async def backwards(row):
        for _ in range(100 - row["x"]):
            await asyncio.sleep(0)
        return {"y": 0}

    results = rows_of(arrow.ordered_wait(batches(100), backwards))
    assert [row["x"] for row in results] == list(range(100))


def test_unordered_wait_emits_rows_as_they_complete():
    gate = asyncio.Event()

    @async_function("y bigint")
    async def first_waits_for_last(row):
        if row["x"] == 0:
            await gate.wait()
        if row["x"] == 9:
            gate.set()
        return {"y": 0}

    results = rows_of(arrow.unordered_wait(batches(10), first_waits_for_last))
    assert [row["x"] for row in results] == [*range(1, 10), 0]


def test_key_ordered_wait_makes_one_call_at_a_time_per_key():
    running, seen = set(), []

    @async_function("y bigint")
    async def exclusive(row):
        key = row["x"] % 3
        assert key not in running
        running.add(key)
        await asyncio.sleep(0)
        running.discard(key)
        seen.append(row["x"])
        return {"y": 0}

    source = [pa.record_batch({"x": list(range(60)), "k": [i % 3 for i in range(60)]})]
    results = rows_of(arrow.key_ordered_wait(source, exclusive, key="k"))
    assert len(results) == 60
    for key in range(3):
        assert [x for x in seen if x % 3 == key] == list(range(key, 60, 3))


def test_a_row_is_a_mapping_of_its_cells():
    seen = {}

    @async_function("y bigint")
    async def look(row):
        seen.update(row)
        assert (len(row), list(row), "a" in row, row.get("z", 5)) == (2, ["a", "b"], True, 5)
        with pytest.raises(KeyError):
            row["z"]
        return {"y": 1}

    source = [pa.record_batch({"a": [[1, None]], "b": [{"c": "text"}]})]
    list(arrow.ordered_wait(source, look))
    assert seen == {"a": [1, None], "b": {"c": "text"}}


def test_lists_of_results_multiply_or_drop_rows():
    @async_function("y bigint")
    async def repeat(row):
        return [{"y": i} for i in range(row["x"])]

    results = rows_of(arrow.ordered_wait(batches(4), repeat))
    expected = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert [(row["x"], row["y"]) for row in results] == expected


def test_output_replace_leaves_the_input_out():
    results = rows_of(arrow.ordered_wait(batches(2), double, output="replace"))
    assert results == [{"y": 0}, {"y": 2}]


def test_batches_hold_no_more_than_max_rows():
    results = list(arrow.ordered_wait(batches(10), double, max_rows_per_batch=4))
    assert max(batch.num_rows for batch in results) <= 4


def test_no_input_gives_no_output_and_opens_nothing():
    class Never(AsyncFunction):
        schema = "y bigint"

        def open(self, context):
            raise AssertionError

        async def async_invoke(self, row):
            raise AssertionError

    assert list(arrow.ordered_wait([], Never())) == []


def test_empty_batches_give_no_output():
    assert rows_of(arrow.ordered_wait(batches(0, 0), double)) == []


def test_a_batched_function_answers_every_row():
    sizes = []

    @async_function("y bigint", batch=Batch(max_rows=10))
    async def double_all(rows):
        sizes.append(len(rows))
        return [{"y": 2 * row["x"]} for row in rows]

    results = rows_of(arrow.ordered_wait(batches(50), double_all))
    assert [row["y"] for row in results] == list(range(0, 100, 2))
    assert max(sizes) == 10


# -- checks at the call


@pytest.mark.parametrize("wait", WAITS)
def test_a_wrong_argument_is_refused_before_any_row_is_pulled(wait):
    pulled = []

    def source():
        pulled.append(1)
        yield from batches(1)

    with pytest.raises(ConfigurationError, match="`capacity` must be at least 1, got 0"):
        wait(source(), double, capacity=0)
    assert pulled == []


def test_a_column_that_the_input_has_already_is_refused_by_the_iterator():
    results = arrow.ordered_wait(batches(1), double, schema="x bigint")
    with pytest.raises(ConfigurationError, match="`x` is already a column"):
        next(results)


# -- failures


@pytest.mark.parametrize("wait", WAITS)
def test_a_failure_raises_with_the_users_exception_as_its_cause(wait):
    error = ValueError("bad row")
    function, _ = failing(error)
    with pytest.raises(AsyncFunctionError) as info:
        list(wait(batches(5), function))
    assert info.value.__cause__ is error
    assert (info.value.kind, info.value.attempts) == (ErrorKind.USER_FUNCTION_FAILED, 1)
    assert "bad row" not in str(info.value)


def test_a_result_that_does_not_fit_raises_result_error():
    @async_function("y bigint")
    async def nothing(row):
        return None

    with pytest.raises(ResultError, match="return a mapping") as info:
        list(arrow.ordered_wait(batches(1), nothing))
    assert info.value.kind is ErrorKind.RESULT_IS_NONE


def test_on_error_null_empties_the_columns_of_the_row():
    function, _ = failing(OSError("down"))
    results = rows_of(arrow.ordered_wait(batches(3), function, on_error="null"))
    assert [row["y"] for row in results] == [0, None, 2]


def test_on_error_drop_leaves_the_row_out():
    function, _ = failing(OSError("down"))
    results = rows_of(arrow.ordered_wait(batches(3), function, on_error="drop"))
    assert [row["x"] for row in results] == [0, 2]


def test_on_error_capture_tells_what_happened():
    function, _ = failing(OSError("down"))
    strategy = retry.fixed_delay(2, 0)
    options = {"on_error": "capture", "retry": strategy}
    results = rows_of(arrow.ordered_wait(batches(3), function, **options))
    assert [row["error"] is None for row in results] == [True, False, True]
    error = results[1]["error"]
    assert error["kind"] in ("user-function-failed", "retries-exhausted")
    assert error["message"] == "OSError: down"
    assert error["attempts"] == 3


def test_a_failed_attempt_is_retried():
    function, attempts = failing(OSError("down"), times=2)
    results = rows_of(arrow.ordered_wait(batches(3), function, retry=retry.fixed_delay(2, 0)))
    assert [row["y"] for row in results] == [0, 1, 2]
    assert attempts.count(1) == 3


def test_retry_after_waits_for_its_own_delay():
    function, attempts = failing(RetryAfter(0), times=1)
    strategy = retry.fixed_delay(1, "30 min")
    results = rows_of(arrow.ordered_wait(batches(2), function, retry=strategy, timeout=FOREVER))
    assert len(results) == 2
    assert attempts.count(1) == 2


def test_an_empty_result_is_retried_if_asked_for():
    calls = []

    @async_function("y bigint")
    async def sometimes_empty(row):
        calls.append(row["x"])
        return [] if len(calls) == 1 else {"y": 7}

    strategy = retry.fixed_delay(1, 0, if_result=retry.if_empty)
    results = rows_of(arrow.ordered_wait(batches(1), sometimes_empty, retry=strategy))
    assert results == [{"x": 0, "y": 7}]


def test_the_input_fails_the_task_with_its_own_exception():
    def source():
        yield from batches(1)
        raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire"):
        list(arrow.ordered_wait(source(), double))


# -- timeouts


@pytest.mark.parametrize("wait", WAITS)
def test_a_row_that_takes_too_long_fails_the_task(wait):
    with pytest.raises(ElementTimeoutError) as info:
        list(wait(batches(1), hang, timeout="10ms"))
    assert info.value.kind is ErrorKind.ELEMENT_TIMED_OUT


def test_on_timeout_gives_results_instead():
    results = arrow.ordered_wait(batches(2), hang, timeout="10ms", on_timeout={"y": -1})
    assert [row["y"] for row in rows_of(results)] == [-1, -1]


def test_the_functions_own_timeout_gives_results_instead():
    class Slow(AsyncFunction):
        schema = "y bigint"

        async def async_invoke(self, row):
            await asyncio.Event().wait()

        def timeout(self, row):
            return [{"y": row["x"]}, {"y": -1}]

    results = rows_of(arrow.ordered_wait(batches(2), Slow(), timeout="10ms"))
    assert [row["y"] for row in results] == [0, -1, 1, -1]


def test_a_timeout_cancels_the_call():
    cancelled = threading.Event()

    @async_function("y bigint")
    async def slow(row):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    list(arrow.ordered_wait(batches(1), slow, timeout="10ms", on_error="drop"))
    assert cancelled.is_set()


def test_an_attempt_that_takes_too_long_is_retried():
    calls = []

    @async_function("y bigint")
    async def slow_once(row):
        calls.append(1)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return {"y": 1}

    options = {"attempt_timeout": "10ms", "retry": retry.fixed_delay(1, 0)}
    assert rows_of(arrow.ordered_wait(batches(1), slow_once, **options)) == [{"x": 0, "y": 1}]


# -- the life cycle


class Recorded(AsyncFunction):
    schema = "y bigint"

    def __init__(self, hang_after=10**9, **errors):
        self.events = []
        self.hang_after = hang_after
        self.errors = errors

    def note(self, event):
        self.events.append((event, threading.current_thread().name))
        if event in self.errors:
            raise self.errors[event]

    async def open(self, context):
        self.context = context
        self.note("open")

    async def async_invoke(self, row):
        self.note("call")
        if self.steps.count("call") > self.hang_after:
            try:
                await asyncio.Event().wait()
            finally:
                self.note("cancelled")
        return {"y": 1}

    def close(self):
        self.note("close")

    @property
    def steps(self):
        return [step for step, _ in self.events]


def test_open_calls_and_close_run_on_the_loop_thread_in_this_order():
    function = Recorded()
    list(arrow.ordered_wait(batches(2), function))
    assert function.steps == ["open", "call", "call", "close"]
    assert {thread for _, thread in function.events} == {"sparkawait-loop"}


def test_an_open_that_fails_fails_the_task_before_any_call():
    function = Recorded(open=OSError("refused"))
    with pytest.raises(AsyncFunctionError, match=r"`Recorded.open` failed") as info:
        list(arrow.ordered_wait(batches(2), function))
    assert info.value.kind is ErrorKind.OPEN_FAILED
    assert isinstance(info.value.__cause__, OSError)
    assert function.steps == ["open", "close"]


def test_a_close_that_fails_fails_the_task_after_its_last_row():
    results = arrow.ordered_wait(batches(2), Recorded(close=OSError("broken")))
    received = []
    with pytest.raises(AsyncFunctionError) as info:
        received.extend(results)
    assert info.value.kind is ErrorKind.CLOSE_FAILED
    assert sum(batch.num_rows for batch in received) == 2


def test_a_close_that_fails_does_not_hide_the_failure_of_the_task():
    function = Recorded(call=ValueError("first"), close=OSError("second"))
    with pytest.raises(AsyncFunctionError) as info:
        list(arrow.ordered_wait(batches(2), function))
    assert isinstance(info.value.__cause__, ValueError)
    assert function.steps[-1] == "close"


def endless():
    while True:
        yield from batches(10)


def test_closing_the_output_cancels_calls_and_closes_the_function():
    function = Recorded(hang_after=1)
    results = arrow.unordered_wait(endless(), function, timeout=None, buffer_timeout=0)
    next(results)
    results.close()
    assert function.steps.count("cancelled") == function.steps.count("call") - 1 > 0
    assert function.steps[-1] == "close"


def test_an_output_that_is_abandoned_cleans_up():
    function = Recorded()
    results = arrow.ordered_wait(endless(), function, max_rows_per_batch=1)
    next(results)
    del results
    gc.collect()
    assert function.steps[-1] == "close"


def test_an_output_that_is_abandoned_on_the_loops_thread_does_not_dead_lock():
    closed = threading.Event()

    class Notifies(Recorded):
        def close(self):
            closed.set()

    holder = [arrow.ordered_wait(endless(), Notifies(), max_rows_per_batch=1)]
    next(holder[0])

    async def drop():
        holder.clear()

    event_loop_thread().run(drop(), 5)
    assert closed.wait(5)


def test_two_tasks_share_the_loop_at_the_same_time():
    first = arrow.ordered_wait(batches(*[1] * 50), double, max_rows_per_batch=1)
    second = arrow.ordered_wait(batches(*[1] * 50), double, max_rows_per_batch=1)
    for _ in range(50):
        assert next(first).to_pylist() == next(second).to_pylist()


# -- metrics


def test_metrics_hold_the_operators_and_the_functions_numbers():
    class Counting(Recorded):
        async def async_invoke(self, row):
            self.context.add_metric("hits", 2)
            return {"y": 1}

    plan = resolve_unpickled("ordered", Counting(), input_schema=None)
    reports = []
    list(arrow.run(plan, batches(5), partition=3, on_metrics=reports.append))
    assert reports[-1]["admitted"] == reports[-1]["emitted"] == 5
    assert reports[-1]["function.hits"] == 10


def test_the_function_is_told_its_partition():
    function = Recorded()
    plan = resolve_unpickled("ordered", function, input_schema=None)
    list(arrow.run(plan, batches(1), partition=3))
    assert function.context.partition == 3
    assert function.context.task_name == "Recorded (3)"
