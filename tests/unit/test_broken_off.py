# SPDX-License-Identifier: Apache-2.0
"""A query that is stopped within a micro-batch: its calls go on, and the next run takes them up.

Spark hangs up then, and PySpark ends the process as soon as its step lets it.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkawait._worker.holder import HeldTask, holder
from sparkawait.spark import step, tasks
from sparkawait.spark.tasks import Connection
from tests.support.carried_query import Query, Service, frames_of, lose_the_worker
from tests.support.waiting import wait_until

BETWEEN, BEHIND = "between two bundles", "behind all rows"


class Spark:
    """What a step sees of Spark."""

    def __init__(self) -> None:
        self.properties = {"sql.streaming.queryId": "query"}
        self.has_hung_up = False

    def begin(self, batch: int, run: int) -> None:
        self.has_hung_up = False
        self.properties |= {step.BATCH: str(batch), "spark.jobGroup.id": f"run {run}"}

    def connection(self):
        found = Connection(None)
        found.has_hung_up = lambda: self.has_hung_up
        return found


@pytest.fixture
def spark(monkeypatch) -> Spark:
    spark = Spark()
    context = SimpleNamespace(getLocalProperty=spark.properties.get, partitionId=lambda: 0)
    monkeypatch.setattr(step, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr(step, "Connection", SimpleNamespace(of_this_worker=spark.connection))
    return spark


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    service.is_open = False
    yield service
    lose_the_worker()


def break_off(query: Query, ids, spark: Spark, place: str, *, hangs_up: bool = True) -> None:
    """Carries a step out that comes to no end."""

    def frames():
        first, *others = frames_of(ids)
        yield first
        if place == BETWEEN:
            spark.has_hung_up = hangs_up
            raise EOFError
        yield from others

    def end_part(*_):
        spark.has_hung_up = hangs_up
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        if place == BEHIND:
            patched.setattr(HeldTask, "end_part", end_part)
        with pytest.raises((EOFError, KeyboardInterrupt)):
            query.step.run((0,), query.state, frames())


@pytest.mark.parametrize("place", [BETWEEN, BEHIND])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_next_run_calls_nothing_again(spark, service, place, is_first):
    """No state tells of the task of the first micro-batch."""
    before = Query(service.function())
    if not is_first:
        spark.begin(batch=0, run=0)
        assert before.run(range(100, 107))["carried"] == 7
    spark.begin(batch=1, run=0)
    break_off(before, range(30), spark, place)

    after = Query(service.function())
    after.state = before.state
    spark.begin(batch=1, run=1)
    assert after.run(range(30))["redone_total"] == 0
    service.is_open = True
    spark.begin(batch=2, run=1)
    while (last := after.run())["carried"] or last["held"]:
        assert last["accounts"]

    expected = [*range(30), *range(100, 100 + (not is_first) * 7)]
    assert sorted(after.rows) == expected
    assert service.calls == dict.fromkeys(expected, 1)


def test_other_rows_than_before_are_called_by_a_task_of_their_own(spark, service):
    service.is_open = True
    query = Query(service.function(), linger="60s", emit="at_once")
    spark.begin(batch=0, run=0)
    break_off(query, range(30), spark, BEHIND)

    spark.begin(batch=0, run=1)
    assert query.run(range(30, 43))["accounts"]
    assert sorted(query.rows) == list(range(30, 43))


def test_a_step_that_fails_by_itself_keeps_no_task(spark, service):
    query = Query(service.function())
    spark.begin(batch=0, run=0)
    break_off(query, range(30), spark, BETWEEN, hangs_up=False)
    assert not holder()._tasks


def test_a_worker_ends_when_its_tasks_have_ended(service, monkeypatch):
    """However PySpark ends it: it calls `os._exit` in all cases."""
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    tasks._end_behind_tasks.cache_clear()
    Connection(None).end_behind_tasks()
    assert os._exit == ended.append

    with Path(os.devnull).open("wb") as stream:
        Connection(stream).end_behind_tasks()
    query = Query(service.function())
    query.run(range(3))
    thread = threading.Thread(target=os._exit, args=(7,), daemon=True)
    thread.start()
    wait_until(lambda: service.calls.total() == 3)
    assert thread.is_alive()
    lose_the_worker()
    thread.join()
    assert ended == [7]
    tasks._end_behind_tasks.cache_clear()
