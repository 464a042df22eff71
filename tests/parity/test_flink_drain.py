# SPDX-License-Identifier: Apache-2.0
"""Flink's `AsyncWaitOperatorTest`: the drain at the end of a task."""

from __future__ import annotations

import pytest

from sparkawait import retry
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import assert_idle, put, running

ON_EMPTY = retry.fixed_delay(2, 0.010, if_result=retry.if_empty)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(None, id="AWO-21 testIgnoreAsyncOperatorRecordsOnDrain"),
        pytest.param(ON_EMPTY, id="AWO-22 testIgnoreAsyncOperatorRecordsOnDrainWithRetry"),
    ],
)
def test_ignore_async_operator_records_on_drain(
    strategy: retry.AsyncRetryStrategy | None,
) -> None:
    """Replies without results that wait as mail at the end of input harm nobody.

    The mailbox of the harness is never quiesced: the mail is run, and there is nothing to emit.
    """
    harness = OperatorTestHarness(mode="ordered", capacity=5, timeout=1.0, retry=strategy)
    put(harness, 1, 2)
    for call in reversed(running(harness)):
        harness.complete(call, [])

    harness.end_input()
    harness.run()
    for call in running(harness):
        harness.complete(call, [])
    harness.run()

    assert harness.finished
    assert harness.output == []
    assert harness.failure is None
    assert_idle(harness)
