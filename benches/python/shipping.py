# SPDX-License-Identifier: Apache-2.0
"""How much does `sparkawait.spark.ship` add to a session, until its first row is there?

On a cluster of a master and a worker, whose executor has the package besides, so that the same
program runs with and without. Goal: at most 2 s.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from figures import Figure, Settings, alternate

from tests.spark.test_shipping import wheel_of
from tests.support.spark_cluster import SparkCluster

GOAL_SECONDS = 2.0


def _session(master: str, wheel: str) -> float:
    """Returns the seconds from a session that is there to its first row; ships a wheel if named."""
    from pyspark.sql import SparkSession

    import sparkawait as sa
    import sparkawait.spark
    from sparkawait.testing import simulated

    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the executor
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for name in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.executor.memory", "512m").getOrCreate()
    start = perf_counter()
    if wheel:
        sparkawait.spark.ship(spark, wheel=wheel)
    sa.ordered_wait(spark.range(1, numPartitions=1), simulated()).collect()
    seconds = perf_counter() - start
    spark.stop()
    return seconds


def _run(master: str, wheel: str) -> float:
    command = [sys.executable, __file__, json.dumps([master, wheel])]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - itself
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr[-3000:])
    return float(ran.stdout.split()[-1])


def figures(settings: Settings) -> list[Figure]:
    """Measures sessions with and without, in turn; each is a program of its own."""
    with tempfile.TemporaryDirectory(prefix="sparkawait-") as folder:
        tag = f"cp310-abi3-{platform.system().lower()}_{platform.machine()}"
        wheel = str(wheel_of(Path(folder) / "sparkawait.whl", tag))
        with SparkCluster(Path(folder), workers=1) as cluster:
            shipped, present = alternate(
                settings.rounds,
                lambda: _run(cluster.address, wheel),
                lambda: _run(cluster.address, ""),
            )
    return [
        Figure(
            "what shipping adds to a session, until its first row",
            "s",
            [mine - other for mine, other in zip(shipped, present, strict=True)],
            "",
            [],
            goal=GOAL_SECONDS,
            of_ratio=False,
            at_most=True,
            details={"shipped": shipped, "present": present},
        )
    ]


if __name__ == "__main__":
    print(_session(*json.loads(sys.argv[1])))
