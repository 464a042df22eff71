# SPDX-License-Identifier: Apache-2.0
"""Durations mean the same in every form."""

import re
from contextlib import suppress
from datetime import timedelta
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkawait import ConfigurationError
from sparkawait._checks import parse_duration

NAMES = {
    "ns": ["ns", "nanosecond", "nanoseconds"],
    "us": ["us", "µs", "\u03bcs", "microsecond", "microseconds"],
    "ms": ["ms", "millisecond", "milliseconds"],
    "s": ["s", "sec", "secs", "second", "seconds"],
    "min": ["m", "min", "mins", "minute", "minutes"],
    "h": ["h", "hour", "hours"],
    "d": ["day", "days"],
}
NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}
NANOSECONDS |= {"h": 3600 * 10**9, "d": 86400 * 10**9}
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


def read(text: str) -> Fraction | None:
    """The nanoseconds of a text, character by character and exactly; ``None`` if it is none."""
    rest = text.strip()
    total, sign = None, 1
    if rest.startswith("-"):
        rest, sign = rest[1:], -1
    while rest:
        rest = rest.lstrip()
        number = rest[: len(rest) - len(rest.lstrip("0123456789."))]
        rest = rest[len(number) :].lstrip()
        unit = rest[: next((i for i, it in enumerate(rest) if not it.isalpha()), len(rest))]
        rest = rest[len(unit) :].lstrip()
        kinds = [kind for kind, names in NAMES.items() if unit.lower() in {*names, kind}]
        if not kinds or number.count(".") > 1 or not number.strip("."):
            return None
        total = (total or 0) + Fraction(number.rstrip(".")) * NANOSECONDS[kinds[0]]
    return None if total is None else sign * total


PARTS = st.tuples(
    st.from_regex(r"[0-9]{1,6}(\.[0-9]{0,6})?|\.[0-9]{1,3}", fullmatch=True),
    st.sampled_from(["", " ", "  "]),
    st.sampled_from([name for names in NAMES.values() for name in names]),
    st.sampled_from(["", " "]),
)
TEXTS = st.lists(PARTS, min_size=1, max_size=4).map(lambda it: "".join(map("".join, it)))


@given(TEXTS)
def test_a_text_is_the_length_that_pandas_reads(text):
    # It takes the dot alone for the end of what comes before,.
    if not re.search(r"(^|[^0-9])\.", text):
        with suppress(ValueError):
            assert parse_duration(text, "d") == pytest.approx(
                pd.Timedelta(text).value / 1e9, rel=1e-9, abs=5e-9
            )
    assert parse_duration(text, "d") == pytest.approx(float(read(text) / 10**9), rel=1e-12)


@given(
    TEXTS,
    st.integers(0, 20),
    st.sampled_from([*" -+.,_:/\t\n", "1", "e", "s", "S", "sm", "x", "²", "min"]),
)
def test_a_text_that_is_damaged_is_read_by_the_same_rules_or_refused(text, at, damage):
    damaged = text[:at] + damage + text[at:]
    expected = read(damaged)
    if expected is None or expected < 0:
        with pytest.raises(ConfigurationError):
            parse_duration(damaged, "d")
    else:
        found = parse_duration(damaged, "d")
        assert found == pytest.approx(float(expected / 10**9), rel=1e-12)
