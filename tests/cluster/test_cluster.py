# SPDX-License-Identifier: Apache-2.0
"""On a real cluster, whose executors have no sparkawait, rows are exact whatever dies."""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import sparkawait as sa
from tests.spark.test_shipping import wheel_of
from tests.support.network import Network
from tests.support.scripted_server import ScriptedServer
from tests.support.servers import LOOPBACK
from tests.support.spark_cluster import SparkCluster, bare_packages
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

ROOT = Path(__file__).parents[2]
ROWS = 200
PATIENCE_SECONDS = 120.0
"""A session on a cluster takes a while to begin."""
PAID_ROWS = 20
PAGE = (ROOT / "docs" / "pay-once.md").read_text(encoding="utf-8")
EXPECTED = [[number, 3 * number] for number in range(ROWS)]


class Items:
    """A service of which a test sees every call, and that answers none while it is held."""

    def __init__(self, host=LOOPBACK):
        self._open = threading.Event()
        self._open.set()
        self._all_twice = threading.Event()
        self.server = ScriptedServer(self._answer, host)

    def _answer(self, target, _):
        self._open.wait()
        number = int(target.rpartition("/")[2])
        if target.startswith("/speculation/") and number >= PAID_ROWS // 2:
            # The second task is slow, until its copy has made all of its calls.
            twice = range(PAID_ROWS // 2, PAID_ROWS)
            if self.calls("/speculation/") & (double := Counter([*twice, *twice])) == double:
                self._all_twice.set()
            self._all_twice.wait()
        return 200, {"Content-Type": "application/json"}, json.dumps({"value": 3 * number}).encode()

    def hold(self):
        self._open.clear()

    def release(self):
        self._open.set()

    def calls(self, path=""):
        """Returns how often each item was asked for."""
        targets = [target for target in self.server.targets if target.startswith(path)]
        return Counter(int(target.rpartition("/")[2]) for target in targets)


@pytest.fixture
def items():
    service = Items()
    with service.server:
        yield service
        service.release()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def executors(tmp_path_factory):
    """A Python, the packages that it has, and a wheel that is sent to it."""
    folder = tmp_path_factory.mktemp("executors")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "bare"], check=True)
    tag = f"cp310-abi3-{platform.system().lower()}_{platform.machine()}"
    return {
        "python": str(folder / "bare" / "bin" / "python"),
        "packages": str(bare_packages(folder / "packages")),
        "wheel": str(wheel_of(folder / "sparkawait.whl", tag)),
    }


class Job:
    """A driver that runs as a program of its own, which is killed with the block that uses it."""

    def __init__(self, cluster, executors, items, folder, *, mode="unordered", program="driver"):
        self._cluster = cluster
        self._out = folder / "results.json"
        rows = ROWS if program == "driver" else PAID_ROWS
        settings = {"master": cluster.address, "url": items.server.url, "rows": rows, "mode": mode}
        settings["host"] = cluster.host
        (folder / "settings.json").write_text(
            json.dumps({**settings, **executors, "out": str(self._out)})
        )
        self._log = folder / "driver.log"
        with self._log.open("wb") as written, cluster.inside():
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"tests.cluster.{program}_program",
                    folder / "settings.json",
                ],
                cwd=ROOT,
                stdout=written,
                stderr=subprocess.STDOUT,
                env={**os.environ, "SPARK_LOCAL_IP": cluster.host},
                start_new_session=True,  # with its JVM
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def results(self):
        """Returns what came out, as soon as the job has ended."""
        assert self.process.wait() == 0, self._log.read_text()[-4000:] + self._cluster.logs()
        return json.loads(self._out.read_text())


@pytest.fixture
def start(cluster, executors, items, tmp_path):
    def starter(mode="unordered", program="driver"):
        return Job(cluster, executors, items, tmp_path, mode=mode, program=program)

    return starter


def wait_for_calls(job, items, count):
    def came():
        return len(items.server.targets) >= count or job.process.poll() is not None

    wait_until(came, PATIENCE_SECONDS)


@pytest.mark.nightly  # the next one has the same executors, and kills one
def test_every_row_is_called_for_once_by_two_executors_that_were_sent_the_wheel(start, items):
    with start("ordered") as job:
        results = job.results()

    assert results["rows"] == EXPECTED
    assert items.calls() == Counter(range(ROWS))
    assert len({place["executor"] for place in results["places"]}) == 2
    for place in results["places"]:
        assert f"sparkawait-{sa.__version__}/sparkawait/__init__.py" in place["module"]


@pytest.mark.parametrize(
    "victim", ["executors", pytest.param("python_workers", marks=pytest.mark.nightly)]
)
def test_rows_are_exact_though_one_of_their_processes_is_killed(start, cluster, items, victim):
    items.hold()
    with start() as job:
        wait_for_calls(job, items, 20)
        os.kill(getattr(cluster, victim)()[0], signal.SIGKILL)
        items.release()
        results = job.results()

    assert sorted(results["rows"]) == EXPECTED
    calls = items.calls()
    assert set(calls) == set(range(ROWS))
    assert max(calls.values()) == 2, "what was in flight is called for again, once"
    assert sum(calls.values()) <= ROWS + 2 * 50, "of the tasks that ran"


@pytest.mark.nightly
def test_calls_end_with_the_driver(start, cluster, items):
    items.hold()
    with start() as job:
        wait_for_calls(job, items, 20)
        assert len(cluster.executors()) == 2
        job.kill()
        wait_until(lambda: not cluster.executors(), PATIENCE_SECONDS)
    wait_until(lambda: not cluster.python_workers(), PATIENCE_SECONDS)
    items.release()
    assert len(items.server.targets) == 20, "10 calls at a time of each executor"


@pytest.mark.nightly
@pytest.mark.skipif(Network.hindrance() is not None, reason=str(Network.hindrance()))
def test_rows_are_exact_over_a_network_that_is_slow_and_loses_packets(executors, tmp_path):
    with (
        Network(3, delay=0.005, loss=0.005) as network,
        SparkCluster(tmp_path, network=network) as cluster,
    ):
        with cluster.inside():
            items = Items(cluster.host)
        with items.server, Job(cluster, executors, items, tmp_path, mode="ordered") as job:
            results = job.results()

    assert results["rows"] == EXPECTED
    assert items.calls() == Counter(range(ROWS)), "what is lost is sent again, not called again"
    assert len({place["executor"] for place in results["places"]}) == 2
    assert network.lost > 0
    assert min(network.carried) > ROWS, "each executor was sent the wheel"


# What happens, the calls for 20 rows in two tasks, and how the page says it.
REPETITIONS = [
    ("speculation", 30, "`spark.speculation` starts a copy of one of two tasks"),
    ("lost-output", 30, "one of two executors is lost, and with it what the next stage would read"),
    ("lost-rows", 30, "one of two executors is lost after `found.persist()`, then `found.count()`"),
]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_calls_of_repetitions_are_as_many_as_the_page_says(start, items):
    with start(program="pay_once") as job:
        assert job.results()["counts"] == [PAID_ROWS] * 3

    for path, calls, text in REPETITIONS:
        counts = items.calls(f"/{path}/")
        assert (sum(counts.values()), max(counts.values())) == (calls, 2), path
        assert f"| {text} | {calls} |" in PAGE
