# SPDX-License-Identifier: Apache-2.0
"""Functions that only take time."""

import time

import pyarrow as pa
import pytest

from sparkawait import Tuning, arrow, retry
from sparkawait.testing import simulated


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": pa.array(range(rows), pa.int64())})


@pytest.mark.parametrize("delay", [0, "1ms"])
def test_a_call_tells_when_it_began(delay):
    before = time.monotonic_ns()
    function = simulated(delay, timestamps=True)
    (out,) = arrow.ordered_wait([batch(100)], function, tuning=Tuning(buffer_timeout=None))
    after = time.monotonic_ns()
    assert out.schema.names == ["x", "ordinal", "began"]
    assert out.column("ordinal").to_pylist() == list(range(100))
    began = out.column("began").to_pylist()
    assert all(before <= it <= after for it in began)
    assert began == sorted(began)


def test_a_row_that_is_tried_again_tells_when_its_last_call_began():
    function = simulated(error_rate=0.5, seed=3, timestamps=True)
    strategy = retry.fixed_delay(40, "1ms")
    (out,) = arrow.ordered_wait(
        [batch(50)], function, retry=strategy, tuning=Tuning(buffer_timeout=None)
    )
    assert out.column("began").null_count == 0
    assert len(set(out.column("began").to_pylist())) > 1


def test_without_timestamps_there_is_the_ordinal_alone():
    (out,) = arrow.ordered_wait([batch(2)], simulated(), tuning=Tuning(buffer_timeout=None))
    assert out.to_pydict() == {"x": [0, 1], "ordinal": [0, 1]}
