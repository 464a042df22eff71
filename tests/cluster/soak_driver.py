# SPDX-License-Identifier: Apache-2.0
"""The driver of `tests.cluster.soak`, which may be killed.

``python -m tests.cluster.soak_driver ADDRESS``: a socket that says what to do. First come the
settings of the session, then jobs to run and questions about what they have counted.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sparkawait as sa
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
BURST, CALLS = 331, 37
"""Of the limits: requests at once, and calls at a time."""
PARTITIONS = 5


def rate_of(rows: int) -> int:
    """Returns the requests in a second for so many rows: they take 50 seconds at most."""
    return max(997, rows // 50)


class Driver:
    """A session, and its jobs.

    Args:
        settings: Where its master is, what workers have in their environment, and the service.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        """Starts the session."""
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = (
            SparkSession.builder.master(settings["master"] or "local[2, 97]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.executor.memory", "512m")
            .config("spark.executorEnv.PYTHONPATH", f"{ROOT / 'python'}:{ROOT}")
            .config("spark.task.maxFailures", "97")
            .config("spark.deploy.maxExecutorRetries", "-1")
        )
        for name, value in settings["environment"].items():
            builder = builder.config(f"spark.executorEnv.{name}", value)
        self._url = settings["url"]
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")
        self._job = sa.job(self._spark)
        self._before = 0

    def answer(self, order: dict[str, Any]) -> Any:
        """Does what it is told."""
        if "least" in order:
            return self._counted_at_last(order["least"])
        self._before = self._counted()
        return self._run(**order)

    def _run(self, journal: str, rows: int, name: str, redis: str) -> dict[str, int]:
        get = sa.http.get(f"{self._url}/{{id}}", "v long", client=sa.http.Client(proxy=False))
        out = sa.unordered_wait(
            self._spark.range(rows, numPartitions=PARTITIONS),
            get,
            journal=sa.Journal(journal),
            rate_limit=sa.RateLimit(f"{rate_of(rows)}/s", burst=BURST, name=name, server=redis),
            max_concurrency=sa.PerJob(CALLS),
            retry=sa.retry.exponential_backoff(31, "7ms", "97ms", budget=None),
            timeout="10min",
        )
        found = Counter((row["id"], row["v"]) for row in out.collect())
        expected = Counter((it, 7 * it) for it in range(rows))
        lost, doubled = expected - found, found - expected
        return {"lost": lost.total(), "doubled or wrong": doubled.total()}

    def _counted_at_last(self, least: int) -> int:
        """Returns how many calls the last job has counted, as soon as there are so many."""
        try:
            wait_until(lambda: not self._job.progress, 60.0)
            wait_until(lambda: least <= self._counted() - self._before, 10.0)
        except TimeoutError:
            pass
        return self._counted() - self._before

    def _counted(self) -> int:
        metrics: Any = self._job.metrics
        return metrics["attempts"] + metrics["failed_tasks"]["attempts"]

    def end(self) -> None:
        """Ends the session."""
        self._spark.stop()


def main(address: str) -> None:
    """Does what it is told until nobody tells it anything."""
    with Client(address) as connection:
        driver = Driver(connection.recv())
        connection.send("ready")
        try:
            while True:
                connection.send(driver.answer(connection.recv()))
        except EOFError:
            driver.end()


if __name__ == "__main__":
    main(sys.argv[1])
