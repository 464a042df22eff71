# SPDX-License-Identifier: Apache-2.0
"""Reports of tasks on their way to the driver: what is refused, too long or not understood."""

import logging
from types import SimpleNamespace

import pytest

import sparkawait as sa
from sparkawait._core import LimitServer
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve
from sparkawait.spark import owner as owners
from sparkawait.spark import reports

pytestmark = [pytest.mark.spark, pytest.mark.timeout(150)]


@sa.async_function("v long")
async def at_once(row):
    return {"v": row.id}


def test_a_report_that_nobody_understands_changes_nothing(spark):
    owner = owners._owner_of(spark)
    before = sa.job(spark).metrics["attempts"]
    for text in ("", "{", '{"task": 1}', "7", "\u20ac" * 1000):
        reports.publish(owner.reports.address, text, 3.0)

    assert sa.job(spark).metrics["attempts"] == before


def test_who_does_not_know_the_secret_publishes_nothing(spark):
    address = owners._owner_of(spark).reports.address
    with pytest.raises(OSError, match="answers -WRONGPASS") as error:
        reports.publish(address[:-3] + "abc", "{}", 3.0)
    assert address[-9:] not in str(error.value)


def context_of_test():
    context = SimpleNamespace(getLocalProperty=lambda _: None)
    for number, name in enumerate(("stageId", "partitionId", "attemptNumber"), 3):
        setattr(context, name, lambda number=number: number)
    return context


def test_a_report_with_more_warnings_than_fit_goes_without_them(monkeypatch):
    """One that the server does not read would be the last one for half a minute."""
    server = LimitServer("127.0.0.1", 0, "abc")
    address = f"redis://:abc@127.0.0.1:{server.port}"
    plan = resolve("unordered", at_once, input_schema=None)
    task = reports.TaskReport(
        reports.Reports(None, address, [None]), Chain.of(plan), context_of_test()
    )
    for number in range(20):
        logging.getLogger("sparkawait").warning("%d: %s", number, "x" * 7_013)
    task.update({"attempts": 3})
    monkeypatch.setattr(reports, "_MOST_TEXT", 7_000)
    task.update({"attempts": 5})
    monkeypatch.setattr(reports, "_MOST_TEXT", 70)
    task.update({"attempts": 7})
    monkeypatch.undo()
    task.update({"attempts": 11})

    told = [reports.read(it) for it in server.take_published()]
    assert [it["totals"]["attempts"] for it in told] == [3, 5, 11]
    assert [len(it["warnings"]) for it in told] == [20, 0, 20]


def test_who_answers_that_it_takes_no_report_is_asked_again():
    server = LimitServer("127.0.0.1", 0, "abc")
    plan = resolve("unordered", at_once, input_schema=None)
    address = f"redis://:other@127.0.0.1:{server.port}"
    told = reports.Reports(None, address, [None])
    reports.TaskReport(told, Chain.of(plan), context_of_test()).begin()

    assert address not in reports._SILENT_UNTIL


def test_who_cannot_be_reached_is_left_alone_for_a_while(monkeypatch):
    """A port that a firewall drops would hold up the rows of a task, each second."""
    tried, now = [], 1000.0

    def refuse(address, patience):
        tried.append((address, patience))
        raise TimeoutError

    context = context_of_test()
    monkeypatch.setattr(reports.socket, "create_connection", refuse)
    monkeypatch.setattr(reports, "monotonic", lambda: now)
    plan = resolve("unordered", at_once, input_schema=None)
    told = reports.Reports(None, "redis://:abc@host.invalid:7", [None])
    for seconds in (0, 7, 22, 13):
        now += seconds
        task = reports.TaskReport(told, Chain.of(plan), context)
        task.begin()
        task.update({"attempts": 3})

    assert tried == [(("host.invalid", 7), 0.5)] * 2
