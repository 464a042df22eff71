# SPDX-License-Identifier: Apache-2.0
"""What the queues let in, hold and let out."""

from __future__ import annotations

import pytest

from sparkawait.testing import OperatorTestHarness
from tests.support.harness import complete, put, record, records, results, running, watermark

MODES = ["ordered", "unordered", "key_ordered"]


def make(mode: str, capacity: int) -> OperatorTestHarness:
    """Makes a harness; in key-ordered mode every value is its own key."""
    key = (lambda value: value) if mode == "key_ordered" else None
    return OperatorTestHarness(mode=mode, capacity=capacity, key=key)


@pytest.mark.parametrize("mode", MODES)
def test_a_full_queue_refuses_an_element_and_changes_nothing(mode: str) -> None:
    harness = make(mode, 2)
    put(harness, 1, 2)

    assert not harness.process_element(3, timestamp=3)

    assert harness.queue_size == 2
    assert [call.value for call in harness.invocations] == [1, 2]


def test_a_completed_but_unemitted_element_still_holds_its_slot() -> None:
    harness = make("ordered", 2)
    put(harness, 1, 2)
    complete(harness, 2, "b")

    assert not harness.process_element(3)
    assert harness.queue_size == 2
    complete(harness, 1, "a")

    assert harness.process_element(3)


@pytest.mark.parametrize("mode", MODES)
def test_emitting_an_element_frees_its_slot(mode: str) -> None:
    harness = make(mode, 1)
    for value in (1, 2, 3):
        put(harness, value)
        assert harness.queue_size == 1
        complete(harness, value, value)

    assert results(harness) == [1, 2, 3]
    assert harness.queue_size == 0


@pytest.mark.parametrize("mode", MODES)
def test_watermarks_take_no_slot(mode: str) -> None:
    harness = make(mode, 2)
    put(harness, 1)
    harness.process_watermark(1)
    put(harness, 2)
    harness.process_watermark(2)

    assert harness.queue_size == 2
    assert not harness.process_element(3)


def test_ordered_output_waits_for_the_oldest_element() -> None:
    harness = make("ordered", 3)
    put(harness, 1, 2, 3)

    complete(harness, 3, "c")
    complete(harness, 2, "b")
    assert harness.output == []
    complete(harness, 1, "a")

    assert records(harness) == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize("mode", ["unordered", "key_ordered"])
def test_unordered_output_leaves_in_the_order_of_completion(mode: str) -> None:
    harness = make(mode, 3)
    put(harness, 1, 2, 3)

    for value in (2, 3, 1):
        complete(harness, value, value)

    assert results(harness) == [2, 3, 1]


@pytest.mark.parametrize("mode", MODES)
def test_all_results_of_an_element_leave_together_with_its_timestamp(mode: str) -> None:
    harness = make(mode, 3)
    assert harness.process_element(1, timestamp=10)
    assert harness.process_element(2)

    complete(harness, 1, "a", "b", "c")
    complete(harness, 2, "d")

    assert harness.output == [
        record("a", 10),
        record("b", 10),
        record("c", 10),
        record("d", None),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_list_drops_the_element_and_frees_its_slot(mode: str) -> None:
    harness = make(mode, 1)
    put(harness, 1)

    complete(harness, 1)

    assert harness.output == []
    assert harness.queue_size == 0
    assert harness.process_element(2)


@pytest.mark.parametrize("mode", MODES)
def test_a_long_burst_of_replies_leaves_in_one_run(mode: str) -> None:
    harness = make(mode, 1000)
    put(harness, *range(1000))
    for call in running(harness):
        harness.complete(call, [call.value])

    harness.run()

    assert results(harness) == list(range(1000))


def test_no_record_crosses_a_watermark_in_unordered_mode() -> None:
    harness = make("unordered", 7)
    put(harness, 1, 2, 3)
    harness.process_watermark(10)
    put(harness, 4, 5)
    harness.process_watermark(20)
    put(harness, 6)
    harness.process_watermark(30)
    put(harness, 7)

    for value in (5, 2, 4, 1, 3):
        complete(harness, value, f"E{value}")

    assert results(harness) == ["E2", "E1", "E3", "E5", "E4"]
    assert harness.output.index(watermark(10)) == 3
    assert harness.output[-1] == watermark(20)


def test_the_default_capacity_is_that_of_flink() -> None:
    harness = OperatorTestHarness()
    put(harness, *range(100))

    assert not harness.process_element(100)
    assert harness.in_flight == 100
