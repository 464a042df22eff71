# SPDX-License-Identifier: Apache-2.0
"""The bounds in time of `open`, `close` and the event loop, and who may wait for it."""

import asyncio
import contextvars
import logging
import threading

import pyarrow as pa
import pytest

from sparkawait import AsyncFunction, Tuning, arrow, async_function
from sparkawait._worker import life_cycle
from sparkawait._worker.event_loop import event_loop_thread
from sparkawait.exceptions import AsyncFunctionError, ErrorKind, OperatorStateError
from sparkawait.limits import Batch


@async_function("y bigint")
async def double(row):
    return {"y": 2 * row["x"]}


def batches():
    yield pa.RecordBatch.from_pydict({"x": pa.array([0, 1], pa.int64())})


def run(function, **options):
    output = arrow.ordered_wait(batches(), function, **options)
    return [y for batch in output for y in batch["y"].to_pylist()]


def bounded(function, **bounds):
    for name, time in bounds.items():
        setattr(function, name, time)
    return function


class Doubles(AsyncFunction):
    schema = "y bigint"

    async def async_invoke(self, row):
        return {"y": 2 * row["x"]}


@pytest.fixture
def brief(monkeypatch):
    """Has nobody wait long for a loop that is blocked."""
    for name in ("ABORT_SECONDS", "CANCEL_SECONDS", "BLOCKED_SECONDS"):
        monkeypatch.setattr(life_cycle, name, 0.01)


@pytest.fixture
def gate():
    """Opened at the end, so that no thread of the test stays blocked."""
    gate = threading.Event()
    yield gate
    gate.set()


# -- open


def test_an_open_that_takes_too_long_is_cancelled_and_cleaned_up_before_close():
    steps = []

    class Slow(Doubles):
        async def open(self, context):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                steps.append("cleaned up")

        def close(self):
            steps.append("closed")

    with pytest.raises(AsyncFunctionError) as info:
        run(bounded(Slow(), setup_timeout="20ms"))

    assert info.value.kind is ErrorKind.SETUP_TIMED_OUT
    assert "Slow.open` did not end within 0.02 s; give it more by `setup_timeout`" in str(
        info.value
    )
    assert steps == ["cleaned up", "closed"]


def test_an_open_that_blocks_the_loop_is_left_and_the_next_task_has_a_loop_of_its_own(brief, gate):
    blocked = event_loop_thread()

    class Loads(Doubles):
        def open(self, context):
            gate.wait()

    with pytest.raises(AsyncFunctionError) as info:
        run(bounded(Loads(), setup_timeout="20ms"))
    line = Loads.open.__code__.co_firstlineno + 1

    assert f"open` at {__file__}:{line}" in str(info.value)
    assert "asyncio.to_thread" in str(info.value)
    assert run(double) == [0, 2]
    assert event_loop_thread() is not blocked
    gate.set()
    blocked.thread.join(10)
    assert not blocked.thread.is_alive()


def test_an_open_within_its_time_opens_and_its_context_variables_are_seen_by_calls():
    variable = contextvars.ContextVar("variable")

    class Opens(AsyncFunction):
        schema = "y bigint"

        async def open(self, context):
            await asyncio.sleep(0)
            variable.set(7)

        async def async_invoke(self, row):
            return {"y": variable.get()}

    assert run(bounded(Opens(), setup_timeout="60s")) == [7, 7]


def test_an_open_that_takes_long_is_logged_once_with_its_option(monkeypatch):
    monkeypatch.setattr(life_cycle, "SLOW_SECONDS", 0.01)
    told, lines = threading.Event(), []

    class Handler(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())
            told.set()

    class Slow(Doubles):
        async def open(self, context):
            await asyncio.to_thread(told.wait)

    handler, logger = Handler(), logging.getLogger("sparkawait")
    logger.addHandler(handler)
    try:
        assert run(Slow()) == [0, 2]
    finally:
        logger.removeHandler(handler)
    [line] = lines
    assert "Slow.open` still runs after 0.01 s" in line
    assert "`setup_timeout`" in line


# -- close


def test_a_close_that_takes_too_long_is_cancelled_and_fails_the_task():
    cancelled = threading.Event()

    class Slow(Doubles):
        async def close(self):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    with pytest.raises(AsyncFunctionError) as info:
        run(bounded(Slow(), setup_timeout="20ms"))

    assert info.value.kind is ErrorKind.SETUP_TIMED_OUT
    assert "Slow.close` did not end within 0.02 s" in str(info.value)
    assert cancelled.is_set()


# -- a blocked loop


def test_a_call_that_blocks_the_loop_ends_the_task_after_its_time(brief, gate, caplog):
    blocked = event_loop_thread()

    @async_function("y bigint", blocked_loop_timeout="50ms")
    async def blocks(row):
        gate.wait()

    with pytest.raises(AsyncFunctionError) as info:
        run(blocks, timeout=None)
    line = blocks.function.__code__.co_firstlineno + 2

    assert info.value.kind is ErrorKind.LOOP_BLOCKED
    assert f"blocks` at {__file__}:{line} blocked the event loop for 0.05 s" in str(info.value)
    assert "asyncio.to_thread" in str(info.value)
    assert "after the task had ended" not in caplog.text, "its `close` is not waited for"
    assert run(double) == [0, 2]
    gate.set()
    blocked.thread.join(10)
    assert not blocked.thread.is_alive()


@pytest.mark.parametrize("arrow", [False, True])
def test_a_call_for_many_rows_that_blocks_the_loop_is_named(brief, gate, arrow):
    @async_function("y bigint", batch=Batch(arrow=arrow), blocked_loop_timeout="50ms")
    async def blocks(rows):
        gate.wait()

    with pytest.raises(AsyncFunctionError, match=r"blocks` at .* blocked the event loop"):
        run(blocks, timeout=None)


def test_a_timeout_of_a_row_that_blocks_is_bounded_by_the_same_option(brief, gate):
    class Blocks(AsyncFunction):
        schema = "y bigint"

        async def async_invoke(self, row):
            await asyncio.Event().wait()

        def on_timeout(self, row):
            gate.wait()

    with pytest.raises(AsyncFunctionError, match=r"Blocks.on_timeout` at .* blocked"):
        run(bounded(Blocks(), blocked_loop_timeout="50ms"), timeout="10ms")


def test_an_open_that_blocks_the_loop_is_not_ended_by_the_bound_of_calls(gate):
    class Loads(Doubles):
        def open(self, context):
            gate.wait(1.3)

    assert run(bounded(Loads(), blocked_loop_timeout="1s")) == [0, 2]


# -- who may wait


def test_a_wait_function_on_the_loop_is_refused_with_the_way_out():
    @async_function("y bigint")
    async def nested(row):
        return {"y": sum(run(double))}

    with pytest.raises(AsyncFunctionError) as info:
        run(nested, timeout="20s")

    assert isinstance(info.value.__cause__, OperatorStateError)
    assert info.value.__cause__.kind is ErrorKind.LOOP_BLOCKED
    assert "asyncio.to_thread" in str(info.value.__cause__)


@pytest.mark.parametrize("phase", ["open", "close"])
def test_a_wait_function_in_open_and_close_is_refused(phase):
    class Nested(Doubles):
        pass

    setattr(Nested, phase, lambda *_: run(double))

    with pytest.raises(AsyncFunctionError) as info:
        run(Nested())

    assert isinstance(info.value.__cause__, OperatorStateError)


def test_an_output_that_was_started_elsewhere_is_refused_on_the_loop():
    output = arrow.ordered_wait(batches(), double, tuning=Tuning(max_rows=1))
    next(output)

    async def take():
        return next(output)

    with pytest.raises(OperatorStateError):
        event_loop_thread().submit(take()).result()


def test_a_wait_function_in_a_thread_of_a_call_works():
    @async_function("y bigint")
    async def nested(row):
        return {"y": sum(await asyncio.to_thread(run, double))}

    assert run(nested) == [2, 2]


def test_a_program_with_an_event_loop_of_its_own_may_wait():
    async def program():
        return run(double)

    assert asyncio.run(program()) == [0, 2]
