# SPDX-License-Identifier: Apache-2.0
"""One call at a time per key, and the order of each key.

The key of a value is its first letter; values that begin with ``-`` have no key.
"""

from __future__ import annotations

from sparkawait import retry
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import (
    call_of,
    calls,
    complete,
    fail,
    finish,
    put,
    results,
    running,
    watermark,
)


def options(**changes: object) -> dict[str, object]:
    """Returns options of a key-ordered harness."""
    return {"mode": "key_ordered", "capacity": 6, "key": key_of, **changes}


def key_of(value: str) -> str | None:
    """Returns the first letter, or no key."""
    return None if value[0] == "-" else value[0]


def values_running(harness: OperatorTestHarness) -> list[str]:
    """Returns the values of the calls in flight."""
    return [call.value for call in running(harness)]


def test_records_of_one_key_are_called_one_after_the_other() -> None:
    harness = OperatorTestHarness(**options())
    put(harness, "a1", "a2", "a3")

    for value in ("a1", "a2", "a3"):
        assert values_running(harness) == [value]
        complete(harness, value, value)

    assert results(harness) == ["a1", "a2", "a3"]


def test_different_keys_run_in_parallel_and_leave_as_they_complete() -> None:
    harness = OperatorTestHarness(**options())
    put(harness, "a1", "b1", "a2", "c1")
    assert values_running(harness) == ["a1", "b1", "c1"]

    for value in ("c1", "a1", "a2", "b1"):
        complete(harness, value, value)

    assert results(harness) == ["c1", "a1", "a2", "b1"]


def test_blocked_records_count_for_the_capacity() -> None:
    harness = OperatorTestHarness(**options(capacity=3))
    put(harness, "a1", "a2", "a3")

    assert harness.queue_size == 3
    assert not harness.process_element("b1")


def test_a_blocked_record_does_not_take_the_permit_of_another_key() -> None:
    harness = OperatorTestHarness(**options(max_concurrency=2))

    put(harness, "a1", "a2", "b1")
    assert values_running(harness) == ["a1", "b1"]
    assert not harness.process_element("c1")
    complete(harness, "b1", "b1")
    put(harness, "c1")

    assert values_running(harness) == ["a1", "c1"]


def test_records_without_a_key_are_not_ordered_among_each_other() -> None:
    harness = OperatorTestHarness(**options())
    put(harness, "-1", "-2", "-3")
    assert values_running(harness) == ["-1", "-2", "-3"]

    for value in ("-3", "-1", "-2"):
        complete(harness, value, value)

    assert results(harness) == ["-3", "-1", "-2"]


def test_a_record_in_back_off_keeps_its_key() -> None:
    changes = {"timeout": 60, "retry": retry.fixed_delay(1, 5)}
    harness = OperatorTestHarness(**options(**changes))
    put(harness, "a1", "a2")
    fail(harness, "a1", OSError())
    assert values_running(harness) == []

    harness.advance(5)
    assert values_running(harness) == ["a1"]
    complete(harness, "a1", "a1")
    complete(harness, "a2", "a2")

    assert results(harness) == ["a1", "a2"]
    assert calls(harness) == [("a1", 1), ("a1", 2), ("a2", 1)]


def test_a_timeout_frees_the_key() -> None:
    changes = {"timeout": 5, "on_timeout": lambda value: [f"late {value}"]}
    harness = OperatorTestHarness(**options(**changes))
    put(harness, "a1")
    harness.advance(1)
    put(harness, "a2")

    harness.set_time(5)
    assert values_running(harness) == ["a2"]
    complete(harness, "a2", "a2")

    assert results(harness) == ["late a1", "a2"]


def test_blocked_records_have_all_of_their_time_and_end_together_in_silence() -> None:
    changes = {"timeout": 5, "max_wait": 4, "on_timeout": lambda value: [f"late {value}"]}
    harness = OperatorTestHarness(**options(**changes))
    put(harness, "a1", "a2", "a3", "a4")

    harness.set_time(5)
    assert results(harness) == ["late a1"]
    harness.set_time(9.9)
    assert results(harness) == ["late a1"]
    harness.set_time(10)

    # Nothing was answered for 5 s, and `a3` and `a4` have waited for 4 s since then.
    assert results(harness) == ["late a1", "late a2", "late a3", "late a4"]
    assert calls(harness) == [("a1", 1), ("a2", 1)]


def test_a_dropped_record_frees_its_key() -> None:
    harness = OperatorTestHarness(**options())
    put(harness, "a1", "a2")

    complete(harness, "a1")

    assert values_running(harness) == ["a2"]


def test_a_watermark_closes_an_epoch_in_both_directions() -> None:
    harness = OperatorTestHarness(**options())
    put(harness, "a1", "b1")
    harness.process_watermark(1)
    put(harness, "c1")

    complete(harness, "c1", "c1")
    complete(harness, "b1", "b1")
    assert results(harness) == ["b1"]
    complete(harness, "a1", "a1")

    assert results(harness) == ["b1", "a1", "c1"]
    assert harness.output.index(watermark(1)) == 2


def test_only_the_output_of_a_later_epoch_waits() -> None:
    harness = OperatorTestHarness(**options())
    put(harness, "a1", "b1")
    harness.process_watermark(1)
    put(harness, "b2")
    assert values_running(harness) == ["a1", "b1"]

    complete(harness, "b1", "b1")
    assert values_running(harness) == ["a1", "b2"]
    complete(harness, "b2", "b2")

    assert results(harness) == ["b1"]
    assert watermark(1) not in harness.output


def test_the_watermark_before_the_end_of_input_is_emitted() -> None:
    harness = OperatorTestHarness(**options())
    put(harness, "a1", "a2")
    harness.process_watermark(7)

    finish(harness, lambda value: [value])

    assert results(harness) == ["a1", "a2"]
    assert harness.output[-1] == watermark(7)


def test_a_restored_key_is_still_served_in_order() -> None:
    source = OperatorTestHarness(**options())
    put(source, "a1", "b1", "a2")
    source.process_watermark(1)
    put(source, "a3")

    restored = OperatorTestHarness.restore(source.snapshot(), **options())
    assert values_running(restored) == ["a1", "b1"]
    finish(restored, lambda value: [value])

    assert [value for value in results(restored) if value[0] == "a"] == ["a1", "a2", "a3"]
    assert restored.output[3] == watermark(1)


def test_a_restored_record_in_back_off_keeps_its_key() -> None:
    changes = {"timeout": 60, "retry": retry.fixed_delay(1, 5)}
    source = OperatorTestHarness(**options(**changes))
    put(source, "a1", "a2")
    fail(source, "a1", OSError())

    restored = OperatorTestHarness.restore(source.snapshot(), **options(**changes))
    assert values_running(restored) == []
    restored.advance(5)

    assert values_running(restored) == ["a1"]
    assert call_of(restored, "a1").attempt == 2


def test_equal_keys_of_different_objects_are_one_key() -> None:
    harness = OperatorTestHarness(**options(key=lambda value: ("tuple", value[0])))

    put(harness, "a1", "a2")

    assert values_running(harness) == ["a1"]
