# SPDX-License-Identifier: Apache-2.0
"""Options and calls that the harness refuses."""

from __future__ import annotations

import pytest

from sparkawait import retry
from sparkawait.exceptions import ConfigurationError, ErrorKind, OperatorStateError
from sparkawait.testing import OperatorTestHarness
from tests.support.harness import put


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"capacity": 0}, ErrorKind.CAPACITY_NOT_POSITIVE),
        ({"capacity": -1}, ErrorKind.CAPACITY_NOT_POSITIVE),
        ({"max_concurrency": 0}, ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE),
        ({"timeout": 0}, ErrorKind.TIMEOUT_NOT_POSITIVE),
        ({"timeout": -1}, ErrorKind.TIMEOUT_NOT_POSITIVE),
        ({"timeout": 1, "attempt_timeout": 0}, ErrorKind.TIMEOUT_NOT_POSITIVE),
        ({"timeout": None, "retry": retry.fixed_delay(1, 1)}, ErrorKind.RETRY_NEEDS_TIMEOUT),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, object], kind: ErrorKind) -> None:
    with pytest.raises(ConfigurationError) as info:
        OperatorTestHarness(**{"mode": "ordered", "capacity": 2, **options})

    assert info.value.kind is kind


@pytest.mark.parametrize("mode", ["ORDERED", "fast", "", None])
def test_an_unknown_mode_is_refused(mode: object) -> None:
    with pytest.raises(ConfigurationError):
        OperatorTestHarness(mode=mode, capacity=2)


def test_key_ordered_mode_needs_a_key() -> None:
    with pytest.raises(ConfigurationError, match="key"):
        OperatorTestHarness(mode="key_ordered", capacity=2)


def test_the_message_names_the_value_and_the_rule() -> None:
    with pytest.raises(ConfigurationError, match="`capacity` must be an int of at least 1, got 0"):
        OperatorTestHarness(mode="ordered", capacity=0)


def test_wrong_options_are_refused_on_restore_too() -> None:
    snapshot = OperatorTestHarness(mode="ordered", capacity=1).snapshot()

    with pytest.raises(ConfigurationError):
        OperatorTestHarness.restore(snapshot, mode="ordered", capacity=0)


def test_an_element_after_the_end_of_input_is_refused() -> None:
    harness = OperatorTestHarness(mode="ordered", capacity=2)
    harness.end_input()

    with pytest.raises(OperatorStateError):
        harness.process_element(1)


def test_the_end_of_input_may_be_told_twice() -> None:
    harness = OperatorTestHarness(mode="ordered", capacity=2)
    harness.end_input()
    harness.end_input()
    harness.run()

    assert harness.finished


def test_the_clock_does_not_go_back() -> None:
    harness = OperatorTestHarness(
        mode="ordered", capacity=2, timeout=10, on_timeout=lambda value: [-value]
    )
    harness.set_time(100)
    put(harness, 1)

    with pytest.raises(ValueError, match="clock"):
        harness.set_time(99)
