# SPDX-License-Identifier: Apache-2.0
"""A query that is drained is stopped when no micro-batch with rows can follow the last one."""

import itertools
from types import SimpleNamespace

import pytest

from sparkawait.exceptions import ConfigurationError
from sparkawait.spark import carry
from sparkawait.spark.carry import _drained, _InThisProcess, _OverConnect

CONF = SimpleNamespace(get=lambda name: "true")


class Numbers(dict):
    """What a plan of the JVM has observed."""

    apply = dict.__getitem__
    contains = dict.__contains__


class Sources(list):
    def isEmpty(self):  # noqa: N802 - Scala's
        return not self

    def empty(self):
        return Sources()


def plan(number, carried, held):
    values = [carried, held, 0, 0]
    row = SimpleNamespace(getLong=values.__getitem__)
    observed = Numbers(sparkawait_slow=row, other=None)
    session = SimpleNamespace(conf=lambda: CONF)
    return SimpleNamespace(
        currentBatchId=lambda: number,
        observedMetrics=lambda: observed,
        sparkSession=lambda: session,
    )


class Query:
    """A query whose micro-batches are begun and ended by a script, an item for each look.

    An item is a micro-batch that begins, the rows that it brings, and what is carried over and held
    when it has ended.
    """

    isActive = True  # noqa: N815 - PySpark's
    status = SimpleNamespace(get=None)

    def __init__(self, script, message="Processing new data"):
        self.status = {"message": message}
        self.uniqueSources_ = Sources(["a source"])
        self.looks = 0
        self.stopped_at = None
        self.recentProgress = []
        behind = script[-1][0] + 1 if script else 0
        rest = ((number, 0, 0, 0) for number in itertools.count(behind))
        self._script = itertools.chain(script, rest if script else ())
        self._last = None
        self._jsq = SimpleNamespace(streamingQuery=lambda: self)
        setattr(self, "uniqueSources_$eq", lambda it: setattr(self, "uniqueSources_", it))

    def awaitTermination(self, timeout):  # noqa: N802
        self.looks += 1
        for number, rows, carried, held in itertools.islice(self._script, 1):
            if self._last is not None:
                self._end()
            self._last = plan(number, carried, held), rows
        return False

    def _end(self):
        (it, rows) = self._last
        number = it.currentBatchId()
        offsets = {"startOffset": number, "endOffset": number + rows}
        row = it.observedMetrics()["sparkawait_slow"]
        told = {"values": [row.getLong(0), row.getLong(1), 0, 0, 0.0]}
        progress = {
            "batchId": number,
            "sources": [offsets],
            "observedMetrics": {"sparkawait": told},
        }
        self.recentProgress.append(progress)

    @property
    def lastProgress(self):  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None

    def stop(self):
        self.stopped_at = self.recentProgress[-1]["batchId"] if self.recentProgress else None

    def uniqueSources(self):  # noqa: N802
        return self.uniqueSources_

    def lastExecution(self):  # noqa: N802
        return None if self._last is None else self._last[0]

    def analyzedPlan(self):  # noqa: N802
        return self


@pytest.fixture(autouse=True)
def observed(monkeypatch):
    monkeypatch.setattr(carry, "observed_in", lambda _: ["sparkawait_slow", "other"])


def test_the_source_is_let_go_and_a_batch_that_was_made_meanwhile_is_not_the_last():
    # 4 runs when the source is let go, and 5 may have been given rows by then.
    query = Query(
        [(4, 7, 3, 0), (5, 7, 0, 0), (6, 0, 0, 7), (7, 0, 0, 0), (8, 0, 0, 0), (9, 0, 0, 0)]
    )
    assert _drained(query, _InThisProcess(query, lets_go=True), None)
    assert query.stopped_at == 5
    assert query.uniqueSources_ == []


@pytest.mark.parametrize("lets_go", [True, False])
def test_rows_that_are_held_are_waited_for(lets_go):
    query = Query([(4, 0, 3, 0), (5, 0, 0, 3), (6, 0, 1, 0), (7, 0, 0, 0), (8, 0, 0, 0)])
    assert _drained(query, _InThisProcess(query, lets_go=lets_go), None)
    assert query.stopped_at == 7


def test_a_query_that_reads_all_that_is_there_keeps_its_source_until_no_rows_come():
    query = Query([(0, 7, 0, 0), (1, 7, 0, 0), (2, 3, 0, 0), (3, 0, 0, 0), (4, 0, 0, 0)])
    assert _drained(query, _InThisProcess(query, lets_go=False), None)
    assert query.stopped_at == 3
    assert query.uniqueSources_ == ["a source"]


def test_over_connect_a_batch_without_rows_is_waited_for():
    query = Query([(0, 7, 0, 0), (1, 0, 1, 0), (2, 3, 0, 0), (3, 0, 0, 0), (4, 0, 0, 0)])
    assert _drained(query, _OverConnect(query), None)
    assert query.stopped_at == 3


def test_a_query_without_new_rows_is_stopped_and_not_known_to_be_empty():
    query = Query([], "Waiting for data to arrive")
    assert not _drained(query, _InThisProcess(query, lets_go=True), None)
    assert query.looks == 1


def test_a_query_is_stopped_when_its_time_has_passed():
    query = Query([(0, 7, 3, 0)])
    assert not _drained(query, _InThisProcess(query, lets_go=True), 0.0)
    assert query.looks == 1


def test_a_query_without_rows_in_flight_is_refused(monkeypatch):
    monkeypatch.setattr(carry, "observed_in", lambda _: ["other"])
    query = Query([])
    with pytest.raises(ConfigurationError, match="this one has none"):
        _InThisProcess(query, lets_go=True).check()
