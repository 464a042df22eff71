# SPDX-License-Identifier: Apache-2.0
"""What a micro-batch with `carry_over` tells: calls made again, and whether all rows are there.

Steps are carried out in this process, without Spark; what loses a row is a double of one of them.
"""

import asyncio
import dataclasses

import pytest

import sparkawait as sa
from sparkawait._worker import step as worker_step
from sparkawait.spark.step import Step
from tests.support.carried_query import (
    AT_ONCE,
    NEXT_BATCH,
    Query,
    Service,
    frames_of,
    lose_the_worker,
)
from tests.support.waiting import wait_until


@pytest.fixture
def service():
    yield Service()
    lose_the_worker()


@pytest.mark.parametrize("emit", [AT_ONCE, NEXT_BATCH])
def test_calls_that_are_made_again_are_those_that_the_service_counts_over_restarts(service, emit):
    """Of ten rows one of each key is called at a time: the others are not called again."""
    service.is_open = False
    query = Query(service.function(), emit=emit, key="key")
    first = query.run(range(10))
    assert (first["carried"], first["redone"], first["redone_total"]) == (10, 0, 0)
    wait_until(lambda: service.calls.total() == 3)

    told = []
    for calls in (6, 9):
        lose_the_worker()
        told.append(query.run())
        wait_until(lambda calls=calls: service.calls.total() == calls)
    assert [(it["redone"], it["redone_total"]) for it in told] == [(3, 3), (3, 6)]
    assert service.further == 6

    # Rows go on, and the total stays as it is.
    service.is_open = True
    query.run(range(10, 23))
    while (last := query.run())["carried"] or last["held"]:
        pass
    assert (last["redone"], last["redone_total"]) == (0, service.further) == (0, 6)
    assert sorted(query.rows) == list(range(23))


def test_a_shard_whose_calls_were_made_again_comes_in_each_micro_batch(service):
    """Or the sum over all shards would be smaller in a micro-batch without rows for this one."""
    service.is_open = False
    query = Query(service.function(), emit=AT_ONCE)
    query.run([5])
    lose_the_worker()
    service.is_open = True
    query.step._carry_over = sa.CarryOver(emit=AT_ONCE, linger="60s")
    assert query.run()["redone_total"] == 1
    for is_there in (True, False):
        if not is_there:
            lose_the_worker()
        end = query.step.run((0,), query.state, ())
        assert (end.waits, end.redone, end.redone_total) == (True, 0, 1)

    other = Query(service.function(), emit=AT_ONCE, linger="60s")
    assert other.run([5])["redone_total"] == 0
    assert not other.step.run((0,), other.state, ()).waits


def test_a_row_that_waits_for_a_slot_in_two_restarts_is_called_again_once(service):
    """It was called by the first worker; the second has no slot for it."""
    service.is_open = False
    query = Query(service.function(), max_concurrency=5, capacity=5)
    query.run(range(5))
    wait_until(lambda: service.calls.total() == 5)
    lose_the_worker()
    few = Query(service.function(), max_concurrency=2, capacity=2)
    few.state = query.state
    assert few.run()["redone_total"] == 5
    wait_until(lambda: service.calls.total() == 7)
    lose_the_worker()
    # Three of the five are not called yet, and two are once more.
    assert few.run()["redone_total"] == 7
    service.is_open = True
    while (last := few.run())["carried"]:
        pass
    assert (service.further, last["redone_total"]) == (7, 7)


@pytest.mark.parametrize("emit", [AT_ONCE, NEXT_BATCH])
@pytest.mark.parametrize("schema", ["doubled bigint", "array<struct<doubled bigint>>"])
def test_all_rows_are_accounted_for_also_over_restarts(service, emit, schema):
    """A row that has several results, or none, is one that has left."""

    @sa.async_function("doubled bigint")
    async def several(row):
        await service_call(row)
        return [{"doubled": row["id"]}] * (row["id"] % 3)

    async def service_call(row):
        service.calls[row["id"]] += 1
        while row["id"] % 5 == 0 and not service.is_open:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.003)

    function = several if schema.startswith("array") else service.function()
    service.is_open = False
    query = Query(function, emit=emit)
    assert query.run(range(13))["accounts"] is True
    assert query.run()["accounts"] is True
    lose_the_worker()
    assert query.run(range(13, 30))["accounts"] is True
    service.is_open = True
    while (last := query.run())["carried"] or last["held"]:
        assert last["accounts"] is True
    assert last["accounts"] is True
    results = (
        range(30) if schema.startswith("doubled") else [n for n in range(30) for _ in range(n % 3)]
    )
    assert sorted(query.rows) == list(results)


class LosesARow(Step):
    """Loses the last row of a bundle before the task gets it."""

    def _bundles(self, frames):
        for bundle in super()._bundles(frames):
            (batch,) = worker_step.unpack([bundle.payload])
            yield bundle._replace(payload=worker_step._ipc(batch.slice(0, batch.num_rows - 1)))


class TakesABundleTwice(Step):
    def _bundles(self, frames):
        for bundle in super()._bundles(frames):
            (batch,) = worker_step.unpack([bundle.payload])
            yield bundle
            yield bundle._replace(rows=0, payload=worker_step._ipc(batch.slice(1)))


class LosesAnOutput(Step):
    """Loses rows behind the task."""

    def run(self, key, state, frames):
        end = super().run(key, state, frames)
        return dataclasses.replace(end, outputs=end.outputs[:-1])


@pytest.mark.parametrize("step", [LosesARow, TakesABundleTwice, LosesAnOutput])
def test_a_row_that_is_lost_or_doubled_is_not_accounted_for(service, step):
    query = Query(service.function(), step=step, emit=AT_ONCE, linger="60s")
    assert query.run(range(13))["accounts"] is False


def test_rows_that_are_lost_on_the_way_to_the_shards_are_not_accounted_for(service, monkeypatch):
    """Those that cut a batch into bundles lose a row, and tell of as many as they have."""
    cut = worker_step._dealt
    monkeypatch.setattr(
        worker_step,
        "_dealt",
        lambda batch, *more: [(shard, it.slice(1)) for shard, it in cut(batch, *more)],
    )
    query = Query(service.function(), emit=AT_ONCE, linger="60s")
    assert query.run(range(13))["accounts"] is False


@pytest.mark.parametrize("action", ["capture", "drop"])
def test_rows_that_came_have_results_or_none_or_have_failed(action):
    """As without `carry_over`: a row counts as one of the three."""

    @sa.async_function("doubled bigint")
    async def often(row):
        if row["id"] % 3 == 0:
            raise ConnectionError("no")
        return [{"doubled": row["id"]}] * (row["id"] % 3 - 1)

    query = Query(often, emit=AT_ONCE, linger="60s", on_error=action)
    (counts,) = query.step.run((0,), None, frames_of(range(13))).counts
    lose_the_worker()

    told = [counts[name] for name in ("admitted", "emitted", "dropped", "failed")]
    assert told == [13, 4, 4, 5]
