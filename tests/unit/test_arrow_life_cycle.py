# SPDX-License-Identifier: Apache-2.0
"""How a task over record batches begins and ends, in every way it can."""

import asyncio
import gc
import threading

import pyarrow as pa
import pytest

from sparkawait import AsyncFunction, Tuning, arrow, async_function
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker import life_cycle
from sparkawait._worker.event_loop import event_loop_thread
from sparkawait._worker.feeder import Feeder
from sparkawait.exceptions import AsyncFunctionError, ErrorKind
from sparkawait.testing import simulated


@async_function("y bigint")
async def double(row):
    return {"y": 2 * row["x"]}


def batches(*lengths):
    start = 0
    for length in lengths:
        yield pa.RecordBatch.from_pydict({"x": pa.array(range(start, start + length), pa.int64())})
        start += length


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


def test_a_task_whose_wait_for_close_is_interrupted_takes_no_further_input(monkeypatch):
    # As by a signal: nothing that `close` of a function raises gets here.
    close, ended = life_cycle.Functions.close, []

    def interrupted(self, *, finished):
        close(self, finished=finished)
        raise KeyboardInterrupt

    monkeypatch.setattr(life_cycle.Functions, "close", interrupted)
    monkeypatch.setattr(Feeder, "join", lambda feeder: ended.append(feeder))  # noqa: PLW0108
    with pytest.raises(KeyboardInterrupt):
        list(arrow.ordered_wait(batches(2), double))
    assert len(ended) == 1


def endless():
    while True:
        yield from batches(10)


def test_closing_the_output_cancels_calls_and_closes_the_function():
    function = Recorded(hang_after=1)
    results = arrow.unordered_wait(
        endless(), function, timeout=None, tuning=Tuning(buffer_timeout=0)
    )
    next(results)
    results.close()
    assert function.steps.count("cancelled") == function.steps.count("call") - 1 > 0
    assert function.steps[-1] == "close"


def test_an_output_that_is_abandoned_cleans_up():
    function = Recorded()
    results = arrow.ordered_wait(endless(), function, tuning=Tuning(max_rows=1))
    next(results)
    del results
    gc.collect()
    assert function.steps[-1] == "close"


def test_an_output_that_is_abandoned_on_the_loops_thread_does_not_dead_lock():
    closed = threading.Event()

    class Notifies(Recorded):
        def close(self):
            closed.set()

    holder = [arrow.ordered_wait(endless(), Notifies(), tuning=Tuning(max_rows=1))]
    next(holder[0])

    async def drop():
        holder.clear()

    event_loop_thread().submit(drop()).result()
    assert closed.wait(50)


def test_a_function_that_blocks_the_loop_is_closed_when_the_loop_is_free_again(monkeypatch, caplog):
    monkeypatch.setattr(life_cycle, "ABORT_SECONDS", 0.01)
    monkeypatch.setattr(life_cycle, "CANCEL_SECONDS", 0.01)
    monkeypatch.setattr(life_cycle, "BLOCKED_SECONDS", 0.01)
    blocked, gate, closed = (threading.Event() for _ in range(3))
    emitted = asyncio.Event()

    class Blocks(AsyncFunction):
        schema = "y bigint"

        async def async_invoke(self, row):
            if row["x"] == 1:
                await emitted.wait()
                blocked.set()
                gate.wait()
            return {"y": 1}

        def close(self):
            closed.set()

    results = arrow.ordered_wait(batches(2), Blocks(), tuning=Tuning(buffer_timeout=0))
    next(results)
    event_loop_thread().loop.call_soon_threadsafe(emitted.set)
    blocked.wait()
    results.close()
    assert "Blocks.close` did not end within 0.01 s" in caplog.text
    assert "after the task had ended" in caplog.text
    assert not closed.is_set()
    gate.set()
    assert closed.wait(50)


def test_two_tasks_share_the_loop_at_the_same_time():
    first = arrow.ordered_wait(batches(*[1] * 50), double, tuning=Tuning(max_rows=1))
    second = arrow.ordered_wait(batches(*[1] * 50), double, tuning=Tuning(max_rows=1))
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


@pytest.mark.parametrize("function", [double, simulated("20ms")])
def test_metrics_have_the_latency_of_each_call_of_python_and_of_native_functions(function):
    totals = {}
    plan = resolve_unpickled("unordered", function, input_schema=None)
    list(arrow.run(plan, batches(250), on_metrics=totals.update))
    latencies = totals["call_latency"]
    assert sum(count for _, count in latencies) == totals["attempts"] == 250
    assert latencies == sorted(latencies)
    if function is not double:
        # A delay may end a tick of the timer too early.
        assert latencies[0][0] > 0.015


def test_the_function_is_told_its_partition():
    function = Recorded()
    plan = resolve_unpickled("ordered", function, input_schema=None)
    list(arrow.run(plan, batches(1), partition=3))
    assert function.context.partition == 3
    assert function.context.task_name == "Recorded (3)"


def test_a_batch_without_rows_is_sent_while_calls_hang():
    answered = asyncio.Event()

    @async_function("y bigint")
    async def wait(row):
        await answered.wait()
        return {"y": row["x"]}

    plan = resolve_unpickled("ordered", wait, input_schema=None)
    output = arrow.run(plan, batches(2), heartbeat=0.0)

    first = next(output)
    event_loop_thread().loop.call_soon_threadsafe(answered.set)
    rest = list(output)

    assert first.num_rows == 0
    assert first.schema == plan.output_schema(next(batches(1)).schema)
    assert [y for batch in rest for y in batch["y"].to_pylist()] == [0, 1]
