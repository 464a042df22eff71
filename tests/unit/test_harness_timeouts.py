# SPDX-License-Identifier: Apache-2.0
"""The time a record and an attempt may take."""

from __future__ import annotations

import pytest

from sparkawait import retry
from sparkawait.exceptions import ElementTimeoutError, ErrorKind
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
)

MODES = ["ordered", "unordered", "key_ordered"]


def make(mode: str = "ordered", **options: object) -> OperatorTestHarness:
    """Makes a harness with a timeout of 10 s that answers late records with their negative."""
    key = (lambda value: value) if mode == "key_ordered" else None
    defaults = {"capacity": 4, "timeout": 10, "on_timeout": lambda value: [-value]}
    return OperatorTestHarness(mode=mode, key=key, **{**defaults, **options})


@pytest.mark.parametrize("mode", MODES)
def test_a_record_whose_time_passes_fails_the_task(mode: str) -> None:
    harness = make(mode, on_timeout=None)
    put(harness, 1)

    harness.set_time(9.999)
    assert harness.failure is None
    harness.set_time(10)

    assert isinstance(harness.failure, ElementTimeoutError)
    assert harness.failure.kind is ErrorKind.ELEMENT_TIMED_OUT
    assert_idle(harness)


@pytest.mark.parametrize("mode", MODES)
def test_a_timeout_cancels_the_running_call(mode: str) -> None:
    harness = make(mode)
    put(harness, 1)
    call = call_of(harness, 1)
    assert (call.active, call.cancelled) == (True, False)

    harness.set_time(10)

    assert (call.active, call.cancelled) == (False, True)
    assert_idle(harness)


@pytest.mark.parametrize("mode", MODES)
def test_the_fallback_takes_the_place_of_the_results(mode: str) -> None:
    harness = make(mode)
    put(harness, 1)
    harness.process_watermark(1)
    harness.advance(1)
    put(harness, 2)

    complete(harness, 2, 2)
    harness.set_time(10)

    assert harness.output == [("record", -1, 1), ("watermark", 1), ("record", 2, 2)]


def test_the_fallback_may_drop_the_record() -> None:
    harness = make(on_timeout=lambda _value: [])
    put(harness, 1)

    harness.set_time(10)

    assert harness.output == []
    assert (harness.queue_size, harness.failure) == (0, None)


def test_a_late_reply_is_ignored() -> None:
    harness = make()
    put(harness, 1)
    call = call_of(harness, 1)
    harness.set_time(10)

    harness.complete(call, ["late"])
    harness.fail(call, RuntimeError("late"))
    harness.run()

    assert results(harness) == [-1]
    assert harness.failure is None


def test_a_reply_that_waits_as_mail_beats_the_timeout() -> None:
    harness = make()
    put(harness, 1)

    harness.complete(call_of(harness, 1), ["in time"])
    harness.set_time(10)

    assert results(harness) == ["in time"]


def test_a_completed_record_does_not_time_out() -> None:
    harness = make()
    put(harness, 1, 2)
    complete(harness, 2, 2)

    assert harness.active_timers == 1
    harness.set_time(10)

    assert results(harness) == [-1, 2]


def test_the_clock_of_a_record_starts_at_its_admission() -> None:
    harness = make(capacity=1)
    put(harness, 1)
    harness.set_time(8)
    assert not harness.process_element(2)
    complete(harness, 1, 1)
    put(harness, 2)

    harness.set_time(17.9)
    assert results(harness) == [1]
    harness.set_time(18)

    assert results(harness) == [1, -2]


def test_no_time_passes_for_a_record_that_no_permit_is_free_for() -> None:
    harness = make(max_concurrency=1)
    put(harness, 1)
    harness.set_time(9)
    assert not harness.process_element(2)
    complete(harness, 1, 1)
    put(harness, 2)

    harness.set_time(18)
    assert call_of(harness, 2).active
    harness.set_time(19)

    assert results(harness) == [1, -2]


def test_the_time_of_a_record_stands_while_a_retry_waits_for_a_permit() -> None:
    harness = make("unordered", max_concurrency=1, retry=retry.fixed_delay(1, 2))
    put(harness, 1)
    fail(harness, 1, OSError())
    harness.set_time(1)
    put(harness, 2)

    harness.set_time(10.9)
    complete(harness, 2, 2)
    assert calls(harness) == [(1, 1), (2, 1), (1, 2)]

    # Two of its ten seconds were over when its back-off was.
    harness.set_time(18.8)
    assert results(harness) == [2]
    harness.set_time(18.9)
    assert results(harness) == [2, -1]


def test_one_timeout_covers_all_attempts_and_their_delays() -> None:
    harness = make(retry=retry.fixed_delay(9, 4))
    put(harness, 1)
    for seconds in (4, 8):
        fail(harness, 1, OSError())
        harness.set_time(seconds)

    harness.set_time(10)

    assert calls(harness) == [(1, 1), (1, 2), (1, 3)]
    assert results(harness) == [-1]
    assert_idle(harness)


def test_a_record_times_out_during_back_off() -> None:
    harness = make(retry=retry.fixed_delay(9, 30))
    put(harness, 1)
    fail(harness, 1, OSError())

    harness.set_time(10)
    harness.set_time(40)

    assert calls(harness) == [(1, 1)]
    assert results(harness) == [-1]
    assert_idle(harness)


def test_a_timeout_is_raised_from_the_last_failure_also_after_a_restore() -> None:
    options = {"timeout": 10.0, "retry": retry.fixed_delay(9, 1)}
    harness = make(on_timeout=None, **options)
    put(harness, 1)
    fail(harness, 1, OSError("first"))
    harness.set_time(2)
    fail(harness, 1, ConnectionError("second"))
    restored = OperatorTestHarness.restore(harness.snapshot(), capacity=10, **options)

    for each in (harness, restored):
        each.set_time(20)
        assert isinstance(each.failure, ElementTimeoutError)
        assert str(each.failure.__cause__) == "second"


def test_a_timeout_is_not_retried() -> None:
    harness = make(on_timeout=None, retry=retry.fixed_delay(9, 1, if_exception=Exception))
    put(harness, 1)

    harness.set_time(10)
    harness.set_time(20)

    assert calls(harness) == [(1, 1)]
    assert isinstance(harness.failure, ElementTimeoutError)


def test_a_fallback_that_matches_the_retry_predicate_is_final() -> None:
    strategy = retry.fixed_delay(9, 1, if_result=retry.if_empty)
    harness = make(on_timeout=lambda _value: [], retry=strategy)
    put(harness, 1)

    harness.set_time(10)

    assert (harness.queue_size, harness.pending_retries) == (0, 0)


def test_a_fallback_that_raises_fails_the_row() -> None:
    error = LookupError("no fallback")

    def on_timeout(_value: int) -> list[int]:
        raise error

    harness = make(on_timeout=on_timeout, retry=retry.fixed_delay(9, 1, if_exception=Exception))
    put(harness, 1)

    harness.set_time(10)

    assert_failed_with(harness, error)


def test_the_fallback_is_asked_once() -> None:
    asked: list[int] = []

    def on_timeout(value: int) -> list[int]:
        asked.append(value)
        return [-value]

    harness = make(on_timeout=on_timeout)
    put(harness, 1)
    harness.set_time(10)
    harness.set_time(100)

    assert asked == [1]


def test_without_a_timeout_a_call_may_take_for_ever() -> None:
    harness = make(timeout=None, on_timeout=None)
    put(harness, 1)
    assert harness.active_timers == 0

    harness.set_time(1e6)
    complete(harness, 1, 1)

    assert results(harness) == [1]


@pytest.mark.parametrize("timeout", [0.0009, 0.0000005])
def test_times_below_a_millisecond_are_kept(timeout: float) -> None:
    harness = make(timeout=timeout)
    put(harness, 1)

    harness.set_time(timeout * 0.9)
    assert harness.output == []
    harness.set_time(timeout * 1.1)

    assert results(harness) == [-1]


def test_an_attempt_that_takes_too_long_is_cancelled_and_retried() -> None:
    harness = make(attempt_timeout=2, retry=retry.fixed_delay(1, 1))
    put(harness, 1)
    first = call_of(harness, 1)

    harness.set_time(2)
    assert first.cancelled
    assert harness.pending_retries == 1
    harness.set_time(3)
    harness.complete(first, ["late"])
    complete(harness, 1, "second")

    assert results(harness) == ["second"]
    assert_idle(harness)


def test_the_last_attempt_that_takes_too_long_fails_the_row() -> None:
    harness = make(attempt_timeout=2, on_timeout=None)
    put(harness, 1)

    harness.set_time(2)

    assert isinstance(harness.failure, ElementTimeoutError)
    assert_idle(harness)


def test_the_time_of_an_attempt_starts_with_its_call() -> None:
    harness = make(attempt_timeout=4, max_concurrency=1)
    put(harness, 1)
    harness.set_time(3)
    complete(harness, 1, 1)
    put(harness, 2)

    harness.set_time(6)
    assert call_of(harness, 2).active
    complete(harness, 2, 2)

    assert results(harness) == [1, 2]


def test_an_attempt_that_takes_too_long_gives_its_permit_back() -> None:
    harness = make(attempt_timeout=2, max_concurrency=1, retry=retry.fixed_delay(1, 1))
    put(harness, 1)

    harness.set_time(2)
    put(harness, 2)

    assert calls(harness) == [(1, 1), (2, 1)]
    assert harness.pending_retries == 1


def test_an_attempt_that_takes_too_long_keeps_its_key() -> None:
    harness = OperatorTestHarness(
        mode="key_ordered",
        capacity=2,
        key=lambda value: value[0],
        timeout=60,
        attempt_timeout=2,
        retry=retry.fixed_delay(1, 1),
    )
    put(harness, "a1", "a2")

    harness.set_time(3)

    assert calls(harness) == [("a1", 1), ("a1", 2)]


def test_an_attempt_and_its_row_that_time_out_at_once_have_one_outcome() -> None:
    harness = make(attempt_timeout=10, retry=retry.fixed_delay(1, 1))
    put(harness, 1)

    harness.set_time(10)
    harness.set_time(60)

    assert results(harness) == [-1]
    assert calls(harness) == [(1, 1)]
    assert_idle(harness)


@pytest.mark.parametrize("steps", [[9], [1] * 9, [0.5] * 18])
def test_a_large_step_of_the_clock_does_what_small_ones_do(steps: list[float]) -> None:
    harness = make(attempt_timeout=1, retry=retry.fixed_delay(9, 2))
    put(harness, 1)

    for step in steps:
        harness.advance(step)
    assert calls(harness) == [(1, 1), (1, 2), (1, 3), (1, 4)]
    harness.advance(1)

    assert results(harness) == [-1]
