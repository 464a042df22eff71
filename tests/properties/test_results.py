# SPDX-License-Identifier: Apache-2.0
"""Every row has its results built or fails, whatever functions return."""

from hypothesis import given
from hypothesis import strategies as st

from sparkawait._schema.ddl import parse_schema
from sparkawait._values.records import rows_of
from sparkawait._values.results import ResultBuilder

CELLS = st.none() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3) | st.booleans()
MAPPINGS = st.dictionaries(st.sampled_from(["a", "b", "c"]), CELLS) | st.fixed_dictionaries(
    {"a": st.none() | st.integers(-(2**31), 2**31 - 1), "b": st.none() | st.text(max_size=3)}
)
RESULTS = MAPPINGS | st.lists(MAPPINGS | CELLS, max_size=3) | CELLS
SCHEMA = parse_schema("a int, b string")
BUILDER = ResultBuilder(SCHEMA, ["b"])


@given(st.lists(RESULTS, max_size=8))
def test_every_row_is_built_or_fails_and_no_row_does_both(results):
    built = BUILDER.build(list(range(len(results))), results)
    failed = [row for row, _ in built.failures]
    assert sorted([*built.rows, *failed]) == list(range(len(results)))
    assert built.rows == sorted(built.rows)


@given(st.lists(RESULTS, max_size=8))
def test_the_batch_holds_the_results_of_the_rows_in_their_order(results):
    built = BUILDER.build(list(range(len(results))), results)
    expected = [
        {"a": one["a"], "b": one["b"]}
        for row in built.rows
        for one in rows_of(results[row], ["a", "b"])
    ]
    assert built.batch.to_pylist() == expected
    counts = built.counts if built.counts is not None else [1] * len(built.rows)
    assert counts == [len(rows_of(results[row], ["a", "b"])) for row in built.rows]


@given(st.lists(RESULTS, max_size=8))
def test_a_row_fares_the_same_alone_and_among_others(results):
    together = {row for row, _ in BUILDER.build(list(range(len(results))), results).failures}
    alone = {i for i, result in enumerate(results) if BUILDER.build([i], [result]).failures}
    assert together == alone
