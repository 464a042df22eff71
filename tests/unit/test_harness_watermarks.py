# SPDX-License-Identifier: Apache-2.0
"""How watermarks travel among records."""

from __future__ import annotations

import pytest

from sparkawait.testing import OperatorTestHarness
from tests.support.harness import complete, put, record, watermark

MODES = ["ordered", "unordered", "key_ordered"]


def make(mode: str, capacity: int = 4) -> OperatorTestHarness:
    """Makes a harness; in key-ordered mode every value is its own key."""
    key = (lambda value: value) if mode == "key_ordered" else None
    return OperatorTestHarness(mode=mode, capacity=capacity, key=key)


@pytest.mark.parametrize("mode", MODES)
def test_a_watermark_passes_an_empty_queue_at_once(mode: str) -> None:
    harness = make(mode)

    harness.process_watermark(1)
    harness.run()
    assert harness.output == [watermark(1)]
    harness.process_watermark(2)
    harness.run()

    assert harness.output == [watermark(1), watermark(2)]


@pytest.mark.parametrize("mode", MODES)
def test_a_watermark_waits_for_every_record_before_it(mode: str) -> None:
    harness = make(mode)
    put(harness, 1, 2)
    harness.process_watermark(2)

    complete(harness, 1, "a")
    assert harness.output == [record("a", 1)]
    complete(harness, 2, "b")

    assert harness.output == [record("a", 1), record("b", 2), watermark(2)]


@pytest.mark.parametrize("mode", MODES)
def test_a_watermark_holds_back_every_record_behind_it(mode: str) -> None:
    harness = make(mode)
    put(harness, 1)
    harness.process_watermark(1)
    put(harness, 2)

    complete(harness, 2, "b")
    assert harness.output == []
    complete(harness, 1, "a")

    assert harness.output == [record("a", 1), watermark(1), record("b", 2)]


@pytest.mark.parametrize("mode", MODES)
def test_watermarks_with_no_record_between_them_conflate_to_the_later(mode: str) -> None:
    harness = make(mode)
    put(harness, 1)
    for timestamp in (1, 2, 3):
        harness.process_watermark(timestamp)
    put(harness, 4)
    harness.process_watermark(4)

    complete(harness, 4, "d")
    complete(harness, 1, "a")

    assert harness.output == [record("a", 1), watermark(3), record("d", 4), watermark(4)]


@pytest.mark.parametrize("mode", MODES)
def test_a_full_queue_still_takes_a_watermark(mode: str) -> None:
    harness = make(mode, capacity=1)
    put(harness, 1)

    harness.process_watermark(1)
    complete(harness, 1, "a")

    assert harness.output == [record("a", 1), watermark(1)]


@pytest.mark.parametrize("mode", MODES)
def test_a_dropped_record_lets_its_watermark_go(mode: str) -> None:
    harness = make(mode)
    put(harness, 1)
    harness.process_watermark(1)

    complete(harness, 1)

    assert harness.output == [watermark(1)]


def test_a_watermark_for_every_record_makes_unordered_output_ordered() -> None:
    harness = make("unordered")
    for value in (1, 2, 3):
        put(harness, value)
        harness.process_watermark(value)

    for value in (3, 2, 1):
        complete(harness, value, value)

    assert harness.output == [
        element for value in (1, 2, 3) for element in (record(value, value), watermark(value))
    ]
