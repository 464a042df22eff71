# SPDX-License-Identifier: Apache-2.0
"""A journal on a cluster: executors that are killed, copies of tasks, and another folder."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.cluster.pay_once_program import SPECULATION
from tests.spark.journal_program import MOST_CALLS
from tests.spark.test_journal_crashes import ROOT, Service, committed
from tests.support.scripted_server import ScriptedServer
from tests.support.spark_cluster import START_SECONDS, SparkCluster
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.newest_spark,
    pytest.mark.nightly,
    pytest.mark.timeout(400),
]

ROWS = 3011
KILLS = 3


class Asked(Service):
    """Answers the last row when both copies of its task have asked for it."""

    needs = 1

    def __call__(self, target, before):
        answer = super().__call__(target, before)
        if target == f"/{ROWS - 1}":
            wait_until(lambda: self.calls[ROWS - 1] >= self.needs, 200)
        return answer


class Run:
    """The program on a cluster."""

    def __init__(self, cluster, url, folder, out, **more):
        self.log = out.with_suffix(".log")
        settings = {
            "spark.master": cluster.address,
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.cores.max": "2",
            "spark.task.maxFailures": "50",
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.executorEnv.PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
            "spark.pyspark.python": sys.executable,
            **more,
        }
        words = [url, ROWS, 2, "unordered_wait", folder, out]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.journal_program", *map(str, words)],
                cwd=ROOT,
                env={**os.environ, "JOURNAL_SPARK": json.dumps(settings)},
                stdout=log,
                stderr=log,
            )

    def is_over(self):
        return self.process.poll() is not None

    def succeeds(self):
        assert self.process.wait(300) == 0, self.log.read_text()


def found(out):
    return sorted((row["id"], row["name"]) for row in pq.read_table(out).to_pylist())


EXPECTED = [(id_, f"name of {id_}") for id_ in range(ROWS)]


def test_executors_that_are_killed_and_copies_of_tasks_pay_for_nothing_that_is_kept(tmp_path):
    chance = random.Random(331)  # noqa: S311 - no secret
    service, folder, out = Asked(), tmp_path / "journal", tmp_path / "out"
    paid: dict[int, int] = {}
    largest = 1
    with SparkCluster(tmp_path) as cluster, ScriptedServer(service) as server:
        run = Run(cluster, server.url, folder, out)
        for kill in range(KILLS):
            least = (kill + 1) * ROWS // (KILLS + 2)
            wait_until(lambda least=least: service.total >= least or run.is_over(), 200)
            assert not run.is_over(), run.log.read_text()
            wait_until(cluster.executors, START_SECONDS)
            os.kill(chance.choice(cluster.executors()), signal.SIGKILL)
            names, sizes = committed(folder)
            with service.lock:
                paid |= {id_: service.calls[id_] for id_ in names if id_ not in paid}
            largest = max(largest, *sizes.values())
        run.succeeds()
        assert found(out) == EXPECTED
        names, sizes = committed(folder)
        largest = max(largest, *sizes.values())
        assert [id_ for id_, calls in paid.items() if service.calls[id_] != calls] == []
        assert service.total - ROWS <= KILLS * (MOST_CALLS + largest)

        # The same rows, and copies of their tasks: no call at all.
        before = service.total
        run = Run(cluster, server.url, folder, tmp_path / "again", **SPECULATION)
        run.succeeds()
        assert found(tmp_path / "again") == EXPECTED
        assert service.total == before

        # Both copies pay for what both have begun, and the folder has one answer for each row.
        service.needs = service.calls[ROWS - 1] + 2
        other, second = tmp_path / "other", tmp_path / "second"
        run = Run(cluster, server.url, other, second, **SPECULATION)
        run.succeeds()
        assert found(second) == EXPECTED
        copied = service.total - before - ROWS
        assert 1 <= copied <= MOST_CALLS + max(committed(other)[1].values())
        before = service.total
        service.needs = 1
        run = Run(cluster, server.url, other, second)
        run.succeeds()
        assert found(second) == EXPECTED
        assert service.total == before


@pytest.mark.skipif(os.geteuid() != 0, reason="a host of its own needs a mount namespace")
def test_a_folder_that_a_host_does_not_share_is_told(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    service = Service()
    with SparkCluster(tmp_path, private=shared) as cluster, ScriptedServer(service) as server:
        run = Run(
            cluster,
            server.url,
            shared / "journal",
            tmp_path / "out",
            # Else Spark goes on until each task has found the other host.
            **{"spark.task.maxFailures": "1"},
        )
        assert run.process.wait(300) != 0
    assert "is not the one that the driver has opened; give a folder that" in run.log.read_text()
