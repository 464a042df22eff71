# SPDX-License-Identifier: Apache-2.0
"""Time zones follow the rules that a plan has, and else those that are known where it runs."""

import datetime as dt
import pickle
from dataclasses import replace
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._values import cells
from sparkawait._values.cells import Change, learn_zones, tzif, zone
from sparkawait.arrow import run
from sparkawait.testing import LookupServer

UTC = dt.timezone.utc
BEFORE, AFTER = 2233, 3013  # 37 minutes and 13 seconds ahead of UTC, and 13 minutes more
CHANGE = dt.datetime(2026, 11, 27, 19, 13, 7, tzinfo=UTC)
UGLY = tzif(BEFORE, [Change(int(CHANGE.timestamp()), BEFORE, AFTER)])
NAME = "Antarctica/Troll"  # no other test asks the time there


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    monkeypatch.setattr(cells, "_LEARNT", {})


def test_a_task_reads_and_writes_times_by_the_rules_of_its_plan():
    instants = [CHANGE + dt.timedelta(seconds=it) for it in (-7919, -1, 0, 1, 7919, 9_999_991)]
    offsets = [dt.timedelta(seconds=it) for it in [BEFORE] * 2 + [AFTER] * 4]
    walls = [(it + by).replace(tzinfo=None) for it, by in zip(instants, offsets, strict=True)]
    texts = [it.strftime("%Y-%m-%d %H:%M:%S") for it in walls]
    rows = pa.table({"t": pa.array(instants, pa.timestamp("us", NAME))}).to_batches()

    @sa.async_function("seen string")
    async def shown(row):
        return str(row.t.replace(tzinfo=None))

    with LookupServer({"t": {text: {"at": text} for text in texts}}) as server:
        client = sa.http.Client(proxy=False)
        schema = pa.schema([pa.field("at", pa.timestamp("us", NAME))])
        looked_up = sa.http.get(server.url + "/t/{t}", schema, client=client)
        plan = resolve_unpickled("ordered", [looked_up, shown], input_schema=rows[0].schema)
        found = pa.Table.from_batches(run(replace(plan, zones=((NAME, UGLY),)), iter(rows)))

    assert found["seen"].to_pylist() == texts
    assert found["at"].cast(pa.int64()).to_pylist() == found["t"].cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("name", ["America/St_Johns", "Asia/Kolkata", "-17:59", "+17:59", "UTC"])
def test_a_time_is_read_to_the_ends_of_what_python_has(name):
    where = zone(name)
    ends = dt.datetime.min.replace(tzinfo=where), dt.datetime.max.replace(tzinfo=where)
    tick = dt.timedelta(microseconds=1)
    first, last = ((end - cells.EPOCH) // tick for end in ends)

    found = [cells.instant(micros, where) for micros in (first, first + 13, last - 13, last)]

    assert [it.tzinfo for it in found] == [where] * 4
    ticks = [0, 13, -13, 0]
    wanted = [end + by * tick for end, by in zip([ends[0]] * 2 + [ends[1]] * 2, ticks, strict=True)]
    assert [it.replace(tzinfo=None) for it in found] == [it.replace(tzinfo=None) for it in wanted]
    for micros in (first - 1, last + 1, -(2**63), 2**63 - 1):
        with pytest.raises(ValueError, match="is not within the years 1 to 9999 in"):
            cells.instant(micros, where)


def test_a_zone_whose_rules_are_those_of_this_process_is_the_one_that_functions_make():
    first, second = Change(-1577943676, 20476, 19800), Change(504901800, 19800, 20700)
    learn_zones([("Asia/Kathmandu", tzif(20476, [first, second]))])
    assert zone("Asia/Kathmandu") is ZoneInfo("Asia/Kathmandu")

    later = second._replace(at=second.at + 1)
    learn_zones([("Asia/Kathmandu", tzif(20476, [first, later]))])
    told = zone("Asia/Kathmandu")
    assert told is not ZoneInfo("Asia/Kathmandu")
    named = [dt.datetime.fromtimestamp(second.at + it, told).tzname() for it in (-1, 0, 1)]
    assert named == [ZoneInfo("Asia/Kathmandu").tzname(dt.datetime(1985, 1, 1)), "+0530", "+0545"]  # noqa: DTZ001


def test_a_zone_with_rules_of_its_own_may_be_pickled():
    learn_zones([(NAME, UGLY)])
    told = zone(NAME)

    copied = pickle.loads(pickle.dumps(CHANGE.astimezone(told)))  # noqa: S301

    assert told is not ZoneInfo(NAME)
    assert copied == CHANGE
    assert copied.utcoffset() == dt.timedelta(seconds=AFTER)
    assert str(told) == NAME
