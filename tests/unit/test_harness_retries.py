# SPDX-License-Identifier: Apache-2.0
"""Which outcomes are tried again, how often and when."""

from __future__ import annotations

import pytest

from sparkawait import retry
from sparkawait.exceptions import AsyncFunctionError, ErrorKind
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import (
    assert_failed_with,
    assert_idle,
    call_of,
    calls,
    complete,
    fail,
    put,
    results,
    running,
)

MODES = ["ordered", "unordered", "key_ordered"]


def make(
    strategy: retry.AsyncRetryStrategy | None, mode: str = "ordered", **options: object
) -> OperatorTestHarness:
    """Makes a harness with a timeout that does not matter."""
    key = (lambda value: value) if mode == "key_ordered" else None
    defaults = {"capacity": 4, "timeout": 3600}
    return OperatorTestHarness(mode=mode, key=key, retry=strategy, **{**defaults, **options})


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_attempt_is_repeated_after_the_delay(mode: str) -> None:
    harness = make(retry.fixed_delay(2, 5), mode)
    put(harness, 1)
    fail(harness, 1, OSError())
    assert (harness.in_flight, harness.pending_retries, harness.queue_size) == (0, 1, 1)

    harness.advance(4.999)
    assert calls(harness) == [(1, 1)]
    harness.advance(0.001)
    assert calls(harness) == [(1, 1), (1, 2)]
    complete(harness, 1, "at last")

    assert results(harness) == ["at last"]
    assert_idle(harness)


def test_without_a_strategy_the_first_failure_is_final() -> None:
    harness = make(None)
    error = OSError("down")
    put(harness, 1)

    fail(harness, 1, error)

    assert isinstance(harness.failure, AsyncFunctionError)
    assert harness.failure.kind is ErrorKind.USER_FUNCTION_FAILED
    assert harness.failure.attempts == 1
    assert_failed_with(harness, error)


@pytest.mark.parametrize("max_retries", [1, 2, 5])
def test_a_row_is_called_at_most_once_more_than_max_retries(max_retries: int) -> None:
    harness = make(retry.fixed_delay(max_retries, 1))
    put(harness, 1)
    while running(harness):
        fail(harness, 1, OSError())
        harness.advance(1)

    assert len(harness.invocations) == max_retries + 1
    assert isinstance(harness.failure, AsyncFunctionError)
    assert harness.failure.kind is ErrorKind.RETRIES_EXHAUSTED
    assert harness.failure.attempts == max_retries + 1


def test_the_cause_of_an_exhausted_row_is_its_last_exception() -> None:
    harness = make(retry.fixed_delay(1, 1))
    errors = [OSError("first"), OSError("second")]
    put(harness, 1)
    for error in errors:
        fail(harness, 1, error)
        harness.advance(1)

    assert harness.failure is not None
    assert harness.failure.__cause__ is errors[1]


def test_an_exception_that_the_predicate_does_not_want_is_final() -> None:
    harness = make(retry.fixed_delay(2, 1, if_exception=OSError))
    error = ValueError("bad row")
    put(harness, 1)

    fail(harness, 1, error)

    assert_failed_with(harness, error)
    assert calls(harness) == [(1, 1)]


def test_a_result_that_the_predicate_wants_is_retried() -> None:
    strategy = retry.fixed_delay(2, 1, if_result=lambda results: results == ["pending"])
    harness = make(strategy)
    put(harness, 1)
    complete(harness, 1, "pending")
    assert harness.output == []

    harness.advance(1)
    complete(harness, 1, "done")

    assert results(harness) == ["done"]


def test_the_last_result_is_emitted_even_if_the_predicate_wants_another() -> None:
    harness = make(retry.fixed_delay(1, 1, if_result=lambda results: results == ["pending"]))
    put(harness, 1)
    complete(harness, 1, "pending")
    harness.advance(1)

    complete(harness, 1, "pending")

    assert results(harness) == ["pending"]
    assert harness.failure is None


def test_with_a_result_predicate_only_exceptions_are_final() -> None:
    harness = make(retry.fixed_delay(2, 1, if_result=retry.if_empty))
    put(harness, 1)

    fail(harness, 1, OSError())

    assert isinstance(harness.failure, AsyncFunctionError)


@pytest.mark.parametrize("reply_is_result", [True, False])
def test_a_predicate_that_raises_fails_the_row(reply_is_result: bool) -> None:
    error = ZeroDivisionError("in the predicate")

    def predicate(_outcome: object) -> bool:
        raise error

    harness = make(retry.fixed_delay(2, 1, if_result=predicate, if_exception=predicate))
    put(harness, 1)

    if reply_is_result:
        complete(harness, 1, "result")
    else:
        fail(harness, 1, OSError())

    assert_failed_with(harness, error)
    assert calls(harness) == [(1, 1)]


def test_a_reply_to_an_older_attempt_is_ignored() -> None:
    harness = make(retry.fixed_delay(2, 1))
    put(harness, 1)
    first = call_of(harness, 1)
    fail(harness, 1, OSError())
    harness.complete(first, ["during back-off"])
    harness.advance(1)

    harness.complete(first, ["late"])
    harness.run()
    assert harness.output == []
    complete(harness, 1, "second")

    assert results(harness) == ["second"]


def test_repeated_failures_of_one_attempt_use_up_one_retry() -> None:
    harness = make(retry.fixed_delay(1, 1))
    put(harness, 1)
    call = call_of(harness, 1)

    for _ in range(3):
        harness.fail(call, OSError())
    harness.run()

    assert harness.pending_retries == 1
    assert harness.failure is None


def test_exponential_delays_grow_up_to_the_maximum() -> None:
    harness = make(retry.exponential_backoff(6, 0.1, 2, 2, jitter="none"))
    put(harness, 1)
    for delay in (0.1, 0.2, 0.4, 0.8, 1.6, 2.0):
        fail(harness, 1, OSError())
        harness.advance(delay - 0.001)
        assert harness.pending_retries == 1
        harness.advance(0.001)
        assert harness.pending_retries == 0

    assert len(harness.invocations) == 7


def test_the_delays_of_one_row_do_not_depend_on_other_rows() -> None:
    harness = make(retry.exponential_backoff(3, 1, 60, 2, jitter="none"))
    put(harness, 1)
    for delay in (1, 2):
        fail(harness, 1, OSError())
        harness.advance(delay)
    put(harness, 2)

    fail(harness, 2, OSError())
    fail(harness, 1, OSError())
    harness.advance(1)

    assert calls(harness)[-1] == (2, 2)
    harness.advance(3)
    assert calls(harness)[-1] == (1, 4)


def test_full_jitter_draws_delays_between_zero_and_the_computed_one() -> None:
    harness = make(retry.exponential_backoff(1, 100, 100, jitter="full"), capacity=50)
    put(harness, *range(50))
    for value in range(50):
        fail(harness, value, OSError())

    harness.advance(50)
    retried_early = harness.in_flight
    harness.advance(50)

    assert 0 < retried_early < 50
    assert (harness.in_flight, harness.pending_retries) == (50, 0)


def test_retry_after_overrides_the_computed_delay() -> None:
    harness = make(retry.fixed_delay(2, 1, if_exception=ValueError))
    put(harness, 1)
    fail(harness, 1, retry.RetryAfter(7))

    harness.advance(6.9)
    assert harness.pending_retries == 1
    harness.advance(0.1)

    assert calls(harness) == [(1, 1), (1, 2)]


def test_retry_after_does_not_add_retries() -> None:
    harness = make(retry.fixed_delay(1, 1))
    error = retry.RetryAfter(1)
    put(harness, 1)
    fail(harness, 1, retry.RetryAfter(1))
    harness.advance(1)

    fail(harness, 1, error)

    assert_failed_with(harness, error)


def test_an_ordered_row_keeps_its_place_over_its_retries() -> None:
    harness = make(retry.fixed_delay(1, 1))
    put(harness, 1, 2)
    fail(harness, 1, OSError())
    complete(harness, 2, 2)

    harness.advance(1)
    complete(harness, 1, 1)

    assert results(harness) == [1, 2]


def test_an_unordered_row_in_back_off_still_holds_its_watermark() -> None:
    harness = make(retry.fixed_delay(1, 1), "unordered")
    put(harness, 1)
    harness.process_watermark(1)
    fail(harness, 1, OSError())
    assert harness.output == []

    harness.advance(1)
    complete(harness, 1, 1)

    assert harness.output == [("record", 1, 1), ("watermark", 1)]
