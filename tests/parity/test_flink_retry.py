# SPDX-License-Identifier: Apache-2.0
"""Flink's `AsyncWaitOperatorTest`: retries."""

from __future__ import annotations

from collections import Counter

import pytest

from sparkawait import retry
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import answer, calls, double, fail, put, records, running

ON_EMPTY = retry.fixed_delay(2, 0.010, if_result=retry.if_empty)
ON_EXCEPTION = retry.fixed_delay(2, 0.010, if_exception=Exception)


def odd_is_empty(value: int) -> list[int]:
    """Answers odd values with no result, even ones with the double."""
    return [] if value % 2 else double(value)


def answer_until_idle(harness: OperatorTestHarness) -> None:
    """Lets all calls return, over all retries."""
    answer(harness, odd_is_empty)
    while harness.pending_retries:
        harness.advance(0.010)
        answer(harness, odd_is_empty)


def assert_odd_values_were_tried_three_times(harness: OperatorTestHarness) -> None:
    """Asserts one call per even value and three per odd one."""
    attempts = Counter(value for value, _attempt in calls(harness))
    assert attempts == {1: 3, 2: 1, 3: 3, 4: 1, 5: 3, 6: 1}


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("ordered", id="AWO-23 testProcessingTimeOrderedWithRetry"),
        pytest.param("unordered", id="AWO-24 testProcessingTimeUnorderedWithRetry"),
    ],
)
def test_processing_time_with_retry(mode: str) -> None:
    """Empty results are retried twice, then dropped."""
    harness = OperatorTestHarness(mode=mode, capacity=6, timeout=1.0, retry=ON_EMPTY)
    put(harness, 1, 2, 3, 4, 5, 6)

    answer_until_idle(harness)
    harness.end_input()

    assert records(harness) == [(4, 2), (8, 4), (12, 6)]
    assert_odd_values_were_tried_three_times(harness)
    assert harness.finished


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("unordered", id="AWO-25 testProcessingTimeRepeatedCompleteUnorderedWithRetry"),
        pytest.param("ordered", id="AWO-26 testProcessingTimeRepeatedCompleteOrderedWithRetry"),
    ],
)
def test_processing_time_repeated_complete_with_retry(mode: str) -> None:
    """Ten replies to one attempt count as one."""
    harness = OperatorTestHarness(mode=mode, capacity=6, timeout=1.0, retry=ON_EMPTY)
    put(harness, 1, 2, 3, 4, 5, 6)

    while burst := running(harness):
        for call in burst * 10:
            harness.complete(call, odd_is_empty(call.value))
        harness.run()
        harness.advance(0.010)

    assert records(harness) == [(4, 2), (8, 4), (12, 6)]
    assert_odd_values_were_tried_three_times(harness)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            "unordered", id="AWO-27 testProcessingTimeWithTimeoutFunctionUnorderedWithRetry"
        ),
        pytest.param("ordered", id="AWO-28 testProcessingTimeWithTimeoutFunctionOrderedWithRetry"),
    ],
)
def test_processing_time_with_timeout_function_with_retry(mode: str) -> None:
    """The timeout bounds all attempts together (FLINK-30477)."""
    strategy = retry.fixed_delay(5, 0.100, if_exception=Exception)
    harness = OperatorTestHarness(
        mode=mode, capacity=10, timeout=1.0, retry=strategy, on_timeout=lambda _value: [-1]
    )
    put(harness, 1, 2)

    harness.advance(0.501)
    for value in (1, 2):
        fail(harness, value, RuntimeError("Expected"))
    harness.advance(0.100)
    harness.set_time(1.0)

    assert records(harness) == [(-1, 1), (-1, 2)]
    assert calls(harness) == [(1, 1), (2, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("ordered", id="AWO-33 testProcessingTimeWithMailboxThreadOrderedWithRetry"),
        pytest.param(
            "unordered", id="AWO-34 testProcessingTimeWithMailboxThreadUnorderedWithRetry"
        ),
    ],
)
def test_processing_time_with_mailbox_thread_with_retry(mode: str) -> None:
    """Replies that are taken when the mailbox runs are not retried without need."""
    harness = OperatorTestHarness(mode=mode, capacity=3, timeout=1.0, retry=ON_EXCEPTION)
    put(harness, 1, 2, 3)

    answer(harness, double, newest_first=True)

    assert sorted(records(harness)) == [(2, 1), (4, 2), (6, 3)]
    assert mode == "unordered" or records(harness) == sorted(records(harness))
    assert len(harness.invocations) == 3
