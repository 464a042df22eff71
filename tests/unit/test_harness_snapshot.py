# SPDX-License-Identifier: Apache-2.0
"""What a snapshot keeps and what a restored operator does with it."""

from __future__ import annotations

import pytest

from sparkawait import retry
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import (
    answer,
    calls,
    complete,
    fail,
    finish,
    put,
    record,
    records,
    results,
    running,
    watermark,
)

MODES = ["ordered", "unordered", "key_ordered"]


def options(mode: str, **changes: object) -> dict[str, object]:
    """Returns options of a harness; in key-ordered mode every value is its own key."""
    key = (lambda value: value) if mode == "key_ordered" else None
    return {"mode": mode, "key": key, "capacity": 5, **changes}


def echo(value: object) -> list[object]:
    """Answers with the value."""
    return [value]


@pytest.mark.parametrize("mode", MODES)
def test_a_snapshot_changes_nothing_and_is_not_changed(mode: str) -> None:
    harness = OperatorTestHarness(**options(mode))
    put(harness, 1, 2)
    complete(harness, 1, 1)

    snapshot = harness.snapshot()
    assert (harness.in_flight, harness.queue_size) == (1, 1)
    put(harness, 3)
    finish(harness, echo)

    assert results(harness) == [1, 2, 3]
    for _ in range(2):
        restored = OperatorTestHarness.restore(snapshot, **options(mode))
        put(restored, 4)
        finish(restored, echo)
        assert results(restored) == [2, 4]


@pytest.mark.parametrize("mode", MODES)
def test_calls_in_flight_are_made_again_in_arrival_order(mode: str) -> None:
    source = OperatorTestHarness(**options(mode))
    put(source, 3, 1, 2)

    restored = OperatorTestHarness.restore(source.snapshot(), **options(mode))

    assert [(call.value, call.timestamp) for call in running(restored)] == [(3, 3), (1, 1), (2, 2)]
    assert restored.queue_size == 3


@pytest.mark.parametrize("mode", MODES)
def test_emitted_records_are_not_in_the_snapshot(mode: str) -> None:
    source = OperatorTestHarness(**options(mode))
    put(source, 1, 2)
    complete(source, 1, 1)

    restored = OperatorTestHarness.restore(source.snapshot(), **options(mode))
    finish(restored, echo)

    assert results(restored) == [2]


def test_completed_results_are_kept_and_not_called_again() -> None:
    source = OperatorTestHarness(**options("ordered"))
    put(source, 1, 2, 3)
    complete(source, 2, "two", "zwei")
    complete(source, 3)

    restored = OperatorTestHarness.restore(source.snapshot(), **options("ordered"))
    assert calls(restored) == [(1, 1)]
    complete(restored, 1, "one")

    assert records(restored) == [("one", 1), ("two", 2), ("zwei", 2)]
    assert restored.queue_size == 0


@pytest.mark.parametrize("mode", MODES)
def test_watermarks_stay_in_their_place(mode: str) -> None:
    source = OperatorTestHarness(**options(mode))
    put(source, 1)
    source.process_watermark(1)
    put(source, 2)
    source.process_watermark(2)
    complete(source, 2, "b")

    restored = OperatorTestHarness.restore(source.snapshot(), **options(mode))
    complete(restored, 1, "a")

    assert restored.output == [record("a", 1), watermark(1), record("b", 2), watermark(2)]


def test_the_attempt_number_is_kept() -> None:
    changes = {"timeout": 3600, "retry": retry.fixed_delay(2, 1)}
    source = OperatorTestHarness(**options("ordered", **changes))
    put(source, 1)
    fail(source, 1, OSError())
    source.advance(1)

    restored = OperatorTestHarness.restore(source.snapshot(), **options("ordered", **changes))
    assert calls(restored) == [(1, 2)]
    fail(restored, 1, OSError())
    restored.advance(1)
    fail(restored, 1, OSError())

    assert calls(restored) == [(1, 2), (1, 3)]
    assert restored.failure is not None


def test_a_record_in_back_off_waits_for_the_rest_of_its_delay() -> None:
    changes = {"timeout": 3600, "retry": retry.fixed_delay(2, 10)}
    source = OperatorTestHarness(**options("ordered", **changes))
    put(source, 1)
    fail(source, 1, OSError())
    source.advance(6)

    restored = OperatorTestHarness.restore(source.snapshot(), **options("ordered", **changes))
    restored.advance(3.9)
    assert calls(restored) == []
    restored.advance(0.1)

    assert calls(restored) == [(1, 2)]


def test_the_time_left_is_kept() -> None:
    changes = {"timeout": 10, "on_timeout": lambda value: [-value]}
    source = OperatorTestHarness(**options("ordered", **changes))
    put(source, 1)
    source.advance(6)

    restored = OperatorTestHarness.restore(source.snapshot(), **options("ordered", **changes))
    restored.advance(3.9)
    assert restored.output == []
    restored.advance(0.1)

    assert results(restored) == [-1]


@pytest.mark.parametrize("mode", MODES)
def test_a_full_queue_fits_into_the_same_capacity(mode: str) -> None:
    source = OperatorTestHarness(**options(mode, capacity=3))
    put(source, 1, 2, 3)

    restored = OperatorTestHarness.restore(source.snapshot(), **options(mode, capacity=3))
    finish(restored, echo)

    assert results(restored) == [1, 2, 3]


@pytest.mark.parametrize("mode", MODES)
def test_a_smaller_capacity_replays_as_slots_become_free(mode: str) -> None:
    source = OperatorTestHarness(**options(mode))
    put(source, 1, 2)
    source.process_watermark(2)
    put(source, 3)

    restored = OperatorTestHarness.restore(source.snapshot(), **options(mode, capacity=1))
    for value in (1, 2, 3):
        assert [call.value for call in running(restored)] == [value]
        assert restored.queue_size == 1
        complete(restored, value, value)

    assert restored.output == [record(1, 1), record(2, 2), watermark(2), record(3, 3)]


def test_completed_results_beyond_a_smaller_capacity_are_kept() -> None:
    source = OperatorTestHarness(**options("ordered"))
    put(source, 1, 2, 3)
    complete(source, 2, "kept")

    restored = OperatorTestHarness.restore(source.snapshot(), **options("ordered", capacity=1))
    finish(restored, echo)

    assert results(restored) == [1, "kept", 3]
    assert [value for value, _attempt in calls(restored)] == [1, 3]


def test_new_records_come_behind_replayed_ones() -> None:
    source = OperatorTestHarness(**options("ordered"))
    put(source, 1, 2, 3)

    restored = OperatorTestHarness.restore(source.snapshot(), **options("ordered", capacity=2))
    assert not restored.process_element(4)
    complete(restored, 1, 1)
    assert not restored.process_element(4)
    complete(restored, 2, 2)
    put(restored, 4)
    finish(restored, echo)

    assert results(restored) == [1, 2, 3, 4]


@pytest.mark.parametrize("mode", MODES)
def test_a_watermark_that_comes_during_the_replay_stays_behind_it(mode: str) -> None:
    source = OperatorTestHarness(**options(mode))
    put(source, 1, 2)

    restored = OperatorTestHarness.restore(source.snapshot(), **options(mode, capacity=1))
    restored.process_watermark(2)
    finish(restored, echo)

    assert restored.output == [record(1, 1), record(2, 2), watermark(2)]


@pytest.mark.parametrize("mode", MODES)
def test_a_snapshot_during_the_replay_holds_what_still_waits(mode: str) -> None:
    source = OperatorTestHarness(**options(mode))
    put(source, 1, 2, 3)
    first = OperatorTestHarness.restore(source.snapshot(), **options(mode, capacity=1))
    complete(first, 1, 1)

    second = OperatorTestHarness.restore(first.snapshot(), **options(mode))
    finish(second, echo)

    assert results(second) == [2, 3]


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_operator_has_an_empty_snapshot(mode: str) -> None:
    source = OperatorTestHarness(**options(mode))

    restored = OperatorTestHarness.restore(source.snapshot(), **options(mode))

    assert (restored.queue_size, restored.output) == (0, [])
    put(restored, 1)
    finish(restored, echo)
    assert results(restored) == [1]


def test_values_and_results_may_be_any_object() -> None:
    source = OperatorTestHarness(**options("ordered"))
    source.process_element({"nested": [1, (2, 3)]}, timestamp=-5)
    source.process_element(None)
    own = object()
    source.complete(running(source)[1], [{"a": 1}, None, own])
    source.run()

    restored = OperatorTestHarness.restore(source.snapshot(), **options("ordered"))
    answer(restored, echo)

    assert records(restored) == [
        ({"nested": [1, (2, 3)]}, -5),
        ({"a": 1}, None),
        (None, None),
        (own, None),
    ]
