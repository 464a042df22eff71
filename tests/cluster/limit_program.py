# SPDX-License-Identifier: Apache-2.0
"""A job on a cluster whose calls tell a service that they begin; writes what came out, as JSON.

``python -m tests.cluster.limit_program SETTINGS``: a file with ``master``, ``host``, ``out``,
``service`` (host and port of UDP), ``rows`` and ``skew`` (rows of the first partition and of the
others), ``limits`` (keywords of `RateLimit`), ``seconds`` of a call, ``more`` (settings of Spark).
"""

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sparkawait as sa

ROOT = Path(__file__).parents[2]


class Call(sa.AsyncFunction):
    """Tells the service of its row, and costs something else than it was charged."""

    schema = "used bigint, pid bigint"

    def __init__(self, service, seconds):
        self.service, self.seconds = tuple(service), seconds

    def open(self, context):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    async def async_invoke(self, row):
        used = 500 + row["id"] % 251
        told = f"{row['id']} {used} {os.getpid()} {time.time()}"
        self.socket.sendto(told.encode(), self.service)
        await asyncio.sleep(self.seconds)
        return {"used": used, "pid": os.getpid()}

    def close(self):
        self.socket.close()


def session(settings):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(settings["master"])
        .config("spark.driver.bindAddress", settings["host"])
        .config("spark.driver.host", settings["host"])
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", f"{ROOT / 'python'}:{ROOT}")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.locality.wait", "0")
    )
    for name, value in settings.get("more", {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(path: str) -> None:
    settings = json.loads(Path(path).read_text())
    spark = session(settings)
    partitions, first, rest = settings["partitions"], settings["first"], settings["rest"]
    # The first partition has more rows than the others: they are idle soon.
    rows = spark.range(0, first * partitions, 1, partitions)
    rows = rows.where(f"id < {first} or id % {first} < {rest}")
    limits = [sa.RateLimit(**it) for it in settings["limits"]]
    out = sa.unordered_wait(
        rows,
        Call(settings["service"], settings["seconds"]),
        rate_limit=limits,
        timeout=None,
        max_concurrency=settings.get("calls", 400),
        capacity=settings.get("calls", 400),
    )
    found = [[row["id"], row["used"], row["pid"]] for row in out.collect()]
    Path(settings["out"]).write_text(json.dumps({"rows": found}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
