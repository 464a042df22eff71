# SPDX-License-Identifier: Apache-2.0
"""A limit of the job on a cluster, whose executors are on other hosts than the driver.

A service counts the calls that begin, while executors are killed, stopped and added.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.network import Network
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.newest_spark,
    pytest.mark.nightly,
    pytest.mark.skipif(Network.hindrance() is not None, reason=str(Network.hindrance())),
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0


class Service:
    """Counts calls as they arrive, by a datagram each."""

    def __init__(self, cluster):
        with cluster.inside():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            self._socket.bind((cluster.host, 0))
        self.address = self._socket.getsockname()
        self.calls = []
        """When each arrived and began, its row, its cost and the process that made it."""
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self):
        with contextlib.suppress(OSError):
            while told := self._socket.recv(200).split():
                number, used, pid, began = told
                self.calls.append((time.time(), float(began), int(number), int(used), int(pid)))

    def close(self):
        self._socket.close()

    def pids(self):
        return {it[4] for it in self.calls}


class Job:
    """A driver that runs on the first host of the cluster."""

    def __init__(self, cluster, service, folder, limits, **more):
        self._out = folder / "out.json"
        self.log = folder / "driver.log"
        settings = {
            "master": cluster.address,
            "host": cluster.host,
            "out": str(self._out),
            "service": service.address,
            "limits": limits,
            "seconds": 0.037,
            "partitions": 4,
            "rest": 13,
            **more,
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        with self.log.open("wb") as written, cluster.inside():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.limit_program", folder / "settings.json"],
                cwd=ROOT,
                stdout=written,
                stderr=subprocess.STDOUT,
                env={**os.environ, "SPARK_LOCAL_IP": cluster.host},
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for(self, service, count):
        wait_until(
            lambda: len(service.calls) >= count or self.process.poll() is not None,
            PATIENCE_SECONDS,
        )
        assert self.process.poll() is None, self.log.read_text()[-6000:]

    def rows(self):
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.log.read_text()[-6000:]
        return json.loads(self._out.read_text())["rows"]


@pytest.fixture
def hosts(tmp_path):
    """Returns a cluster of two hosts with two cores each, and a service beside the driver."""
    (tmp_path / "cluster").mkdir()
    with (
        Network(3, delay=0.001, loss=0.0) as network,
        SparkCluster(tmp_path / "cluster", network=network, cores=2) as cluster,
        contextlib.closing(Service(cluster)) as service,
    ):
        yield cluster, service


def most_beyond(times, rate, burst, costs=None):
    """Returns by how much calls exceed what a rate allows, in the worst window."""
    worst, level, last = 0.0, 0.0, None
    for at, cost in sorted(zip(times, costs or [1] * len(times), strict=True)):
        if last is not None:
            level = max(level - rate * (at - last), 0.0)
        level, last = level + cost, at
        worst = max(worst, level)
    return worst - burst


def test_a_limit_holds_while_an_executor_is_stopped_and_another_is_killed(hosts, tmp_path):
    """All windows, by the times at which calls began; arrivals of the stopped one come later."""
    cluster, service = hosts
    limits = [{"rate": "500/s", "scope": "job"}]
    with Job(cluster, service, tmp_path, limits, first=4000, rest=2000) as job:
        job.wait_for(service, 1500)
        stopped, killed = cluster.executors()
        workers = cluster.python_workers()
        halted = [pid for pid in workers if _below(stopped, pid)]
        assert halted
        for pid in halted:
            os.kill(pid, signal.SIGSTOP)
        job.wait_for(service, len(service.calls) + 1000)
        for pid in halted:
            os.kill(pid, signal.SIGCONT)
        job.wait_for(service, len(service.calls) + 1000)
        os.kill(killed, signal.SIGKILL)
        rows = job.rows()
    assert sorted(row[0] for row in rows) == sorted(_expected(4000, 2000))
    began = [it[1] for it in service.calls]
    assert most_beyond(began, 500, 500) <= 0, "in any window, whatever happens"
    took = max(began) - min(began)
    sys.stdout.write(f"{len(began)} calls in {took:.2f} s, {len(began) / took / 500:.3f}\n")


def test_a_limit_holds_while_an_executor_joins(tmp_path):
    (tmp_path / "cluster").mkdir()
    with (
        Network(3, delay=0.001, loss=0.0) as network,
        SparkCluster(tmp_path / "cluster", 1, network=network, cores=2) as cluster,
        contextlib.closing(Service(cluster)) as service,
    ):
        limits = [{"rate": "500/s", "scope": "job"}]
        with Job(cluster, service, tmp_path, limits, first=1300, rest=1300, partitions=7) as job:
            job.wait_for(service, 1013)
            before, [first] = service.pids(), cluster.executors()
            cluster.join()
            wait_until(lambda: len(service.pids() - before) > 0, PATIENCE_SECONDS)
            joined = time.time()
            rows = job.rows()
        assert sorted(row[0] for row in rows) == list(range(7 * 1300))
    began = [it[1] for it in service.calls]
    assert first
    assert most_beyond(began, 500, 500) <= 0, "in any window"
    took = max(began) - min(began)
    behind = sum(it > joined for it in began)
    sys.stdout.write(
        f"{len(began)} calls in {took:.2f} s, {len(began) / took / 500:.3f}; {behind} behind\n"
    )
    assert behind > 0


def test_one_busy_task_beside_three_idle_ones_uses_both_limits(hosts, tmp_path):
    cluster, service = hosts
    limits = [
        {"rate": "500/s", "scope": "job", "counts": "requests"},
        {
            "rate": "200000/min",
            "scope": "job",
            "cost": 1000,
            "result_cost": "used",
            "name": "tokens",
        },
    ]
    with Job(cluster, service, tmp_path, limits, first=211) as job:
        rows = job.rows()
    assert sorted(row[0] for row in rows) == sorted(_expected(211, 13))
    began, costs = [it[1] for it in service.calls], [it[3] for it in service.calls]
    took = max(began) - min(began)
    used = sum(costs) / took / 200_000 * 60
    sys.stdout.write(f"{sum(costs)} in {took:.2f} s, {used:.3f} of the limit\n")
    assert most_beyond(began, 500, 500) <= 0
    assert most_beyond(began, 200_000 / 60, 3_333, costs) <= 0


def _expected(first, rest):
    return [it for it in range(4 * first) if it < first or it % first < rest]


def _below(parent, pid):
    while pid > 1:
        if pid == parent:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False
