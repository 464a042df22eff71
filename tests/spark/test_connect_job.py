# SPDX-License-Identifier: Apache-2.0
"""What a client of Spark Connect hears of its calls: from a Redis, or from logs of workers."""

import gc
import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import sparkawait as sa
from sparkawait.spark import messages
from sparkawait.spark.messages import Subscription, publish
from sparkawait.spark.remote import remote_owner
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def told(out: Path, *server: str):
    program = [sys.executable, "-m", "tests.spark.connect_job_program", str(out), *server]
    run = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-5000:]
    return json.loads(out.read_text())


@pytest.mark.nightly
def test_calls_are_counted_when_they_have_ended_where_the_session_keeps_what_workers_log(tmp_path):
    heard = told(tmp_path / "heard")
    # A worker that is killed leaves no log.
    assert heard["after the fact"] == [41, 2, True]
    assert heard["killed"] == [True]


@pytest.mark.nightly
def test_calls_are_counted_while_they_are_made_where_there_is_a_redis(tmp_path):
    with RedisServer("--requirepass", "s3cr3t", cli=["-a", "s3cr3t"]) as redis:
        heard = told(tmp_path / "heard", redis.url.replace("//", "//:s3cr3t@"))
    assert heard["after the fact"] == [41, 2, False]
    (function,), attempts = heard["while it runs"]
    assert (function.rpartition(".")[2], attempts) == ("wait", 2 * 41)
    assert heard["behind it"] == [2 * 41, False]
    assert heard["stopped"] == 1
    assert heard["has failed"] == [True]
    assert heard["killed"] == [True]


def test_messages_of_a_redis_come_until_it_is_away_and_when_it_is_back():
    with RedisServer() as redis:
        lines = iter(Subscription(redis.url, "reports of mine"))
        for text in ("seven", "", "\u20ac" * 13_013):
            redis.cli("publish", "reports of others", "no")
            redis.cli("-x", "publish", "reports of mine", stdin=text.encode())
            assert next(lines) == text
        redis.kill()
        # However long that takes.
        assert [next(lines) for _ in range(3)] == [None] * 3, "some may have been lost"
        redis.start()
        heard: list[str] = []
        listener = threading.Thread(target=lambda: heard.append(next(filter(None, lines))))
        listener.start()
        while not heard:
            # It may not have subscribed yet.
            redis.cli("publish", "reports of mine", "again")
        listener.join()
        assert heard == ["again"]


def test_a_server_is_reached_as_its_scheme_says(tmp_path):
    at = tmp_path / "redis.sock"
    with RedisServer("--unixsocket", str(at)) as redis:
        for scheme in ("unix", "redis+unix"):
            lines = iter(Subscription(f"{scheme}://{at}", scheme))
            redis.cli("publish", scheme, "thirteen")
            assert next(lines) == "thirteen"
        # Nothing is said to one that does not encrypt.
        with pytest.raises(sa.ConfigurationError, match=r"`server` of `job` does not answer"):
            Subscription(redis.url.replace("redis://", "valkeys://:s3cr3t@"), "mine")


def test_a_redis_that_is_not_there_or_refuses_is_told():
    with RedisServer("--requirepass", "s3cr3t", cli=["-a", "s3cr3t"]) as redis:
        for url in (redis.url, redis.url.replace("//", "//:wrong@")):
            with pytest.raises(sa.ConfigurationError, match=r"`server` of `job` does not answer"):
                Subscription(url, "mine")
        url = redis.url
    with pytest.raises(sa.ConfigurationError, match=r"does not answer"):
        Subscription(url, "mine")


@pytest.mark.parametrize("server", ["http://:s3cr3t@cache:6379", "cache:s3cr3t", 6379, ""])
def test_what_is_no_address_of_a_redis_is_refused(server):
    with pytest.raises(sa.ConfigurationError, match="`server` of `job` must be an addr") as caught:
        remote_owner(Session(), server)
    assert "s3cr3t" not in str(caught.value)


def test_a_password_that_is_not_encoded_is_told_and_not_quoted():
    with pytest.raises(sa.ConfigurationError, match="its port is not a number; perc") as caught:
        remote_owner(Session(), "redis://:s3cr3t/x@localhost:6379")
    assert "s3cr3t" not in str(caught.value)


class Session:
    """As much of a session as its owner asks, of a Spark that keeps no logs."""

    def __init__(self):
        self.interrupted = 0
        self.conf = {}

    def interruptAll(self):  # noqa: N802 - as Spark has it
        self.interrupted += 1
        return ["one", "another"]


def test_a_redis_may_be_named_later_and_what_is_lost_is_said(caplog):
    session = Session()
    owner = remote_owner(session, None)
    assert owner.sums()["at_least"]
    assert "give `job` a Redis as `server=`" in caplog.text
    # No task is known that runs: a client of Connect hears of none.
    assert (owner.actions.stop(), session.interrupted) == (2, 1)
    with RedisServer() as redis:
        assert remote_owner(session, redis.url) is owner is remote_owner(session, None)
        with pytest.raises(sa.ConfigurationError, match="a session has one"):
            remote_owner(session, f"{redis.url}/")
        publish(redis.url, owner.reports.channel, json.dumps(report("begun", None)), 13)
        publish(redis.url, owner.reports.channel, json.dumps(report("begun", "succeeded")), 13)
        # What comes late is of a task that has ended.
        publish(redis.url, owner.reports.channel, json.dumps(report("begun", None)), 13)
        wait_until(lambda: (owner.sums()["attempts"], owner.sums()["at_least"]) == (7, False))
        with pytest.raises(OSError, match=":0"):
            publish(redis.url, "nobody", "hears", 13)
        redis.kill()
        # It may have been told of tasks that began and ended meanwhile.
        wait_until(lambda: owner.sums()["at_least"])


def test_the_redis_may_be_a_secret_that_is_looked_up_again_where_it_is_refused(monkeypatch):
    with RedisServer("--requirepass", "s3cr3t", cli=["-a", "s3cr3t"]) as redis:
        session, server = Session(), sa.secret("REPORTS_URL")
        for url, why in ((redis.url, "does not answer"), ("cache:s3cr3t", "must be an addr")):
            monkeypatch.setenv("REPORTS_URL", url)
            with pytest.raises(sa.ConfigurationError, match=why) as caught:
                remote_owner(session, server)
            assert "s3cr3t" not in str(caught.value)
        monkeypatch.setenv("REPORTS_URL", redis.url.replace("//", "//:s3cr3t@"))
        owner = remote_owner(session, server)
        assert owner is remote_owner(session, sa.secret("REPORTS_URL"))
        publish(server, owner.reports.channel, json.dumps(report("begun", "succeeded")), 13)
        wait_until(lambda: owner.sums()["attempts"] == 7)
    monkeypatch.delenv("REPORTS_URL")
    # A task does not fail for what it cannot tell.
    messages._LOOKED_UP.clear()
    with pytest.raises(sa.ConfigurationError, match="was not found"):
        publish(server, "mine", "x", 13)


def test_the_connection_of_a_session_ends_with_it():
    with RedisServer() as redis:
        session = Session()
        remote_owner(session, redis.url)
        assert "sub=1" in redis.cli("client", "list")
        del session
        gc.collect()
        wait_until(lambda: "sub=1" not in redis.cli("client", "list"))


NUMBERS = itertools.count(1)


def report(task, end):
    counts = {"tasks": 1, "emitted": 7, "attempts": 7, "failed": 0, "dropped": 0, "in_flight": 0}
    return {
        "task": task,
        "number": next(NUMBERS),
        "stage": 4,
        "partition": 0,
        "attempt": 0,
        "action": "7",
        "query": "",
        "batch": "",
        "tags": [],
        "warnings": [],
        "end": end,
        "calls": [("look_up", None, counts)],
        "bounds": {},
        "totals": counts,
        "rows": 7,
    }
