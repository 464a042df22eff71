# SPDX-License-Identifier: Apache-2.0
"""Reports of tasks on their way to the driver: what is refused, too long or not understood."""

import logging
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import sparkawait as sa
from sparkawait._core import LimitServer
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve
from sparkawait.spark import limit_server, messages, reports
from sparkawait.spark import owner as owners
from sparkawait.spark.messages import publish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(150)]


@sa.async_function("v long")
async def at_once(row):
    return {"v": row.id}


def test_a_report_that_nobody_understands_changes_nothing(spark):
    owner = owners._owner_of(spark)
    before = sa.job(spark).metrics["attempts"]
    for text in ("", "{", '{"task": 1}', "7", "\u20ac" * 1000):
        publish(owner.reports.address, "reports", text, 3.0)

    assert sa.job(spark).metrics["attempts"] == before


def test_who_does_not_know_the_secret_publishes_nothing(spark):
    address = owners._owner_of(spark).reports.address
    with pytest.raises(OSError, match="answers -WRONGPASS") as error:
        publish(address[:-3] + "abc", "reports", "{}", 3.0)
    assert address[-9:] not in str(error.value)


EXITS = """
import os, sys
from sparkawait.spark import limit_server
running = limit_server._start_here()
folder = running.address.split("//")[1].rpartition("/")[0]
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(os.path.exists(folder + "/limits"), folder)
"""


def test_a_process_that_is_forked_off_and_exits_leaves_the_socket():
    told = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, text=True, check=True)
    is_there, folder = told.stdout.split()
    assert is_there == "True"
    assert not Path(folder).exists(), "it goes with its own process"


def test_a_socket_has_a_folder_whose_path_is_short_enough(monkeypatch, tmp_path):
    longer = tmp_path / ("x" * 97)
    longer.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(longer))
    running = limit_server._start_here()
    publish(running.address, "reports", "{}", 30.0)
    assert running.server.take_published() == ["{}"]

    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(sa.ConfigurationError, match=r"set TMPDIR to one .* No space left"):
        limit_server._start_here()


def test_the_end_of_a_task_is_not_lost_for_the_reports_of_others():
    server = LimitServer("127.0.0.1", 0, "abc")
    address = f"redis://:abc@127.0.0.1:{server.port}"
    plan = resolve("unordered", at_once, input_schema=None)
    of_test = reports.Reports(None, address, [None])
    task = reports.TaskReport(of_test, Chain.of(plan), context_of_test())
    task.end("stopped")
    task.begin()
    told = [reports.read(it)["end"] for it in server.take_published()]
    # Before what others say, who may have followed it.
    assert told == ["stopped", None]


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
    monkeypatch.setattr(messages.socket, "create_connection", refuse)
    monkeypatch.setattr(reports, "monotonic", lambda: now)
    plan = resolve("unordered", at_once, input_schema=None)
    told = reports.Reports(None, "redis://:abc@host.invalid:7", [None])
    for seconds in (0, 7, 22, 13):
        now += seconds
        task = reports.TaskReport(told, Chain.of(plan), context)
        task.begin()
        task.update({"attempts": 3})

    assert tried == [(("host.invalid", 7), 0.5)] * 2

    # Nobody else hears of the calls of a task that has failed.
    told = reports.Reports(SimpleNamespace(), told.address, [None])
    reports.TaskReport(told, Chain.of(plan), context).end("failed", ValueError("no"))
    assert tried[2:] == [(("host.invalid", 7), 2.0)]
