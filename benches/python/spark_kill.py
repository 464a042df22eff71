# SPDX-License-Identifier: Apache-2.0
"""How soon after a task is killed have all of its calls ended?

One task with 1 000 calls that hang; the job is cancelled, without interrupting Spark's threads, and
the calls say when the last of them was cancelled. Goal: a second.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from figures import Figure, Settings
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from session import local_spark

import sparkawait as sa

CALLS = 1_000


class Hanging(sa.AsyncFunction):
    """Calls that never return; the first and the last leave their times in files."""

    schema = "never bigint"

    def __init__(self, directory: str) -> None:
        """Takes the directory of the files."""
        self.directory = directory
        self.calls = 0

    async def async_invoke(self, row: Any) -> Any:  # noqa: ARG002 - it never returns
        """Hangs until it is cancelled."""
        self.calls += 1
        if self.calls == CALLS:
            self._note("hanging")
        try:
            await asyncio.Event().wait()
        finally:
            self.calls -= 1
            if self.calls == 0:
                self._note("ended")

    def _note(self, name: str) -> None:
        """Writes the time under another name first, so that a reader sees all of it or nothing."""
        path = Path(self.directory, name)
        path.with_suffix(".new").write_text(str(time.time()))
        path.with_suffix(".new").rename(path)


def _seconds(spark: SparkSession) -> float:
    with TemporaryDirectory() as directory:
        frame = spark.range(CALLS, numPartitions=1)
        hanging = sa.unordered_wait(frame, Hanging(directory), max_concurrency=CALLS, timeout=None)
        job = threading.Thread(target=_run, args=(hanging,))
        job.start()
        _time_in(directory, "hanging")
        killed = time.time()
        spark.sparkContext.cancelAllJobs()
        job.join()
        return _time_in(directory, "ended") - killed


def _run(frame: DataFrame) -> None:
    with suppress(PySparkException, Py4JError):  # It is cancelled.
        frame.write.format("noop").mode("overwrite").save()


def _time_in(directory: str, name: str) -> float:
    path = Path(directory, name)
    for _ in range(6_000):
        if path.exists():
            return float(path.read_text())
        time.sleep(0.01)
    msg = f"`{name}` was not noted within a minute"
    raise TimeoutError(msg)


def figures(settings: Settings) -> list[Figure]:
    """Measures the time from the cancellation of a job to the end of its last call."""
    with local_spark() as spark:
        spark.sparkContext.setLogLevel("OFF")
        seconds = [_seconds(spark) for _ in range(settings.rounds + 1)][1:]
    name = "Spark, from the kill of a task to the end of its last call"
    return [Figure(name, "s", seconds, "", [], goal=1.0, of_ratio=False, at_most=True)]
