# SPDX-License-Identifier: Apache-2.0
"""Flink's `AsyncWaitOperatorTest`: timeouts and their races with completions."""

from __future__ import annotations

import pytest

from sparkawait import retry
from sparkawait.exceptions import ElementTimeoutError
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import (
    assert_idle,
    call_of,
    complete,
    double,
    finish,
    put,
    record,
    records,
    running,
)


def test_async_timeout_failure() -> None:
    """AWO-08 testAsyncTimeoutFailure: the first record times out and fails the task.

    A13: the failure also cancels the second call, whose result Flink still emits.
    """
    harness = OperatorTestHarness(mode="ordered", capacity=2, timeout=0.010)
    harness.process_element(1, timestamp=0)
    harness.set_time(0.005)
    harness.process_element(2, timestamp=5)

    harness.set_time(0.011)

    assert isinstance(harness.failure, ElementTimeoutError)
    assert isinstance(harness.failure, TimeoutError)
    assert harness.output == []
    assert [call.cancelled for call in harness.invocations] == [True, True]
    assert_idle(harness)


def test_async_timeout_ignore() -> None:
    """AWO-09 testAsyncTimeoutIgnore: `on_timeout` gives the result of the late record."""
    harness = OperatorTestHarness(
        mode="ordered", capacity=2, timeout=0.010, on_timeout=lambda value: [3 * value]
    )
    harness.process_element(1, timestamp=0)
    harness.set_time(0.005)
    harness.process_element(2, timestamp=5)

    harness.set_time(0.011)
    finish(harness, lambda value: [value])

    assert records(harness) == [(3, 0), (2, 5)]
    assert harness.failure is None


def test_timeout_cleanup() -> None:
    """AWO-10 testTimeoutCleanup: no timer is left when a record is done (FLINK-5652)."""
    harness = OperatorTestHarness(mode="unordered", capacity=1, timeout=1.0)
    harness.process_element(42, timestamp=1)

    finish(harness, double)

    assert records(harness) == [(84, 1)]
    assert harness.active_timers == 0


def test_timeout_after_complete() -> None:
    """AWO-11 testTimeoutAfterComplete: a reply that waits as mail beats the timer (FLINK-22573)."""
    timed_out: list[int] = []
    harness = OperatorTestHarness(
        mode="unordered", capacity=1, timeout=1.0, on_timeout=timed_out.append
    )
    put(harness, 1)

    harness.complete(running(harness)[0], [1])
    harness.set_time(1.0)

    assert harness.output == [record(1, 1)]
    assert timed_out == []


@pytest.mark.parametrize("reply_is_first", [True, False])
def test_timeout_racing_with_a_retriable_completion(reply_is_first: bool) -> None:
    """AWO-N3 (FLINK-40456): the element is emitted exactly once, never lost."""
    harness = OperatorTestHarness(
        mode="unordered",
        capacity=1,
        timeout=1.0,
        retry=retry.fixed_delay(5, 0.1, if_result=retry.if_empty),
        on_timeout=lambda value: [-value],
    )
    put(harness, 1)
    call = call_of(harness, 1)

    if reply_is_first:
        harness.complete(call, [])
    harness.set_time(1.0)
    harness.complete(call, [])
    harness.run()
    put(harness, 2)
    complete(harness, 2, 2)

    assert records(harness) == [(-1, 1), (2, 2)]
    assert_idle(harness)
