# SPDX-License-Identifier: Apache-2.0
"""What rows of a stream outlive their micro-batch by is checked where it is made."""

import traceback
from types import SimpleNamespace

import pytest

import sparkawait as sa
from sparkawait._worker.step import Shard, _check_shard
from sparkawait.spark import step
from sparkawait.spark.failures import in_micro_batch


def test_the_defaults_are_those_of_the_documentation():
    carry_over = sa.CarryOver()
    assert (carry_over.emit, carry_over.linger, carry_over.order_by) == ("next_batch", "auto", None)
    assert (carry_over.vehicle, carry_over.name) == (None, None)
    assert carry_over.patience is None
    assert (sa.CarryOver(linger="7ms").patience, sa.CarryOver(linger=0).patience) == (0.007, 0.0)


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
        ({"linger": "soon"}, "`linger` .*'soon'.*; or 'auto'"),
        ({"name_rows_by": [5]}, "`name_rows_by`"),
        ({"order_by": []}, "`order_by` must be a column name or a list of them"),
    ],
)
def test_a_wrong_value_is_refused(given, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        sa.CarryOver(**given)


def state_of(by, *, shards=3, rows=(1, 0), completed=0):
    """What a step reads of a shard: rows in flight, rows that wait, and rows that are completed."""
    return SimpleNamespace(shard=5, shards=shards, by=by, rows=rows, completed_rows=completed)


def shard_of(by, count=3):
    names = dict.fromkeys(("step", "query", "calls", "run"), "")
    return Shard(key=5, count=count, by=by, partition=0, batch=7, **names)


@pytest.mark.parametrize(("rows", "completed"), [((1, 0), 0), ((0, 2), 0), ((0, 0), 3)])
def test_rows_in_flight_bind_a_query_to_the_columns_of_their_order(rows, completed):
    state = state_of("`id`", rows=rows, completed=completed)
    _check_shard(shard_of("`id`"), state)
    with pytest.raises(sa.exceptions.SnapshotError, match=r"order by `id`, .* by `k` now.*drain"):
        _check_shard(shard_of("`k`"), state)


def test_without_rows_in_flight_or_without_an_order_any_columns_do():
    _check_shard(shard_of("`k`"), state_of("`id`", rows=(0, 0)))
    _check_shard(shard_of("", count=0), state_of("`id`"))
    with pytest.raises(sa.exceptions.SnapshotError, match="in no order"):
        _check_shard(shard_of("`k`"), state_of("", shards=0))


def test_an_error_says_the_micro_batch_that_it_has_failed():
    error = sa.AsyncFunctionError("`lookup` failed", "user-function-failed")
    with pytest.raises(sa.AsyncFunctionError), in_micro_batch(7):
        raise error
    assert "in micro-batch 7 of the query" in "".join(traceback.format_exception(error))


def test_a_step_knows_the_columns_of_its_order(monkeypatch):
    came = []
    monkeypatch.setattr(step, "run_step", lambda *_, shard, **__: came.append(shard))
    chain = SimpleNamespace(name="lookup", plans=(SimpleNamespace(mode="key_ordered"),))
    for by in [("id",), ("id", "k")]:
        of_key = step.Step(chain, sa.CarryOver(), (), (), step.Shards(3), by=by)
        of_key.run((5,), None, ())
    assert [shard.by for shard in came] == ["`id`", "`id`, `k`"]
