# SPDX-License-Identifier: Apache-2.0
"""Retry strategies: how often, after how long, and for what."""

import pickle
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from sparkawait import ConfigurationError, RetryAfter, retry
from sparkawait.exceptions import ErrorKind


def test_a_strategy_allows_as_many_further_attempts_as_it_says():
    strategy = retry.fixed_delay(10, "100ms")
    assert strategy.can_retry(10)
    assert not strategy.can_retry(11)


def test_a_fixed_delay_is_the_same_after_every_attempt():
    strategy = retry.fixed_delay(3, "100ms")
    assert [strategy.get_backoff_time_millis(attempt) for attempt in (1, 2, 3)] == [100, 100, 100]


def test_an_exponential_delay_grows_up_to_its_maximum():
    strategy = retry.exponential_backoff(10, "100ms", "2s", jitter="none")
    delays = [strategy.get_backoff_time_millis(attempt) for attempt in range(1, 8)]
    assert delays == [100, 200, 400, 800, 1600, 2000, 2000]


def test_a_delay_is_computed_from_the_attempt_alone():
    strategy = retry.exponential_backoff(10, "100ms", "2s", multiplier=3)
    assert strategy.get_backoff_time_millis(3) == pytest.approx(900)
    assert strategy.get_backoff_time_millis(1) == 100
    assert strategy.get_backoff_time_millis(3) == pytest.approx(900)


@pytest.mark.parametrize("attempt", [-1, 0, 1])
def test_attempts_before_the_first_have_the_first_delay(attempt):
    assert retry.exponential_backoff(3, "1s", "9s").get_backoff_time_millis(attempt) == 1000


def test_a_late_attempt_does_not_overflow():
    assert retry.exponential_backoff(9, 1, 60, 10).get_backoff_time_millis(10**9) == 60_000
    assert retry.exponential_backoff(9, 1, 60, 1).get_backoff_time_millis(10**9) == 1000
    assert retry.exponential_backoff(9, 0, 60).get_backoff_time_millis(5) == 0


def test_without_predicates_every_exception_is_retried_and_no_result():
    strategy = retry.fixed_delay(1, 0)
    assert strategy.retries_exception(ValueError())
    assert not strategy.retries_exception(KeyboardInterrupt())
    assert not strategy.retries_result([])


def test_with_only_a_result_predicate_no_exception_is_retried():
    strategy = retry.fixed_delay(1, 0, if_result=retry.if_empty)
    assert strategy.retries_result([])
    assert not strategy.retries_result([{"a": 1}])
    assert not strategy.retries_exception(ValueError())


def test_an_exception_predicate_is_a_class_several_or_a_callable():
    assert retry.fixed_delay(1, 0, if_exception=OSError).retries_exception(ConnectionError())
    assert not retry.fixed_delay(1, 0, if_exception=(KeyError,)).retries_exception(OSError())
    assert retry.fixed_delay(1, 0, if_exception=lambda e: "x" in str(e)).retries_exception(
        ValueError("x")
    )


def test_retry_after_is_retried_whatever_the_predicates_say():
    assert retry.fixed_delay(1, 0, if_exception=KeyError).retries_exception(RetryAfter("1s"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_retries": 0},
        {"max_retries": -1},
        {"max_retries": True},
        {"max_retries": 1.5},
        {"max_retries": 2**31},
        {"if_result": 5},
        {"if_exception": "ValueError"},
        {"if_exception": int},
        {"if_exception": (OSError, 5)},
        {"maximum": "1ms"},
        {"multiplier": 0.5},
        {"multiplier": float("nan")},
        {"multiplier": True},
        {"jitter": "some"},
    ],
    ids=repr,
)
def test_a_strategy_that_makes_no_sense_is_refused(arguments):
    good = {"max_retries": 1, "initial": "1s", "maximum": "2s"}
    with pytest.raises(ConfigurationError) as info:
        retry.exponential_backoff(**{**good, **arguments})
    assert info.value.kind is ErrorKind.RETRY_INVALID


@pytest.mark.parametrize("delay", ["soon", -1, None])
def test_a_delay_that_is_none_is_refused(delay):
    with pytest.raises(ConfigurationError):
        retry.fixed_delay(1, delay)


def test_a_strategy_survives_pickling():
    strategy = retry.exponential_backoff(3, "1s", "5s", if_exception=(OSError, KeyError))
    assert pickle.loads(pickle.dumps(strategy)) == strategy  # noqa: S301 - just made


@pytest.mark.parametrize(
    ("delay", "seconds"), [("2s", 2), (0.5, 0.5), (timedelta(minutes=1), 60), ("120", 120)]
)
def test_retry_after_takes_a_duration_or_the_seconds_of_a_header(delay, seconds):
    assert RetryAfter(delay).delay == seconds


def test_retry_after_takes_the_date_of_a_header():
    now = datetime.now(timezone.utc)
    assert RetryAfter(format_datetime(now - timedelta(hours=1), usegmt=True)).delay == 0
    assert 3500 < RetryAfter(format_datetime(now + timedelta(hours=1), usegmt=True)).delay < 3601


@pytest.mark.parametrize("delay", ["soon", "", -1, None])
def test_retry_after_refuses_what_is_no_delay(delay):
    with pytest.raises(ConfigurationError):
        RetryAfter(delay)


def test_retry_after_refuses_what_is_no_bool():
    with pytest.raises(ConfigurationError, match="`channel` of RetryAfter must be a bool, got 1"):
        RetryAfter(1, channel=1)


def test_retry_after_survives_pickling():
    error = RetryAfter("2s", "slow down", channel=True)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - just made
    assert (copy.delay, str(copy), copy.channel) == (2.0, "slow down", True)


def test_if_miss_retries_an_empty_list_and_still_every_exception():
    strategy = retry.fixed_delay(2, "1s").if_miss()

    assert strategy.retries_result([])
    assert not strategy.retries_result([{"x": 1}])
    assert strategy.retries_exception(ValueError())
