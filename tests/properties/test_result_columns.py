# SPDX-License-Identifier: Apache-2.0
"""Plain results are read by Rust, all others by PyArrow: nobody can tell from the output."""

from types import MappingProxyType

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkawait import arrow
from sparkawait._schema.ddl import parse_schema
from sparkawait._values.results import ResultBuilder

TYPES = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"]
CELLS = (
    st.none()
    | st.booleans()
    | st.sampled_from([-(2**53) - 1, 2**53, 2**53 + 1, 127, 128, -32768, 2**31, 2**63, 2**70])
    | st.integers(-(2**64), 2**64)
    | st.floats()
    | st.floats(width=32)
    | st.text(st.characters(), max_size=3)
    | st.sampled_from(["\ud800", 1e300, -0.0])
    | st.binary(max_size=3)
)


def output(ddl, results, **options):
    async def function(row):
        return results[row["i"]]

    batch = pa.RecordBatch.from_pydict({"i": range(len(results))})
    batches = arrow.ordered_wait([batch], function, schema=parse_schema(ddl), **options)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("suffix", ["", " not null"])
@settings(max_examples=25)
@given(cells=st.lists(CELLS, min_size=1, max_size=3))
def test_plain_results_give_the_output_that_other_mappings_give(data_type, suffix, cells):
    ddl = f"a {data_type}{suffix}, b bigint"
    plain = [{"a": cell, "b": 1, "c": "unknown"} for cell in cells]
    others = [MappingProxyType(result) for result in plain]
    expected = output(ddl, others, on_error="capture")
    # As text, since NaN is not equal to itself.
    assert str(output(ddl, plain, on_error="capture")) == str(expected)


def test_plain_results_need_no_builder(monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(ResultBuilder, "build", refuse)
    cells = [True, 1, 2, 3, 4, 0.5, 0.25, "x", b"y"]
    names = [f"c{index}" for index in range(len(cells))]
    ddl = ", ".join(f"{name} {it}" for name, it in zip(names, TYPES, strict=True))
    full = dict(zip(names, cells, strict=True))
    empty = dict.fromkeys(names)
    assert output(ddl, [full, empty]) == [{"i": 0, **full}, {"i": 1, **empty}]


def test_a_result_without_a_column_fails_alone():
    rows = output("a int", [{"a": 1}, {}, {"a": 3}], on_error="capture")
    assert [row["a"] for row in rows] == [1, None, 3]
    assert [row["error"] is None for row in rows] == [True, False, True]


def test_a_subclass_of_dict_is_asked_for_its_cells():
    class Doubled(dict):
        def __getitem__(self, name):
            return 2 * super().__getitem__(name)

    assert output("a int", [Doubled(a=1)]) == [{"i": 0, "a": 2}]
