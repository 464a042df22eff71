# SPDX-License-Identifier: Apache-2.0
"""How much does `sparkawait.ship` add to a session, until its first row is there?

On a cluster of a master and a worker, whose executor has the package besides, so that the same
program runs with and without. The wheel is the one that `SPARKAWAIT_WHEEL` names, or the one in
dist/. Goal: at most 2 s. Beside it are the CPU seconds of the driver, its JVM and the cluster: they
tell more than the clock where other programs run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from built_wheel import built_wheel
from figures import Figure, Settings, alternate

from benches.compare.tree import below
from tests.support.spark_cluster import SparkCluster

GOAL_SECONDS = 2.0
_TICKS = slice(11, 15)
"""User and system time, of a process and of its children that have ended."""


def _cpu_seconds(roots: list[int]) -> float:
    ticks = 0
    for pid in {pid for root in roots for pid in (root, *below(root))}:
        with contextlib.suppress(OSError):  # it has ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[_TICKS]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _session(master: str, wheel: str, cluster: list[int]) -> tuple[float, float]:
    """Returns the seconds from a session that is there to its first row, and those of CPUs.

    Ships a wheel if one is named.
    """
    from pyspark.sql import SparkSession

    import sparkawait as sa
    import sparkawait.spark
    from sparkawait.testing import simulated

    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the executor
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for name in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.executor.memory", "512m").getOrCreate()
    processes = [os.getpid(), *cluster]
    start, spent = perf_counter(), _cpu_seconds(processes)
    if wheel:
        sparkawait.ship(spark, wheel=wheel)
    sa.ordered_wait(spark.range(1, numPartitions=1), simulated()).collect()
    taken = perf_counter() - start, _cpu_seconds(processes) - spent
    spark.stop()
    return taken


def _run(cluster: SparkCluster, wheel: str) -> tuple[float, float]:
    command = [sys.executable, __file__, json.dumps([cluster.address, wheel, cluster.processes()])]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - itself
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr[-3000:])
    seconds, cpu_seconds = json.loads(ran.stdout.splitlines()[-1])
    return seconds, cpu_seconds


def figures(settings: Settings) -> list[Figure]:
    """Measures sessions with and without, in turn; each is a program of its own."""
    wheel = str(built_wheel())
    with (
        tempfile.TemporaryDirectory(prefix="sparkawait-") as folder,
        SparkCluster(Path(folder), workers=1) as cluster,
    ):
        shipped, present = alternate(
            settings.rounds, lambda: _run(cluster, wheel), lambda: _run(cluster, "")
        )
    added = [
        [mine - other for mine, other in zip(*taken, strict=True)]
        for taken in zip(shipped, present, strict=True)
    ]
    return [
        Figure(
            "what shipping adds to a session, until its first row",
            "s",
            [seconds for seconds, _ in added],
            "",
            [],
            goal=GOAL_SECONDS,
            of_ratio=False,
            at_most=True,
            details={"shipped": shipped, "present": present},
        ),
        Figure(
            "the same in CPU time of driver, executor and Spark",
            "s",
            [cpu_seconds for _, cpu_seconds in added],
            "",
            [],
            goal=None,
            of_ratio=False,
            at_most=True,
        ),
    ]


if __name__ == "__main__":
    print(json.dumps(_session(*json.loads(sys.argv[1]))))
