# SPDX-License-Identifier: Apache-2.0
"""What rows of a stream outlive their micro-batch by is checked where it is made."""

import pytest

import sparkawait as sa


def test_the_defaults_are_those_of_the_documentation():
    carry_over = sa.CarryOver()
    assert (carry_over.emit, carry_over.linger, carry_over.order_by) == ("next_batch", 0.05, None)
    assert (carry_over.vehicle, carry_over.name) == (None, None)
    assert carry_over.patience == 0.05


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"emit": "now"}, "`emit` must be one of 'next_batch', 'at_once', got 'now'"),
        (
            {"vehicle": "flatMapGroupsWithState"},
            "'apply_in_pandas_with_state', 'transform_with_state', got 'flatMapGroupsWithState'",
        ),
        ({"vehicle": True}, "`vehicle` must be one of .*, got True"),
        ({"name": ""}, "`name` must be a text, got ''"),
        ({"name": 5}, "`name` must be a text, got 5"),
        ({"order_by": []}, "`order_by` must be a column name or a list of them"),
    ],
)
def test_a_wrong_value_is_refused(given, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        sa.CarryOver(**given)
