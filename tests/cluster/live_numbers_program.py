# SPDX-License-Identifier: Apache-2.0
"""A job on a cluster that is counted while it runs, and is stopped.

``python -m tests.cluster.live_numbers_program MASTER FOLDER``: each call leaves a byte in a file of
its process in ``FOLDER/calls``. Writes what was seen to ``FOLDER/out.json``.
"""

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sparkawait as sa
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


class Call(sa.AsyncFunction):
    """Leaves a byte and answers a moment later."""

    schema = "v long"

    def __init__(self, folder):
        self.folder = folder

    def open(self, context):
        path = f"{self.folder}/{os.getpid()}"
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def async_invoke(self, row):
        os.write(self.file, b".")
        await asyncio.sleep(0.037)
        return {"v": row["id"]}

    def close(self):
        os.close(self.file)


def main(master: str, folder: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", f"{ROOT / 'python'}:{ROOT}")
        .getOrCreate()
    )
    calls = Path(folder, "calls")
    calls.mkdir()

    def made() -> int:
        return sum(it.stat().st_size for it in calls.iterdir())

    def counted() -> int:
        metrics = job.metrics
        return metrics["attempts"] + metrics["failed_tasks"]["attempts"]

    job = sa.job(spark)
    seen = {}

    def watch():
        wait_until(lambda: counted() > 0, 120.0)
        [runs] = job.progress
        seen["live"] = [runs.tasks_done, runs.tasks, runs.in_flight > 0]
        seen["stopped"] = job.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    rows = spark.range(0, 40_000, 1, 4)
    out = sa.unordered_wait(rows, Call(str(calls)), max_concurrency=7)
    with contextlib.suppress(Exception):
        out.write.format("noop").mode("overwrite").save()
    watcher.join()
    wait_until(lambda: not job.progress, 60.0)
    seen["after"] = [counted(), made()]
    time.sleep(2.0)
    seen["later"] = made()
    Path(folder, "out.json").write_text(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
