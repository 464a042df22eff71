# SPDX-License-Identifier: Apache-2.0
"""Durations as users write them."""

from datetime import timedelta
from fractions import Fraction

import pytest

from sparkawait import ConfigurationError
from sparkawait._checks import parse_duration, positive_duration
from sparkawait.exceptions import ErrorKind


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5s", 5),
        ("100ms", 0.1),
        ("1.5 min", 90),
        ("1h 30min", 5400),
        (" 2 Days ", 172800),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("3ns", 3e-9),
        (".5s", 0.5),
        ("2.s", 2),
        ("10 seconds", 10),
        ("1 minute", 60),
        ("0s", 0),
        (timedelta(milliseconds=1.5), 0.0015),
        (3, 3),
        (0.25, 0.25),
        (Fraction(1, 2), 0.5),
    ],
    ids=repr,
)
def test_durations_are_read(value, seconds):
    assert parse_duration(value, "timeout") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    ["", "5", "s", "5 parsecs", "5s 3", "-5s", "1e3s", "5s;", None, [], True, b"5s", -1],
    ids=repr,
)
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ConfigurationError, match="`delay`") as info:
        parse_duration(value, "delay")
    assert info.value.kind is ErrorKind.DURATION_INVALID


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_duration_is_finite(value):
    with pytest.raises(ConfigurationError, match="`delay` must be finite"):
        parse_duration(value, "delay")


@pytest.mark.parametrize("value", [0, "0s", -1, "-1s", timedelta(0), float("nan"), float("inf")])
def test_a_timeout_is_positive(value):
    with pytest.raises(ConfigurationError, match="`timeout` must be positive") as info:
        positive_duration(value, "timeout")
    assert info.value.kind is ErrorKind.TIMEOUT_NOT_POSITIVE


def test_fractions_of_a_millisecond_are_kept():
    assert positive_duration("999us", "timeout") == pytest.approx(0.000999)


def test_the_message_says_how_to_write_it():
    with pytest.raises(ConfigurationError, match=r"as in '5s' or '100ms'"):
        parse_duration("5", "timeout")
