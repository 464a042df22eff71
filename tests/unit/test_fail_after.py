# SPDX-License-Identifier: Apache-2.0
"""Rows that fail end their task when there are too many, `FailAfter`."""

import pyarrow as pa
import pytest

import sparkawait as sa


def table(count):
    return pa.table({"id": list(range(count))})


def failing(*, each: int, until: int = 10**9):
    """Returns a function that fails for each `each`-th row, and the rows that it is called for."""
    called = []

    @sa.async_function("doubled long")
    async def fail(row):
        called.append(row["id"])
        if row["id"] % each == 0 and row["id"] < until:
            raise ConnectionError(f"no {row['id']}")
        return {"doubled": 2 * row["id"]}

    return fail, called


@pytest.mark.parametrize("kept", ["capture", "null", "drop", sa.Capture("why")])
@pytest.mark.parametrize("wait", [sa.arrow.ordered_wait, sa.arrow.unordered_wait])
def test_a_wrong_key_ends_a_task_early(wait, kept):
    function, called = failing(each=1)
    on_error = sa.FailAfter(rows=13, on_error=kept)

    with pytest.raises(sa.AsyncFunctionError, match="ConnectionError") as info:
        wait(table(5003), function, on_error=on_error, max_concurrency=7).to_table()

    assert info.value.kind is sa.ErrorKind.USER_FUNCTION_FAILED
    assert str(info.value.__cause__).startswith("no ")
    # Besides those that were in flight.
    assert 13 <= len(called) <= 13 + 7
    assert any("13 rows" in note and "FailAfter(rows=13)" in note for note in info.value.__notes__)


def test_fewer_failures_than_that_are_captured_as_ever():
    function, _ = failing(each=101)
    out = sa.arrow.unordered_wait(table(1009), function, on_error=sa.FailAfter(rows=11)).to_table()

    assert out.num_rows == 1009
    failed = [row["id"] for row in out.to_pylist() if row["error"] is not None]
    assert sorted(failed) == list(range(0, 1009, 101))
    assert len(failed) == 10


def test_a_share_counts_from_so_many_failed_rows_on():
    # Half of the first 20 rows fail and none of the others.
    function, _ = failing(each=2, until=20)
    rare = sa.FailAfter(rows=11, ratio=0.1)
    out = sa.arrow.ordered_wait(table(331), function, on_error=rare, max_concurrency=3)
    assert out.to_table()["error"].null_count == 331 - 10

    function, called = failing(each=2)
    with pytest.raises(sa.AsyncFunctionError, match="ConnectionError"):
        sa.arrow.ordered_wait(table(331), function, on_error=rare, max_concurrency=3).to_table()
    assert len(called) <= 21 + 3


def test_what_left_before_is_in_order_and_has_no_gap():
    function, _ = failing(each=10)
    left = []

    def keep(out):
        for batch in out:
            left.extend(batch["id"].to_pylist())

    small = sa.OutputBatches(max_rows=1)
    out = sa.arrow.ordered_wait(
        table(331), function, on_error=sa.FailAfter(rows=5), output_batches=small
    )
    with pytest.raises(sa.AsyncFunctionError, match="row 40 "):
        keep(out)
    assert left == list(range(len(left)))
    assert len(left) <= 40


def test_rows_that_are_made_well_by_a_retry_do_not_count():
    seen = set()

    @sa.async_function("doubled long")
    async def fails_once(row):
        if row["id"] not in seen:
            seen.add(row["id"])
            raise ConnectionError
        return {"doubled": 2 * row["id"]}

    out = sa.arrow.unordered_wait(
        table(331),
        fails_once,
        on_error=sa.FailAfter(rows=1),
        retry=sa.retry.fixed_delay(1, 0),
    )
    assert out.to_table()["error"].null_count == 331


def test_each_of_several_functions_has_its_own_count():
    bad, _ = failing(each=1)
    functions = [
        bad.with_options(on_error=sa.FailAfter(rows=400, on_error="null")),
        sa.async_function("other long")(lambda row: {"other": row["id"]}).with_options(
            on_error=sa.FailAfter(rows=1, on_error="null")
        ),
    ]
    out = sa.arrow.unordered_wait(table(331), functions).to_table()
    assert out["doubled"].null_count == 331
    assert out["other"].null_count == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": 0}, "`rows` of FailAfter must be an int of at least 1"),
        ({"rows": 2.5}, "`rows` of FailAfter must be an int"),
        ({"ratio": 1.5}, "`FailAfter.ratio` must be a number from 0 to 1"),
        ({"ratio": "10%"}, "`FailAfter.ratio` must be a number"),
        ({"on_error": "fail"}, "`on_error` of FailAfter must be 'capture', 'null', 'drop' or"),
    ],
)
def test_a_wrong_value_is_refused(given, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.FailAfter(**given)
