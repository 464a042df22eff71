# SPDX-License-Identifier: Apache-2.0
"""How many calls are in flight, and whose turn is next."""

from __future__ import annotations

from sparkawait import retry
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import calls, complete, fail, put, running


def values_running(harness: OperatorTestHarness) -> list[object]:
    """Returns the values of the calls in flight."""
    return [call.value for call in running(harness)]


def test_without_a_limit_every_admitted_record_is_called() -> None:
    harness = OperatorTestHarness(mode="ordered", capacity=3)

    put(harness, 1, 2, 3)

    assert values_running(harness) == [1, 2, 3]
    assert harness.in_flight == 3


def test_a_record_is_admitted_when_it_can_be_called() -> None:
    harness = OperatorTestHarness(mode="ordered", capacity=4, max_concurrency=2)

    put(harness, 1, 2)
    assert not harness.process_element(3)
    assert (harness.in_flight, harness.queue_size) == (2, 2)
    complete(harness, 2, 2)
    put(harness, 3)

    assert values_running(harness) == [1, 3]
    assert not harness.process_element(4)


def test_slots_beyond_the_limit_hold_completed_records() -> None:
    harness = OperatorTestHarness(mode="ordered", capacity=3, max_concurrency=2)
    put(harness, 1, 2)
    complete(harness, 2, 2)
    put(harness, 3)
    complete(harness, 3, 3)

    assert (harness.queue_size, values_running(harness)) == (3, [1])
    assert not harness.process_element(4)


def test_a_completed_record_that_waits_for_emission_holds_no_permit() -> None:
    harness = OperatorTestHarness(mode="ordered", capacity=4, max_concurrency=2)
    put(harness, 1, 2)

    complete(harness, 2, 2)
    put(harness, 3)
    complete(harness, 3, 3)
    put(harness, 4)

    assert values_running(harness) == [1, 4]
    assert harness.queue_size == 4


def test_a_record_in_back_off_keeps_its_slot_but_not_its_permit() -> None:
    harness = OperatorTestHarness(
        mode="ordered",
        capacity=2,
        max_concurrency=1,
        timeout=60,
        retry=retry.fixed_delay(1, 5),
    )
    put(harness, 1)

    fail(harness, 1, OSError())
    put(harness, 2)

    assert values_running(harness) == [2]
    assert (harness.queue_size, harness.pending_retries) == (2, 1)
    assert not harness.process_element(3)


def test_a_retry_whose_delay_is_over_waits_for_a_permit() -> None:
    harness = OperatorTestHarness(
        mode="unordered",
        capacity=2,
        max_concurrency=1,
        timeout=60,
        retry=retry.fixed_delay(1, 5),
    )
    put(harness, 1)
    fail(harness, 1, OSError())
    put(harness, 2)

    harness.advance(5)
    assert calls(harness) == [(1, 1), (2, 1)]
    complete(harness, 2, 2)

    assert calls(harness) == [(1, 1), (2, 1), (1, 2)]
    assert harness.in_flight == 1


def test_a_timed_out_call_gives_its_permit_back() -> None:
    harness = OperatorTestHarness(
        mode="unordered", capacity=2, max_concurrency=1, timeout=5, on_timeout=lambda _value: []
    )
    put(harness, 1)
    assert not harness.process_element(2)

    harness.set_time(5)
    put(harness, 2)

    assert values_running(harness) == [2]
