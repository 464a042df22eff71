# SPDX-License-Identifier: Apache-2.0
"""Replies that fail, come twice, come late or make no sense."""

from __future__ import annotations

import pytest

from sparkawait import retry
from sparkawait.exceptions import AsyncFunctionError, ErrorKind, ResultError
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


def make(mode: str = "ordered", **options: object) -> OperatorTestHarness:
    """Makes a harness with four slots."""
    key = (lambda value: value) if mode == "key_ordered" else None
    return OperatorTestHarness(mode=mode, key=key, **{"capacity": 4, **options})


@pytest.mark.parametrize("mode", MODES)
def test_a_failure_cancels_everything_in_flight(mode: str) -> None:
    harness = make(mode, timeout=60)
    error = RuntimeError("down")
    put(harness, 1, 2, 3)
    others = [call_of(harness, 1), call_of(harness, 3)]

    fail(harness, 2, error)

    assert_failed_with(harness, error)
    assert [call.cancelled for call in others] == [True, True]
    assert not any(call.active for call in harness.invocations)


@pytest.mark.parametrize("mode", MODES)
def test_what_completed_before_a_failure_in_emission_order_is_emitted(mode: str) -> None:
    harness = make(mode)
    put(harness, 1, 2)
    first, second = running(harness)

    harness.complete(first, ["emitted"])
    harness.fail(second, RuntimeError("down"))
    harness.run()

    assert results(harness) == ["emitted"]
    assert isinstance(harness.failure, AsyncFunctionError)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_emitted_after_a_failure(mode: str) -> None:
    harness = make(mode)
    put(harness, 1, 2)
    first, second = running(harness)

    harness.fail(first, RuntimeError("down"))
    harness.complete(second, ["never emitted"])
    harness.run()
    harness.run()

    assert harness.output == []


def test_a_failure_behind_a_pending_row_fails_the_task_at_once() -> None:
    harness = make("ordered")
    error = RuntimeError("down")
    put(harness, 1, 2)

    fail(harness, 2, error)

    assert_failed_with(harness, error)


def test_the_first_failure_stands() -> None:
    harness = make("unordered")
    errors = [RuntimeError("first"), RuntimeError("second")]
    put(harness, 1, 2)

    for call, error in zip(running(harness), errors, strict=True):
        harness.fail(call, error)
    harness.run()

    assert_failed_with(harness, errors[0])


def test_a_failed_task_takes_no_element() -> None:
    harness = make()
    put(harness, 1)
    fail(harness, 1, RuntimeError("down"))

    assert not harness.process_element(2)
    assert calls(harness) == [(1, 1)]


def test_a_reply_after_a_failure_is_ignored() -> None:
    harness = make()
    put(harness, 1, 2)
    second = call_of(harness, 2)
    fail(harness, 1, RuntimeError("down"))

    harness.complete(second, ["late"])
    harness.run()

    assert harness.output == []


def test_time_after_a_failure_changes_nothing() -> None:
    harness = make(timeout=5)
    error = RuntimeError("down")
    put(harness, 1, 2)
    fail(harness, 1, error)

    harness.set_time(100)

    assert_failed_with(harness, error)


def test_a_reply_is_mail_and_takes_effect_when_the_mailbox_runs() -> None:
    harness = make()
    put(harness, 1, 2)
    first, second = running(harness)

    harness.complete(first, [1])
    harness.fail(second, RuntimeError("down"))
    assert (harness.output, harness.failure) == ([], None)
    harness.run()

    assert results(harness) == [1]
    assert harness.failure is not None


def test_the_first_reply_to_an_attempt_wins() -> None:
    harness = make()
    put(harness, 1)
    call = call_of(harness, 1)

    harness.complete(call, ["first"])
    harness.complete(call, ["second"])
    harness.fail(call, RuntimeError("third"))
    harness.run()

    assert results(harness) == ["first"]
    assert harness.failure is None


def test_a_failure_that_came_first_wins_over_a_result() -> None:
    harness = make()
    error = RuntimeError("first")
    put(harness, 1)
    call = call_of(harness, 1)

    harness.fail(call, error)
    harness.complete(call, ["second"])
    harness.run()

    assert_failed_with(harness, error)
    assert harness.output == []


def test_a_reply_to_an_emitted_record_is_ignored() -> None:
    harness = make()
    put(harness, 1)
    call = call_of(harness, 1)
    complete(harness, 1, "first")

    harness.complete(call, ["second"])
    harness.run()
    put(harness, 2)
    complete(harness, 2, "other")

    assert results(harness) == ["first", "other"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, ErrorKind.RESULT_IS_NONE),
        ("text", ErrorKind.RESULT_NOT_A_LIST),
        ({"a": 1}, ErrorKind.RESULT_NOT_A_LIST),
    ],
)
def test_a_reply_that_is_not_a_list_fails_the_task(answer: object, kind: ErrorKind) -> None:
    harness = make()
    put(harness, 1)

    harness.complete(call_of(harness, 1), answer)
    harness.run()

    assert isinstance(harness.failure, ResultError)
    assert harness.failure.kind is kind
    assert "list" in str(harness.failure)
    assert_idle(harness)


def test_a_none_from_the_fallback_fails_the_task() -> None:
    harness = make(timeout=5, on_timeout=lambda _value: None)
    put(harness, 1)

    harness.set_time(5)

    assert isinstance(harness.failure, ResultError)
    assert harness.failure.kind is ErrorKind.RESULT_IS_NONE


def test_the_failure_names_the_attempts_and_keeps_the_cause() -> None:
    harness = make()
    error = KeyError("user code")
    put(harness, 1)

    fail(harness, 1, error)

    assert isinstance(harness.failure, AsyncFunctionError)
    assert harness.failure.__cause__ is error
    assert harness.failure.attempts == 1


def test_a_failure_ends_the_wait_for_every_retry() -> None:
    harness = make(timeout=60, retry=retry.fixed_delay(1, 5, if_exception=OSError))
    error = ValueError("bad row")
    put(harness, 1, 2)
    fail(harness, 1, OSError())

    fail(harness, 2, error)
    assert_failed_with(harness, error)
    harness.advance(5)

    assert calls(harness) == [(1, 1), (2, 1)]


def test_a_reply_after_close_is_ignored() -> None:
    harness = make(timeout=60)
    put(harness, 1, 2)
    late, forgotten = running(harness)
    harness.close()

    harness.complete(late, ["late"])
    harness.fail(forgotten, RuntimeError("late"))
    harness.run()

    assert (harness.output, harness.failure) == ([], None)
    assert late.cancelled
    assert_idle(harness)
