# SPDX-License-Identifier: Apache-2.0
"""A task reports its end only if the rows that came and left are those that it has settled."""

import pyarrow as pa
import pytest

from sparkawait import Batch, _core, arrow, async_function
from sparkawait.exceptions import ErrorKind, InternalError


def batches(*lengths):
    start = 0
    for length in lengths:
        yield pa.record_batch({"x": pa.array(range(start, start + length), pa.int64())})
        start += length


@async_function("y bigint")
async def several(row):
    """Has no result for row 3, three for row 5, and fails for row 7."""
    if row["x"] == 7:
        raise OSError
    return [{"y": row["x"]}] * {3: 0, 5: 3}.get(row["x"], 1)


@async_function("z bigint")
async def one(row):
    return {"z": row["x"]}


@async_function("a bigint", batch=Batch(max_rows=7))
async def many(rows):
    return [{"a": row["x"]} for row in rows]


class LossyTask:
    """A task that loses rows between it and its caller."""

    def __init__(self, task, *, of_input=0, of_output=0):
        self._task = task
        self._of_input, self._of_output = of_input, of_output

    def __getattr__(self, name):
        return getattr(self._task, name)

    def put(self, batch):
        batch, self._of_input = batch.slice(self._of_input), 0
        return self._task.put(batch)

    def next(self, patience=None):
        batch = self._task.next(patience)
        if batch is not None and batch.num_rows:
            batch, self._of_output = batch.slice(self._of_output), 0
        return batch


def losing(monkeypatch, **lost):
    make = _core.Task
    monkeypatch.setattr(_core, "Task", lambda **told: LossyTask(make(**told), **lost))


@pytest.mark.parametrize(
    ("lost", "numbers"),
    [
        (
            {"of_input": 2},
            "31 rows came in and 29 are settled; 29 rows left the operators and 29 have arrived",
        ),
        (
            {"of_output": 1},
            "31 rows came in and 31 are settled; 31 rows left the operators and 30 have arrived",
        ),
    ],
)
def test_rows_that_got_lost_beside_the_operators_fail_the_task(monkeypatch, lost, numbers):
    losing(monkeypatch, **lost)
    output = arrow.ordered_wait(batches(13, 0, 18), several, timeout="1h", on_error="drop")

    with pytest.raises(InternalError, match=numbers) as info:
        list(output)

    assert info.value.kind is ErrorKind.INTERNAL


@pytest.mark.parametrize("on_error", ["drop", "null", "capture"])
@pytest.mark.parametrize("wait", [arrow.ordered_wait, arrow.unordered_wait])
def test_rows_with_no_result_or_several_and_failures_are_no_false_alarm(wait, on_error):
    output = wait(batches(0, 13, 0, 18), several, timeout="1h", on_error=on_error)

    left = sum(batch.num_rows for batch in output)

    # Row 3 has no result and row 5 has three.
    assert left == 31 - 1 + 2 - (on_error == "drop")


def test_a_chain_is_asked_at_both_of_its_ends():
    first = arrow.ordered_wait(batches(13, 18), several, timeout="1h", on_error="drop")
    output = arrow.unordered_wait(first, one, timeout="1h", chain=True)

    assert sum(batch.num_rows for batch in output) == 31


def test_functions_side_by_side_and_calls_of_many_rows_are_no_false_alarm():
    output = arrow.ordered_wait(batches(13, 18), [many, one], timeout="1h")

    assert sum(batch.num_rows for batch in output) == 31


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0)])
def test_an_input_without_rows_is_no_false_alarm(lengths):
    assert [*arrow.ordered_wait(batches(*lengths), several, timeout="1h")] == []


def test_a_consumer_that_stops_early_is_not_asked(monkeypatch):
    losing(monkeypatch, of_output=1)
    output = iter(arrow.ordered_wait(batches(13, 18), several, timeout="1h", on_error="drop"))
    next(output)
    output.close()
