# SPDX-License-Identifier: Apache-2.0
"""No thread outlives the task that started it, but the process-wide runtime and event loop."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row["x"]}


@sa.async_function("never bigint")
async def hang(row):
    import asyncio

    await asyncio.Event().wait()


def batches(count: int = 4) -> Iterator[pa.RecordBatch]:
    for start in range(count):
        yield pa.RecordBatch.from_pydict({"x": [start, start + 1]})


@pytest.fixture
def settled() -> set[int | None]:
    """Threads that are there after a first task: they belong to the process."""
    list(arrow.ordered_wait(batches(), double))
    return alive()


def alive() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate()}


def left_behind(settled: set[int | None]) -> list[str]:
    """Threads of tasks, after each had the second to end that a closed task has."""
    started = [thread for thread in threading.enumerate() if thread.ident not in settled]
    for thread in started:
        thread.join(timeout=1)
    return [thread.name for thread in started if thread.is_alive()]


def test_a_finished_task_leaves_no_thread(settled):
    assert sum(batch.num_rows for batch in arrow.ordered_wait(batches(), double)) == 8
    assert left_behind(settled) == []


def test_a_closed_task_leaves_no_thread(settled):
    results = arrow.unordered_wait(batches(1000), double, tuning=sa.Tuning(max_rows=1))
    next(results)
    results.close()
    assert left_behind(settled) == []


def test_a_task_whose_calls_hang_leaves_no_thread(settled):
    with pytest.raises(sa.exceptions.ElementTimeoutError):
        list(arrow.ordered_wait(batches(), hang, timeout=0.05))
    assert left_behind(settled) == []


def test_a_task_whose_input_fails_leaves_no_thread(settled):
    def broken():
        yield from batches(1)
        message = "disk on fire"
        raise OSError(message)

    with pytest.raises(OSError, match="disk on fire"):
        list(arrow.ordered_wait(broken(), double))
    assert left_behind(settled) == []
