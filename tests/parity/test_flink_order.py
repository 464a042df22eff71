# SPDX-License-Identifier: Apache-2.0
"""Flink's `AsyncWaitOperatorTest`: order of the output, chains and back-pressure."""

from __future__ import annotations

import pytest

from sparkawait.testing import OperatorTestHarness
from tests.support.harness import (
    answer,
    complete,
    double,
    finish,
    put,
    put_blocking,
    record,
    records,
    results,
    running,
    watermark,
)


def test_event_time_ordered() -> None:
    """AWO-01 testEventTimeOrdered: four elements pass through a queue of two slots."""
    harness = OperatorTestHarness(mode="ordered", capacity=2)
    put(harness, 1, 2)
    harness.process_watermark(2)

    put_blocking(harness, 3, 3, double)
    finish(harness, double)

    assert harness.output == [record(2, 1), record(4, 2), watermark(2), record(6, 3)]


def test_water_mark_unordered() -> None:
    """AWO-02 testWaterMarkUnordered: two records leave, then the watermark, then the third."""
    harness = OperatorTestHarness(mode="unordered", capacity=2)
    put(harness, 1, 2)
    harness.process_watermark(2)
    complete(harness, 2, 4)

    put_blocking(harness, 3, 3, double)
    finish(harness, double)

    assert harness.output == [record(4, 2), record(2, 1), watermark(2), record(6, 3)]


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("ordered", id="AWO-03 testProcessingTimeOrdered"),
        pytest.param("unordered", id="AWO-04 testProcessingUnordered"),
    ],
)
def test_processing_time(mode: str) -> None:
    """Eight records pass through six slots; calls return in reverse."""
    harness = OperatorTestHarness(mode=mode, capacity=6)
    for value in range(1, 9):
        put_blocking(harness, value, value, double)

    harness.end_input()
    answer(harness, double, newest_first=True)

    expected = [(2 * value, value) for value in range(1, 9)]
    assert (records(harness) if mode == "ordered" else sorted(records(harness))) == expected
    assert harness.finished


def test_operator_chain_with_processing_time() -> None:
    """AWO-05 testOperatorChainWithProcessingTime: one async operator feeds another.

    There is no job graph here: the test hands the output of one harness to the next.
    """
    first = OperatorTestHarness(mode="ordered", capacity=6)
    second = OperatorTestHarness(mode="unordered", capacity=3)
    for timestamp, value in enumerate(range(5, 10)):
        first.process_element(value, timestamp=timestamp)
    finish(first, double)

    for result, timestamp in records(first):
        put_blocking(second, result + 1, timestamp, double)
    finish(second, double)

    assert sorted(records(second)) == [(22, 0), (26, 1), (30, 2), (34, 3), (38, 4)]


def test_object_reused() -> None:
    """AWO-07 testObjectReused: one object sent four times is four records.

    Rows of Arrow batches do not change, so there is no reused object to be mutated.
    """
    harness = OperatorTestHarness(mode="ordered", capacity=4)
    value = ("the same object",)
    for timestamp in range(1, 5):
        assert harness.process_element(value, timestamp=timestamp)

    for call in reversed(running(harness)):
        harness.complete(call, [2 * call.timestamp])
    harness.run()

    assert records(harness) == [(2, 1), (4, 2), (6, 3), (8, 4)]


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("ordered", id="AWO-31 testProcessingTimeWithMailboxThreadOrdered"),
        pytest.param("unordered", id="AWO-32 testProcessingTimeWithMailboxThreadUnordered"),
    ],
)
def test_processing_time_with_mailbox_thread(mode: str) -> None:
    """A reply is only mail; results are taken when the mailbox runs.

    There are no suppliers here: a reply carries the results themselves.
    """
    harness = OperatorTestHarness(mode=mode, capacity=3)
    put(harness, 1, 2, 3)

    for call in running(harness):
        harness.complete(call, [2 * call.value])
    assert harness.output == []
    harness.run()

    assert sorted(records(harness)) == [(2, 1), (4, 2), (6, 3)]
    assert mode == "unordered" or records(harness) == sorted(records(harness))


def test_stream_task_chain_availability_flips_with_async_queue_capacity() -> None:
    """AWO-N1 testStreamTaskChainAvailabilityFlipsWithAsyncQueueCapacity.

    There is no availability future here: `process_element` refuses and takes again.
    """
    harness = OperatorTestHarness(mode="ordered", capacity=2)
    assert harness.process_element(5, timestamp=0)
    assert harness.process_element(10, timestamp=1)
    assert not harness.process_element(15, timestamp=2)

    complete(harness, 5, 10)
    assert harness.process_element(15, timestamp=2)
    complete(harness, 10, 20)

    assert records(harness) == [(10, 0), (20, 1)]


def test_output_completed_element_defers_when_downstream_unavailable() -> None:
    """AWO-N2 testOutputCompletedElementDefersWhenDownstreamUnavailable.

    There is no availability future here: a full second harness is the unavailable downstream.
    """
    first = OperatorTestHarness(mode="ordered", capacity=1)
    downstream = OperatorTestHarness(mode="ordered", capacity=1)
    put(first, 7)
    put(downstream, 0)
    finish(first, lambda value: [value])
    assert not downstream.process_element(*results(first))

    complete(downstream, 0, 0)
    assert downstream.process_element(*results(first))
    finish(downstream, lambda value: [value])

    assert results(downstream) == [0, 7]
