# SPDX-License-Identifier: Apache-2.0
"""The wait functions over record batches, with the real operator and event loop."""

import asyncio

import pyarrow as pa
import pytest

from sparkawait import (
    AsyncFunction,
    Batch,
    ConfigurationError,
    RetryAfter,
    Tuning,
    arrow,
    async_function,
    retry,
)
from sparkawait._plan.plan import Plan
from sparkawait._values.results import ResultBuilder
from sparkawait.exceptions import AsyncFunctionError, ElementTimeoutError, ErrorKind, ResultError

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
        yield pa.RecordBatch.from_pydict({"x": pa.array(range(start, start + length), pa.int64())})
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

    source = [pa.RecordBatch.from_pydict({"x": list(range(60)), "k": [i % 3 for i in range(60)]})]
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

    source = [pa.RecordBatch.from_pydict({"a": [[1, None]], "b": [{"c": "text"}]})]
    list(arrow.ordered_wait(source, look))
    assert seen == {"a": [1, None], "b": {"c": "text"}}


def test_lists_of_results_multiply_or_drop_rows():
    @async_function("y bigint")
    async def repeat(row):
        return [{"y": i} for i in range(row["x"])]

    results = rows_of(arrow.ordered_wait(batches(4), repeat))
    expected = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert [(row["x"], row["y"]) for row in results] == expected


def test_batches_hold_no_more_than_max_rows():
    results = list(arrow.ordered_wait(batches(10), double, tuning=Tuning(max_rows=4)))
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

    with pytest.raises(ConfigurationError, match="`capacity` must be an int of at least 1, got 0"):
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
    @async_function("y bigint, z bigint")
    async def nothing(row):
        return None

    with pytest.raises(ResultError, match="return a mapping") as info:
        list(arrow.ordered_wait(batches(1), nothing))
    assert info.value.kind is ErrorKind.RESULT_IS_NONE


def test_a_batch_of_results_that_is_refused_is_a_result_error_with_its_cause(monkeypatch):
    @async_function("y tinyint")
    async def large(row):
        return {"y": 300}

    wider = ResultBuilder(pa.schema([("y", pa.int64())]))
    monkeypatch.setattr(Plan, "result_builder", lambda _plan: wider)
    monkeypatch.setattr(Plan, "result_columns", lambda _plan: None)

    with pytest.raises(ResultError, match="result column `y`: a value of type") as info:
        list(arrow.ordered_wait(batches(1), large))
    assert info.value.kind is ErrorKind.RESULT_SCHEMA_MISMATCH
    assert "Int8" in str(info.value.__cause__)


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


def refused_then_silent():
    """A function whose first call fails, and whose second one never ends."""
    calls = []

    @async_function("y bigint")
    async def refused(row):
        calls.append(row["x"])
        if len(calls) == 1:
            raise ConnectionRefusedError(111, "nobody listens")
        await asyncio.Event().wait()

    return refused


def test_a_row_that_runs_out_of_time_tells_its_attempts_and_the_last_failure():
    options = {"timeout": "1s", "retry": retry.fixed_delay(9, "1ms")}

    with pytest.raises(ElementTimeoutError) as info:
        list(arrow.ordered_wait(batches(1), refused_then_silent(), **options))

    assert isinstance(info.value.__cause__, ConnectionRefusedError)
    assert info.value.attempts == 2
    assert str(info.value).endswith(
        "timed out after 1s and 2 attempts; the last failure was: `ConnectionRefusedError`;"
        " raise `timeout` or give `on_timeout`"
    )


def test_a_captured_timeout_tells_its_attempts_and_the_last_failure():
    options = {"timeout": "1s", "retry": retry.fixed_delay(9, "1ms"), "on_error": "capture"}

    [row] = rows_of(arrow.ordered_wait(batches(1), refused_then_silent(), **options))

    assert row["error"] == {
        "kind": "element-timed-out",
        "message": "timed out after 1s and 2 attempts; the last failure was:"
        " ConnectionRefusedError: [Errno 111] nobody listens",
        "attempts": 2,
        "status": None,
    }


def test_on_timeout_gives_results_instead():
    results = arrow.ordered_wait(batches(2), hang, timeout="10ms", on_timeout={"y": -1})
    assert [row["y"] for row in rows_of(results)] == [-1, -1]


def test_the_functions_own_timeout_gives_results_instead():
    class Slow(AsyncFunction):
        schema = "y bigint"

        async def async_invoke(self, row):
            await asyncio.Event().wait()

        def on_timeout(self, row):
            return [{"y": row["x"]}, {"y": -1}]

    results = rows_of(arrow.ordered_wait(batches(2), Slow(), timeout="10ms"))
    assert [row["y"] for row in results] == [0, -1, 1, -1]


def test_a_timeout_cancels_the_call():
    begun, cancelled = [], []

    @async_function("y bigint")
    async def slow(row):
        begun.append(row["x"])
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(row["x"])

    list(arrow.ordered_wait(batches(13), slow, timeout="500ms", on_error="drop"))
    assert begun
    assert sorted(cancelled) == sorted(begun)


def test_an_attempt_that_takes_too_long_is_retried():
    calls = []

    @async_function("y bigint")
    async def slow_once(row):
        calls.append(1)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return {"y": 1}

    # Of a loop that is late, an attempt may be over before it is made.
    options = {"attempt_timeout": "10ms", "retry": retry.fixed_delay(1000, 0)}
    assert rows_of(arrow.ordered_wait(batches(1), slow_once, **options)) == [{"x": 0, "y": 1}]
