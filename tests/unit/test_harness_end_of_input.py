# SPDX-License-Identifier: Apache-2.0
"""What the end of input does to the records that are still held."""

from __future__ import annotations

import pytest

from sparkawait import retry
from sparkawait.exceptions import ElementTimeoutError
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import (
    answer,
    assert_failed_with,
    calls,
    complete,
    fail,
    finish,
    put,
    record,
    results,
    watermark,
)

MODES = ["ordered", "unordered", "key_ordered"]


def make(mode: str = "ordered", **options: object) -> OperatorTestHarness:
    """Makes a harness that retries empty results and exceptions twice, after 100 s."""
    key = (lambda value: value) if mode == "key_ordered" else None
    strategy = retry.fixed_delay(2, 100, if_result=retry.if_empty, if_exception=Exception)
    defaults = {"capacity": 4, "timeout": 1000, "retry": strategy}
    return OperatorTestHarness(mode=mode, key=key, **{**defaults, **options})


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_operator_finishes_at_once(mode: str) -> None:
    harness = make(mode)
    assert not harness.finished

    harness.end_input()
    harness.run()

    assert harness.finished


@pytest.mark.parametrize("mode", MODES)
def test_everything_in_flight_is_emitted_before_the_end(mode: str) -> None:
    harness = make(mode)
    put(harness, 1, 2, 3)
    harness.process_watermark(3)

    harness.end_input()
    harness.run()
    assert not harness.finished
    answer(harness, lambda value: [value])

    assert harness.output == [record(1, 1), record(2, 2), record(3, 3), watermark(3)]
    assert harness.finished


@pytest.mark.parametrize("mode", MODES)
def test_a_record_in_back_off_gets_one_immediate_last_attempt(mode: str) -> None:
    harness = make(mode)
    put(harness, 1)
    fail(harness, 1, OSError())

    harness.end_input()
    harness.run()
    assert calls(harness) == [(1, 1), (1, 2)]
    assert harness.pending_retries == 0
    complete(harness, 1, "last")

    assert results(harness) == ["last"]
    assert harness.finished


def test_the_failure_of_the_last_attempt_is_final() -> None:
    harness = make()
    error = OSError("still down")
    put(harness, 1)
    fail(harness, 1, OSError("down"))

    harness.end_input()
    fail(harness, 1, error)

    assert_failed_with(harness, error)
    assert calls(harness) == [(1, 1), (1, 2)]


def test_the_result_of_the_last_attempt_is_final() -> None:
    harness = make()
    put(harness, 1)
    complete(harness, 1)

    harness.end_input()
    complete(harness, 1)

    assert calls(harness) == [(1, 1), (1, 2)]
    assert harness.finished
    assert harness.output == []


@pytest.mark.parametrize("attempts_before", [0, 1])
def test_a_running_attempt_is_neither_doubled_nor_retried(attempts_before: int) -> None:
    harness = make()
    put(harness, 1)
    for _ in range(attempts_before):
        fail(harness, 1, OSError())
        harness.advance(100)

    harness.end_input()
    harness.run()
    assert harness.in_flight == 1
    complete(harness, 1)

    assert len(harness.invocations) == attempts_before + 1
    assert harness.finished


def test_a_last_attempt_waits_for_a_permit() -> None:
    harness = make(max_concurrency=1)
    put(harness, 1)
    fail(harness, 1, OSError())
    put(harness, 2)

    harness.end_input()
    harness.run()
    assert calls(harness) == [(1, 1), (2, 1)]
    answer(harness, lambda value: [value])

    assert calls(harness) == [(1, 1), (2, 1), (1, 2)]
    assert results(harness) == [1, 2]


def test_timeouts_still_end_calls_that_hang() -> None:
    harness = make(on_timeout=lambda _value: ["late"])
    put(harness, 1)
    harness.end_input()

    harness.set_time(1000)

    assert results(harness) == ["late"]
    assert harness.finished


def test_a_timeout_during_the_drain_fails_the_task() -> None:
    harness = make()
    put(harness, 1)
    harness.end_input()

    harness.set_time(1000)

    assert isinstance(harness.failure, ElementTimeoutError)


def test_a_failed_attempt_of_a_record_that_waited_for_its_permit_is_final() -> None:
    source = make(capacity=2)
    error = OSError("down")
    put(source, 1, 2)
    harness = OperatorTestHarness.restore(
        source.snapshot(),
        mode="ordered",
        capacity=2,
        max_concurrency=1,
        timeout=1000,
        retry=retry.fixed_delay(2, 100),
    )
    harness.end_input()

    complete(harness, 1, 1)
    fail(harness, 2, error)

    assert_failed_with(harness, error)
    assert results(harness) == [1]


def test_restored_records_that_wait_for_a_slot_are_drained_too() -> None:
    source = make(capacity=3)
    put(source, 1, 2, 3)
    fail(source, 3, OSError())
    restored = OperatorTestHarness.restore(
        source.snapshot(),
        mode="ordered",
        capacity=1,
        timeout=1000,
        retry=retry.fixed_delay(2, 100),
    )

    finish(restored, lambda value: [value])

    assert results(restored) == [1, 2, 3]
    assert calls(restored) == [(1, 1), (2, 1), (3, 2)]
