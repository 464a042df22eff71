# SPDX-License-Identifier: Apache-2.0
"""What rows of a stream outlive their micro-batch by is checked where it is made."""

import traceback
from types import SimpleNamespace

import pyarrow as pa
import pyspark
import pytest

import sparkawait as sa
from sparkawait._worker.step import Shard, _check_shard
from sparkawait.exceptions import ErrorKind
from sparkawait.spark import step
from sparkawait.spark.carry import Pack
from sparkawait.spark.shipment import in_micro_batch


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
        of_key = step.Step(chain, sa.CarryOver(), (), (), step.Shards(3), name="it", by=by)
        of_key.run((5,), None, ())
    assert [shard.by for shard in came] == ["`id`", "`id`, `k`"]


@pytest.mark.parametrize(("partitions", "is_told"), [("4", False), ("5", True)])
def test_many_shards_are_told_as_they_are_where_no_checkpoint_says_another_number(
    caplog, partitions, is_told
):
    session = SimpleNamespace(
        conf={"spark.sql.shuffle.partitions": partitions},
        sparkContext=SimpleNamespace(defaultParallelism=2),
    )
    assert step.Shards.of(session).said == int(partitions)

    assert len(caplog.messages) == is_told
    for message in caplog.messages:
        assert message.startswith("spark.sql.shuffle.partitions is 5 on 2 cores")
        assert "A query that has a checkpoint keeps the number of its first start" in message


@pytest.mark.parametrize(
    ("spark", "pyarrow", "way_out"),
    [
        ("3.5.9", "26.0.1", "PySpark 4.1.4 or newer"),
        ("3.5.2-amzn-1", "27.0.0", "PySpark 4.1.4 or newer"),
        ("4.0.4", "26.0.0", "PySpark 4.0.5"),
        ("4.1.0", "26.0.0", "PySpark 4.1.4"),
        ("4.1.3", "26.1.0.dev7", "PySpark 4.1.4"),
        ("3.5.9", "21.0.0", None),
        ("4.1.3", "25.0.1", None),
        ("4.0.5", "26.0.1", None),
        ("4.1.4", "26.0.1", None),
        ("4.1.13", "26.0.1", None),
        ("4.2.0", "26.0.1", None),
        ("5.0.0-SNAPSHOT", "31.0.0", None),
        ("master", "26.0.1", None),
    ],
)
def test_a_pyspark_that_fails_with_its_pyarrow_is_found_with_both_ways_out(spark, pyarrow, way_out):
    problem = step.problem_of_pyarrow(spark, pyarrow)

    assert (problem is None) == (way_out is None)
    if problem is not None:
        assert f"PySpark {spark} fails with pyarrow {pyarrow}" in problem
        assert f"Install {way_out}, or 'pyarrow<26', on the driver" in problem


class Classic:
    """A session of this process."""


class OverConnect:
    """The session of a client, whose packages are not those that run the query."""

    __module__ = "pyspark.sql.connect.session"


@pytest.fixture
def does_not_fit(monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    monkeypatch.setattr(pa, "__version__", "26.0.1")


@pytest.mark.usefixtures("does_not_fit")
def test_a_driver_whose_pyspark_fails_with_its_pyarrow_is_refused():
    with pytest.raises(
        sa.ConfigurationError, match=r"4\.1\.1 fails with pyarrow 26\.0\.1"
    ) as raised:
        step.check_vehicle(Classic(), None)
    assert raised.value.kind is ErrorKind.VERSION_MISMATCH
    step.check_vehicle(OverConnect(), None)


@pytest.mark.usefixtures("does_not_fit")
def test_a_worker_whose_pyspark_fails_with_its_pyarrow_says_so_before_the_first_row():
    shards = step.Shards(2)
    with pytest.raises(sa.ConfigurationError, match=r"Install PySpark 4\.1\.4, or 'pyarrow<26'"):
        Pack(shards, None, None, is_keyed=False)(iter([]))
    assert list(Pack(shards, None, "transform_with_state", is_keyed=False)(iter([]))) == []
