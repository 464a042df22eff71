# SPDX-License-Identifier: Apache-2.0
"""Durations mean the same in every form."""

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkawait import ConfigurationError
from sparkawait.durations import parse_duration

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}


@given(st.integers(0, 10**9), st.sampled_from(list(UNITS)), st.sampled_from(["", " ", "  "]))
def test_a_number_and_a_unit_are_multiplied(number, unit, space):
    expected = number * UNITS[unit]
    assert parse_duration(f"{number}{space}{unit}", "d") == pytest.approx(expected)


@given(st.integers(0, 100), st.integers(0, 59), st.integers(0, 59))
def test_parts_add_up(hours, minutes, seconds):
    text = f"{hours}h {minutes}min {seconds}s"
    assert parse_duration(text, "d") == hours * 3600 + minutes * 60 + seconds


@given(st.timedeltas(min_value=timedelta(0)))
def test_a_timedelta_is_its_seconds(delta):
    assert parse_duration(delta, "d") == delta.total_seconds()


@given(st.floats(0, 1e12, allow_nan=False))
def test_a_number_is_seconds(seconds):
    assert parse_duration(seconds, "d") == seconds


@given(st.none() | st.text() | st.binary() | st.floats() | st.booleans() | st.lists(st.integers()))
def test_anything_is_a_duration_that_is_not_negative_or_refused(value):
    with suppress(ConfigurationError):
        assert parse_duration(value, "d") >= 0
