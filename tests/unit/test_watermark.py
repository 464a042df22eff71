# SPDX-License-Identifier: Apache-2.0
"""Watermark strategies."""

import pytest

from sparkawait import ConfigurationError, WatermarkStrategy
from sparkawait.exceptions import ErrorKind


def test_a_strategy_has_its_column_and_its_delay_in_seconds():
    strategy = WatermarkStrategy.for_bounded_out_of_orderness("ts", "1 min")
    assert (strategy.column, strategy.delay) == ("ts", 60.0)


def test_rows_need_not_be_late():
    assert WatermarkStrategy.for_bounded_out_of_orderness("ts", 0).delay == 0


@pytest.mark.parametrize("column", ["", None, 3, ["ts"]])
def test_the_column_is_a_name(column):
    with pytest.raises(ConfigurationError, match="`column`") as info:
        WatermarkStrategy.for_bounded_out_of_orderness(column, "1s")
    assert info.value.kind is ErrorKind.WATERMARK_INVALID


@pytest.mark.parametrize("delay", ["soon", -1, None])
def test_the_delay_is_a_duration(delay):
    with pytest.raises(ConfigurationError, match="`delay`"):
        WatermarkStrategy.for_bounded_out_of_orderness("ts", delay)


def test_every_says_how_many_rows_lie_between_watermarks():
    strategy = WatermarkStrategy.for_bounded_out_of_orderness("ts", "2s", every=1)

    assert (strategy.column, strategy.delay, strategy.every) == ("ts", 2.0, 1)


@pytest.mark.parametrize("every", [0, -1, True, "1", 1.5])
def test_every_is_refused_unless_it_is_a_positive_int(every):
    with pytest.raises(ConfigurationError, match="`every` must be an int of at least 1") as caught:
        WatermarkStrategy.for_bounded_out_of_orderness("ts", "1s", every=every)
    assert caught.value.kind == "watermark-invalid"
