# SPDX-License-Identifier: Apache-2.0
"""Sizes in bytes, as users write them."""

import pytest

from sparkawait import ConfigurationError
from sparkawait._checks import parse_size
from sparkawait.exceptions import ErrorKind

MOST = 2**31 - 1


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (1, 1),
        (64 << 20, 64 << 20),
        ("64 MB", 64 << 20),
        ("64m", 64 << 20),
        ("64MiB", 64 << 20),
        (" 1.5 gb ", 3 << 29),
        (".5k", 512),
        ("700", 700),
        ("7 B", 7),
    ],
)
def test_a_size_is_a_number_of_bytes_or_a_text_with_a_unit_as_in_spark(given, size):
    assert parse_size(given, "max", most=MOST) == size


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "at least 1 byte, got 0"),
        (-5, "at least 1 byte, got -5"),
        ("0.1b", "at least 1 byte, got '0.1b'"),
        (2**31, "at most 2147483647 bytes"),
        ("2 GB", "at most 2147483647 bytes, got '2 GB'"),
        ("64 XB", "`max` is not a size: '64 XB'"),
        ("MB", "not a size"),
        ("-1 MB", "not a size"),
        ("1e3", "not a size"),
        ("9" * 5000, "not a size"),
        (True, "got True"),
        (1.5, "got 1.5"),
        (None, "got None"),
    ],
    ids=repr,
)
def test_what_is_no_size_is_refused(given, message):
    with pytest.raises(ConfigurationError, match=message) as info:
        parse_size(given, "max", most=MOST)
    assert info.value.kind is ErrorKind.OPTION_INVALID
