# SPDX-License-Identifier: Apache-2.0
"""Limits that the workers of a job keep together, by the driver's server and by Redis.

Workers are processes of their own. What a server grants, and what shares do with it, is tested
without clocks in ``rust/lease``.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._core import LimitServer, limit_now
from sparkawait._plan.plan import Place
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import ErrorKind
from sparkawait.rate_limit import ALONE, Sharing
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import RedisServer
from tests.support.servers import LOOPBACK, free_port
from tests.support.waiting import PATIENCE_SECONDS, wait_until

SECRET = "a secret of the job"  # noqa: S105 - of a test
SCRIPT = Path(__file__).parents[2] / "rust" / "lease" / "src" / "exchange.lua"


# What the servers answer is compared in Rust, number by number.
REDIS = pytest.param("redis", marks=pytest.mark.nightly)


@pytest.fixture(scope="module", params=["driver", REDIS])
def address(request):
    """Returns where limits are kept: by the server in the driver's process, and by a Redis."""
    if request.param == "driver":
        server = LimitServer("127.0.0.1", 0, SECRET)
        yield f"redis://:{SECRET.replace(' ', '%20')}@127.0.0.1:{server.port}"
    else:
        with RedisServer() as redis:
            yield redis.url


@pytest.fixture(scope="module")
def driver():
    return LimitServer("127.0.0.1", 0, SECRET)


class Worker:
    """A process that takes part in a limit."""

    def __init__(self, server, limit, rows, seconds=0.0, **more):
        told = {"server": server, "limit": limit, "rows": rows, "seconds": seconds, **more}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.connect.job_limit_program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        json.dump(told, self.process.stdin)
        self.process.stdin.close()
        self.begun, self.ended, self.rows = [], [], {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            what, number, value = line.split()
            if what == "=":
                self.rows[int(number)] = value
            else:
                (self.begun if what == "+" else self.ended).append(float(value))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()

    def wait(self):
        assert self.process.wait(PATIENCE_SECONDS) == 0
        self._reader.join()
        return self.rows


def most_beyond(times, rate, burst):
    """Returns by how much calls exceed what a rate allows, in the worst window."""
    worst = level = 0.0
    last = None
    for at in sorted(times):
        level = 1 + (0.0 if last is None else max(level - rate * (at - last), 0.0))
        worst, last = max(worst, level), at
    return worst - burst


def most_at_a_time(workers):
    events = [(at, +1) for it in workers for at in it.begun]
    events += [(at, -1) for it in workers for at in it.ended]
    most = now = 0
    for _, step in sorted(events):
        now += step
        most = max(most, now)
    return most


def test_workers_share_a_rate_and_one_that_stands_still_does_not_exceed_it(address):
    limit = ["RateLimit", {"rate": "97/s", "name": "a rate"}]
    counts = [61, 331]
    with ExitStack() as stack:
        start = [stack.enter_context(Worker(address, limit, it)) for it in counts]
        wait_until(lambda: len(start[0].begun) > 13)
        os.kill(start[0].process.pid, signal.SIGSTOP)
        # It may have begun late, when the other one had not much to do any more.
        enough = min(len(start[1].begun) + 31, counts[1])
        wait_until(lambda: len(start[1].begun) >= enough)
        os.kill(start[0].process.pid, signal.SIGCONT)
        rows = [it.wait() for it in start]
    assert rows == [dict.fromkeys(range(it), "None") for it in counts]
    begun = [at for it in start for at in it.begun]
    assert most_beyond(begun, 97, 97) <= 1, "what stood between the permit and the call"


def test_a_rate_that_is_changed_holds_for_workers_that_run(address):
    """How soon, and how exactly, is tested in ``rust/lease``, with a clock that stands."""
    rate = {"rate": "10/min", "burst": 1, "name": "to be changed"}
    limit = sa.RateLimit(**rate, server=address)
    rows = 2_003
    with ExitStack() as stack:
        start = [stack.enter_context(Worker(address, ["RateLimit", rate], rows)) for _ in range(2)]
        wait_until(lambda: any(it.begun for it in start))

        def change(value):
            anew = sa.RateLimit(value, name="to be changed")
            limit_now("", limit.terms("", ALONE), anew.terms("", ALONE))
            return time.monotonic()

        def are_slow(since):
            """Whether seven calls came about as slowly as the lower rate has them."""
            begun = sorted(at for it in start for at in it.begun if at > since)
            pairs = zip(begun, begun[6:], strict=False)
            return any(last - first > 0.9 * 6 / 13 for first, last in pairs)

        change("300/s")
        # They would take many minutes.
        wait_until(lambda: sum(len(it.begun) for it in start) > 131)
        lowered = change("13/s")
        wait_until(lambda: are_slow(lowered))
        assert any(len(it.begun) < rows for it in start), "there are calls left to be slow"
        change("9973/s")
        left = [it.wait() for it in start]
    assert left == [dict.fromkeys(range(rows), "None")] * 2
    assert limit_now("", limit.terms("", ALONE), None)[0] == 9973


def test_the_server_of_a_limit_may_be_a_secret(driver, monkeypatch):
    budget = sa.Budget(3, name="by a secret", server=sa.secret("LIMITS_URL"))
    rows = [pa.record_batch({"id": range(7)})]
    options = {"rate_limit": budget, "on_error": "drop"}
    for value, told in [(None, "LIMITS_URL"), ("localhost", "must be an address")]:
        if value is not None:
            monkeypatch.setenv("LIMITS_URL", value)
        with pytest.raises(sa.ConfigurationError, match=told):
            arrow.ordered_wait(rows, count_up, **options).to_table()

    monkeypatch.setenv(
        "LIMITS_URL", f"redis://:{SECRET.replace(' ', '%20')}@127.0.0.1:{driver.port}"
    )
    assert arrow.ordered_wait(rows, count_up, **options).to_table().num_rows == 3
    assert "LIMITS_URL" not in repr(budget)


@pytest.mark.nightly
def test_each_limit_has_its_node_in_a_cluster_of_redis():
    rows = [pa.record_batch({"id": range(13)})]
    with RedisCluster() as cluster:
        for number in range(7):
            budget = sa.Budget(number + 1, name=f"budget {number}", server=cluster.url)
            out = arrow.ordered_wait(rows, count_up, rate_limit=budget, on_error="drop")
            assert out.to_table().num_rows == number + 1
        kept = [int(node.cli("dbsize")) for node in cluster.primaries]
    assert sum(kept) == 3 * 7
    assert all(kept)


@sa.async_function("up long")
async def count_up(row):
    return {"up": row.id + 1}


def test_no_more_calls_are_in_flight_than_the_job_may_have(address):
    limit = ["PerJob", {"calls": 13, "name": "at a time"}]
    with ExitStack() as stack:
        start = [stack.enter_context(Worker(address, limit, 61, 0.037)) for _ in range(2)]
        rows = [it.wait() for it in start]
    assert rows == [dict.fromkeys(range(61), "None")] * 2
    assert 5 <= most_at_a_time(start) <= 13


def test_a_budget_is_spent_and_no_more(address):
    """A call reserves 0.15 and costs 0.07, so it lasts for 285 of 400 rows."""
    limit = ["Budget", {"total": 20.0, "cost": 0.15, "result_cost": "cost", "name": "dollars"}]
    with ExitStack() as stack:
        start = [
            stack.enter_context(Worker(address, limit, 200, 0.007, cost=0.07)) for _ in range(2)
        ]
        rows = [it.wait() for it in start]
    ends = [kind for it in rows for kind in it.values()]
    called = sum(len(it.begun) for it in start)
    assert ends.count("budget-spent") == len(ends) - called == 400 - called
    assert 19.8 <= called * 0.07 <= 20.0


def test_the_same_name_with_other_terms_is_refused(address):
    def run(rate):
        limit = sa.RateLimit(rate, name="one name", server=address)
        return sa.arrow.ordered_wait([ROW], double, rate_limit=limit).to_table()

    assert run("97/s").num_rows == 1
    with pytest.raises(sa.ConfigurationError, match="limit `one name` has another rate") as caught:
        run("98/s")
    assert caught.value.kind == ErrorKind.RATE_LIMIT_INVALID


ROW = pa.record_batch({"id": [7]})


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row["id"]}


@pytest.mark.parametrize("protocol", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_the_client_of_redis_for_python_speaks_to_it(driver, protocol):
    redis = pytest.importorskip("redis")
    with redis.Redis(port=driver.port, password=SECRET, protocol=protocol) as client:
        assert client.ping()
        sha = client.script_load(SCRIPT.read_text(encoding="utf-8"))
        said = ["", "calls", 13, 0, 0, "w", 1, 7, 3, 0, 0, 0, 0, -1, 0, 0]
        name = f"by {protocol}"
        first = client.evalsha(sha, 3, name, f"{name}:lately", f"{name}:wanting", *said)
        assert first == [b"lease", b"6", b"0", b"25000000", b"0"]
        with pytest.raises(redis.ResponseError, match="unknown command"):
            client.flushall()
    once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    guesses = redis.Redis(port=driver.port, password="guessed", retry=once)  # noqa: S106
    with guesses as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_who_does_not_say_the_secret_within_a_second_is_hung_up_on(driver):
    start = time.monotonic()
    with socket.create_connection((LOOPBACK, driver.port), PATIENCE_SECONDS) as silent:
        silent.sendall(b"*2\r\n$4\r\nAUTH\r\n")
        assert silent.recv(99) == b""
        assert time.monotonic() - start > 0.9


def test_it_ends_with_its_connections_when_it_is_dropped():
    server = LimitServer("127.0.0.1", 0, SECRET)
    with socket.create_connection((LOOPBACK, server.port), PATIENCE_SECONDS) as client:
        client.sendall(f"*2\r\n$4\r\nAUTH\r\n${len(SECRET)}\r\n{SECRET}\r\n".encode())
        assert client.recv(99) == b"+OK\r\n"
        port = server.port
        del server
        assert client.recv(99) == b""
    # Its connections may end a moment before nobody listens any more.
    wait_until(lambda: is_refused(port))


def is_refused(port):
    try:
        socket.create_connection((LOOPBACK, port), PATIENCE_SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def test_calls_wait_for_a_server_that_is_not_there_yet():
    port = free_port()
    limit = ["RateLimit", {"rate": "97/s", "name": "late"}]
    url = f"redis://:{SECRET.replace(' ', '%20')}@{LOOPBACK}:{port}"
    with ExitStack() as stack:
        # Hangs up on the first question, so that it is certain that one was asked before.
        asked = stack.enter_context(socket.create_server((LOOPBACK, port)))
        worker = stack.enter_context(Worker(url, limit, 13))
        asked.settimeout(PATIENCE_SECONDS)
        question, _ = asked.accept()
        asked.close()
        question.close()
        server = LimitServer(LOOPBACK, port, SECRET)
        assert worker.wait() == dict.fromkeys(range(13), "None")
        del server


class Placed(Place):
    """Where tasks are told of a server."""

    def __init__(self, sharing):
        self._sharing = sharing

    def sharing(self, name, limits):
        return self._sharing


@contextmanager
def port_that_refuses():
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextmanager
def port_that_drops():
    """Yields a port that answers nobody, as behind a firewall: its queue is full."""
    with ExitStack() as stack:
        full = stack.enter_context(closing(socket.socket()))
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            waits = stack.enter_context(closing(socket.socket()))
            waits.setblocking(False)
            waits.connect_ex(full.getsockname())
        yield full.getsockname()[1]


def times_without_server(closed, limit, rows, **sharing):
    """Returns when calls of a task began whose driver is not reached, and the permits taken."""
    totals = {}
    with closed() as port:
        server = f"redis://:guessed@127.0.0.1:{port}"
        place = Placed(Sharing("app-13", 7, 1, server, server, **sharing))
        options = {"rate_limit": limit, "timeout": None, "place": place}
        plan = resolve_unpickled("unordered", begin, input_schema=None, **options)
        rows = iter([pa.record_batch({"id": range(rows)})])
        out = arrow.run(plan, rows, on_metrics=totals.update)
        times = sorted(at for batch in out for at in batch["at"].to_pylist())
    [taken] = totals["rate_limits"].values()
    return times, taken["permits"]


@sa.async_function("at double")
async def begin(row):
    return {"at": time.monotonic()}


@pytest.mark.parametrize(
    "closed", [pytest.param(port_that_refuses, marks=pytest.mark.nightly), port_that_drops]
)
def test_a_limit_without_a_scope_is_each_tasks_where_the_driver_is_not_reached(
    closed, caplog, monkeypatch, tmp_path
):
    # Where it is noted of an address that this has been told.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    start = time.monotonic()
    times, permits = times_without_server(closed, "97/s", 131, is_usual=True)
    assert times[0] - start > 4
    assert len(times) == permits == 131
    (told,) = [it for it in caplog.messages if "not reached from this host" in it]
    assert "127.0.0.1:" in told
    assert "each of 7 tasks has the whole of it, together up to 679 in 1s. Open" in told
    assert "spark.sparkawait.port" in told
    assert "guessed" not in caplog.text


@pytest.mark.parametrize(
    "limit", [sa.RateLimit("97/s", scope="job"), sa.Budget(13.7, cost=0.31)], ids=["rate", "budget"]
)
def test_calls_that_nobody_can_give_a_part_say_that_they_wait(limit, caplog, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with port_that_refuses() as port:
        server = f"redis://:guessed@127.0.0.1:{port}"
        place = Placed(Sharing("app-13", None, 1, server, server))
        options = {"rate_limit": limit, "timeout": None, "place": place}
        plan = resolve_unpickled("unordered", begin, input_schema=None, **options)
        out = arrow.run(plan, iter([pa.record_batch({"id": range(13)})]), heartbeat=0.1)
        assert next(out).num_rows == 0
        out.close()
    (told,) = [it for it in caplog.messages if "not reached from this host" in it]
    assert "its calls wait for it, as a budget has no parts" in told
    assert "`spark.cores.max`" in told


@pytest.mark.nightly  # half a minute, after which a server is lost
@pytest.mark.timeout(90)
@pytest.mark.parametrize("closed", [port_that_refuses, port_that_drops])
def test_calls_wait_for_a_server_that_nobody_reaches_and_then_have_the_part_of_a_task(
    closed, caplog
):
    start = time.monotonic()
    times, permits = times_without_server(closed, sa.RateLimit("97/s", scope="job"), 41)
    assert times[0] - start > 29
    assert len(times) == permits == 41
    # As a part of seven has them, of which the first may be late; the whole would take 0.4 s.
    assert times[-1] - times[0] > 0.5 * 40 * 7 / 97
    assert "after 30 s each task has its part" in caplog.text
