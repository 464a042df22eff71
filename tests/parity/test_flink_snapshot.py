# SPDX-License-Identifier: Apache-2.0
"""Flink's `AsyncWaitOperatorTest`: snapshot and restore."""

from __future__ import annotations

from sparkawait.testing import OperatorTestHarness
from tests.support.harness import answer, calls, complete, double, finish, put, records, results


def test_state_snapshot_and_restore() -> None:
    """AWO-06 testStateSnapshotAndRestore: calls in flight are made again, before new records.

    A8: the result of record 2, which was there but not emitted, is kept; Flink calls it again.
    """
    source = OperatorTestHarness(mode="ordered", capacity=4)
    put(source, 1, 2, 3, 4)
    complete(source, 2, "kept")

    restored = OperatorTestHarness.restore(source.snapshot(), mode="ordered", capacity=6)
    put(restored, 5, 6)
    during_replay = restored.snapshot()
    answer(restored, double)
    put(restored, 7, 8)
    finish(restored, double)

    assert [value for value, _attempt in calls(restored)] == [1, 3, 4, 5, 6, 7, 8]
    expected = [(2, 1), ("kept", 2), (6, 3), (8, 4), (10, 5), (12, 6), (14, 7), (16, 8)]
    assert records(restored) == expected
    again = OperatorTestHarness.restore(during_replay, mode="ordered", capacity=6)
    finish(again, double)
    assert records(again) == expected[:6]


def test_restart_with_full_queue() -> None:
    """AWO-20 testRestartWithFullQueue: a full queue fits into the same capacity (FLINK-7949)."""
    source = OperatorTestHarness(mode="ordered", capacity=10)
    put(source, *range(10))
    assert not source.process_element(10)

    restored = OperatorTestHarness.restore(source.snapshot(), mode="ordered", capacity=10)
    assert not restored.process_element(10)
    finish(restored, lambda value: [value])

    assert results(restored) == list(range(10))
