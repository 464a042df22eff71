# SPDX-License-Identifier: Apache-2.0
"""Rows that fail end their task when there are too many, as `OnError` says."""

import re

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._worker import step as worker_step
from sparkawait._worker.holder import _Holder
from tests.support.carried_query import Query, lose_the_worker


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


@pytest.mark.parametrize(
    "kept",
    [{}, {"action": "null"}, {"action": "drop"}, {"column": "why"}],
    ids=["capture", "null", "drop", "named"],
)
@pytest.mark.parametrize("wait", [sa.arrow.ordered_wait, sa.arrow.unordered_wait])
def test_a_wrong_key_ends_a_task_early(wait, kept):
    function, called = failing(each=1)
    on_error = sa.OnError(**kept, stop_after=13)

    with pytest.raises(sa.AsyncFunctionError, match="ConnectionError") as info:
        wait(table(5003), function, on_error=on_error, max_concurrency=7).to_table()

    assert info.value.kind is sa.exceptions.ErrorKind.USER_FUNCTION_FAILED
    assert str(info.value.__cause__).startswith("no ")
    # Besides those that were in flight.
    assert 13 <= len(called) <= 13 + 7
    said, _, why = str(info.value).partition("; one of them: ")
    rule = re.escape(f"too many for {on_error}: mend the cause, or allow more")
    rows = r"13 of the (1\d|20) rows of this task that have ended have failed in `.*fail`"
    assert re.fullmatch(rf"{rows} \([\d.]+ %\), which is {rule}", said)
    assert "ConnectionError" in why or why.startswith("no ")


def test_fewer_failures_than_that_are_captured_as_ever():
    function, _ = failing(each=101)
    out = sa.arrow.unordered_wait(
        table(1009), function, on_error=sa.OnError(stop_after=11)
    ).to_table()

    assert out.num_rows == 1009
    failed = [row["id"] for row in out.to_pylist() if row["error"] is not None]
    assert sorted(failed) == list(range(0, 1009, 101))
    assert len(failed) == 10


def test_a_share_counts_from_so_many_failed_rows_on():
    # Half of the first 20 rows fail and none of the others.
    function, _ = failing(each=2, until=20)
    rare = sa.OnError(stop_after=11, stop_ratio=0.1)
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

    small = sa.Tuning(max_rows=1)
    out = sa.arrow.ordered_wait(
        table(331), function, on_error=sa.OnError(stop_after=5), tuning=small
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
        on_error=sa.OnError(stop_after=1),
        retry=sa.retry.fixed_delay(1, 0),
    )
    assert out.to_table()["error"].null_count == 331


def test_each_of_several_functions_has_its_own_count():
    bad, _ = failing(each=1)
    functions = [
        bad.with_options(on_error=sa.OnError("null", stop_after=400)),
        sa.async_function("other long")(lambda row: {"other": row["id"]}).with_options(
            on_error=sa.OnError("null", stop_after=1)
        ),
    ]
    out = sa.arrow.unordered_wait(table(331), functions).to_table()
    assert out["doubled"].null_count == 331
    assert out["other"].null_count == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stop_after": 0}, "`stop_after` of OnError must be an int of at least 1"),
        ({"stop_after": 2.5}, "`stop_after` of OnError must be an int"),
        ({"stop_ratio": 1.5}, "`stop_ratio` of OnError must be a number from 1e-06 to 1"),
        ({"stop_ratio": 0}, "`stop_ratio` of OnError must be a number from 1e-06 to 1, got 0"),
        ({"stop_ratio": "10%"}, "`stop_ratio` of OnError must be a number"),
        ({"action": "ignore"}, "`action` of OnError must be one of 'fail', 'null', 'drop', 'cap"),
        ({"action": "fail", "stop_after": 3}, "`stop_after` and `stop_ratio` of OnError are for"),
        ({"action": "null", "column": "why"}, "`column` of OnError names what 'capture' adds"),
        ({"column": ""}, "`column` of OnError must be a name that is not empty"),
    ],
)
def test_a_wrong_value_is_refused(given, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.OnError(**given)


ACTIONS = pytest.mark.parametrize("action", ["capture", "null", "drop"])


@ACTIONS
@pytest.mark.parametrize("ratio", [0.4, 0.2])
def test_a_share_of_all_rows_is_looked_at_when_they_have_ended(action, ratio):
    # 39 of 97 rows, none of them in the last 58: far fewer than a hundred.
    function, called = failing(each=1, until=39)
    on_error = sa.OnError(action, stop_ratio=ratio)

    with pytest.raises(sa.AsyncFunctionError) as info:
        sa.arrow.ordered_wait(table(97), function, on_error=on_error).to_table()

    assert len(called) == 97
    message = str(info.value)
    assert message.startswith("39 of the 97 rows of this task have failed in `")
    rule = f"OnError({action!r}, stop_ratio={ratio})"
    assert f"` (40.2 %), which is too many for {rule}: mend the cause, or allow more" in message
    assert ("; one of them: " in message) == (action == "capture")
    assert info.value.kind is sa.exceptions.ErrorKind.USER_FUNCTION_FAILED
    assert not any("have failed" in note for note in info.value.__notes__)


@ACTIONS
def test_a_task_ends_well_below_its_share_and_with_few_rows(action):
    function, _ = failing(each=1, until=39)
    few = sa.OnError(action, stop_ratio=0.41)
    out = sa.arrow.ordered_wait(table(97), function, on_error=few).to_table()
    assert out.num_rows == (97 - 39 if action == "drop" else 97)

    function, _ = failing(each=2)
    half = sa.OnError(action, stop_ratio=0.5)
    out = sa.arrow.ordered_wait(table(19), function, on_error=half).to_table()
    assert out.num_rows == (9 if action == "drop" else 19)


def test_a_share_is_looked_at_for_each_of_several_functions():
    bad, _ = failing(each=3)
    fine = sa.async_function("other long")(lambda row: {"other": row["id"]})
    quarter, half = sa.OnError("null", stop_ratio=0.25), sa.OnError("null", stop_ratio=0.5)

    both = [bad.with_options(on_error=half), fine.with_options(on_error=quarter)]
    out = sa.arrow.unordered_wait(table(331), both).to_table()
    assert out["doubled"].null_count == 111

    both = [bad.with_options(on_error=quarter), fine.with_options(on_error=quarter)]
    with pytest.raises(sa.AsyncFunctionError, match=r"of this task have failed in `.*fail`"):
        sa.arrow.unordered_wait(table(59), both).to_table()


@pytest.fixture
def worker():
    yield
    lose_the_worker()


class Wrong:
    """Fails each third number while its key is wrong, and counts its calls."""

    def __init__(self):
        self.called = []
        self.is_wrong = True

    def __reduce__(self):
        """A query is known by what it calls, whatever that has counted."""
        return Wrong, ()

    def function(self):
        @sa.async_function("doubled bigint")
        async def double(row):
            self.called.append(row["id"])
            if self.is_wrong and row["id"] % 3 == 0:
                raise ConnectionError(f"no {row['id']}")
            return {"doubled": 2 * row["id"]}

        return double


@pytest.mark.parametrize("emit", ["at_once", "next_batch"])
@pytest.mark.parametrize("action", ["capture", "null"])
def test_a_share_is_looked_at_at_the_end_of_each_micro_batch(worker, emit, action):
    service = Wrong()
    on_error = sa.OnError(action, stop_ratio=0.3)
    query = Query(service.function(), emit=emit, linger="60s", on_error=on_error)
    # Of few rows a share says nothing.
    query.run(range(13))

    with pytest.raises(sa.AsyncFunctionError) as info:
        query.run(range(20, 50))

    message = str(info.value)
    assert message.startswith("10 of the 30 rows of this micro-batch have failed in `")
    assert ("; one of them: " in message) == (action == "capture")
    # The query goes on with the same rows, and another key.
    service.is_wrong = False
    query.run(range(20, 50))
    query.run()
    assert sorted(query.rows) == [*range(13), *range(20, 50)]
    assert sorted(service.called) == sorted([*range(13), *range(20, 50), *range(20, 50)])


def test_a_shard_says_why_it_stops_in_the_middle_of_a_micro_batch(worker):
    on_error = sa.OnError("capture", stop_after=7)
    query = Query(Wrong().function(), emit="at_once", linger="60s", on_error=on_error)
    query.run(range(13))
    words = (
        r"7 of the \d+ rows of this shard that have ended have failed in .* stop_after=7\): mend"
    )
    with pytest.raises(sa.AsyncFunctionError, match=f"^{words}"):
        query.run(range(20, 50))


def test_a_share_is_looked_at_where_another_process_has_the_task(worker, monkeypatch):
    service = Wrong()
    on_error = sa.OnError("capture", stop_ratio=0.3)
    query = Query(service.function(), emit="at_once", linger="60s", on_error=on_error)
    query.run(range(13))
    monkeypatch.setattr(worker_step, "holder", _Holder)

    with pytest.raises(sa.AsyncFunctionError, match="10 of the 30 rows of this micro-batch"):
        query.run(range(20, 50))

    assert len(service.called) == 13 + 30
    service.is_wrong = False
    monkeypatch.undo()
    query.run(range(20, 50))
    assert sorted(query.rows) == [*range(13), *range(20, 50)]
    assert len(service.called) == 13 + 30 + 30
