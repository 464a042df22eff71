# SPDX-License-Identifier: Apache-2.0
"""Flink's `AsyncWaitOperatorTest`: failures of the function and of its timeout."""

from __future__ import annotations

import pytest

from sparkawait import retry
from sparkawait.exceptions import AsyncFunctionError, ElementTimeoutError
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import answer, assert_failed_with, assert_idle, calls, fail, put

ON_EXCEPTION = retry.fixed_delay(2, 0.010, if_exception=Exception)
ON_EMPTY = retry.fixed_delay(2, 0.010, if_result=retry.if_empty)


@pytest.mark.parametrize(
    ("mode", "strategy"),
    [
        pytest.param("ordered", None, id="AWO-12 testOrderedWaitUserExceptionHandling"),
        pytest.param(
            "ordered", ON_EXCEPTION, id="AWO-13 testOrderedWaitUserExceptionHandlingWithRetry"
        ),
        pytest.param("unordered", None, id="AWO-14 testUnorderedWaitUserExceptionHandling"),
        pytest.param(
            "unordered", ON_EXCEPTION, id="AWO-15 testUnorderedWaitUserExceptionHandlingWithRetry"
        ),
    ],
)
def test_user_exception_handling(mode: str, strategy: retry.AsyncRetryStrategy | None) -> None:
    """The exception fails the task, and the end of input does not wait for the record."""
    harness = OperatorTestHarness(mode=mode, capacity=2, timeout=1.0, retry=strategy)
    error = RuntimeError("Expected")
    put(harness, 1)
    fail(harness, 1, error)

    harness.end_input()
    if strategy is not None:
        fail(harness, 1, error)

    assert isinstance(harness.failure, AsyncFunctionError)
    assert_failed_with(harness, error)
    assert len(harness.invocations) == (1 if strategy is None else 2)


@pytest.mark.parametrize(
    ("mode", "strategy"),
    [
        pytest.param("ordered", None, id="AWO-16 testOrderedWaitTimeoutHandling"),
        pytest.param("ordered", ON_EMPTY, id="AWO-17 testOrderedWaitTimeoutHandlingWithRetry"),
        pytest.param("unordered", None, id="AWO-18 testUnorderedWaitTimeoutHandling"),
        pytest.param("unordered", ON_EMPTY, id="AWO-19 testUnorderedWaitTimeoutHandlingWithRetry"),
    ],
)
def test_timeout_handling(mode: str, strategy: retry.AsyncRetryStrategy | None) -> None:
    """Nothing waits for a call that never returns once its record timed out."""
    harness = OperatorTestHarness(mode=mode, capacity=2, timeout=0.010, retry=strategy)
    put(harness, 1)

    harness.set_time(0.010)

    assert isinstance(harness.failure, ElementTimeoutError)
    assert calls(harness) == [(1, 1)]
    assert_idle(harness)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            "unordered", id="AWO-29 testProcessingTimeWithAlwaysTimeoutFunctionUnorderedWithRetry"
        ),
        pytest.param(
            "ordered", id="AWO-30 testProcessingTimeWithAlwaysTimeoutFunctionOrderedWithRetry"
        ),
    ],
)
def test_processing_time_with_always_timeout_function_with_retry(mode: str) -> None:
    """What `on_timeout` raises fails the task and is not retried (FLINK-38082)."""
    error = TimeoutError("Dummy timeout error")

    def on_timeout(_value: int) -> list[int]:
        raise error

    harness = OperatorTestHarness(
        mode=mode, capacity=10, timeout=1.0, retry=ON_EXCEPTION, on_timeout=on_timeout
    )
    put(harness, 1, 2)

    harness.set_time(1.0)

    assert_failed_with(harness, error)
    assert calls(harness) == [(1, 1), (2, 1)]


def test_processing_time_with_error_from_mailbox_thread() -> None:
    """AWO-35 testProcessingTimeWithErrorFromMailboxThread: the exception fails the task.

    A5: there are no suppliers here; what one would raise is the failure of the attempt.
    """
    harness = OperatorTestHarness(mode="unordered", capacity=1)
    error = RuntimeError("Expected")
    put(harness, 1)

    harness.fail(harness.invocations[0], error)
    assert harness.failure is None
    harness.run()

    assert_failed_with(harness, error)


def test_processing_time_with_mailbox_thread_error_with_retry() -> None:
    """AWO-36 testProcessingTimeWithMailboxThreadErrorWithRetry: it fails after two retries."""
    harness = OperatorTestHarness(mode="unordered", capacity=1, timeout=1.0, retry=ON_EXCEPTION)
    errors = [RuntimeError("Expected") for _ in range(3)]
    put(harness, 1)

    for error in errors:
        assert harness.failure is None
        fail(harness, 1, error)
        harness.advance(0.010)

    assert_failed_with(harness, errors[-1])
    assert calls(harness) == [(1, 1), (1, 2), (1, 3)]
    answer(harness, lambda _value: [])
    assert harness.output == []
