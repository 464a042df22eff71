# SPDX-License-Identifier: Apache-2.0
"""Asks for what calls do over Spark Connect, and writes what it heard, as JSON, into a file.

``python -m tests.spark.connect_job_program OUT [REDIS]``. A program of its own, because classic
sessions and those of Connect do not mix in a process.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sparkawait as sa
from tests.support.connect_server import at_a_free_port
from tests.support.waiting import wait_until

ROWS, STUCK = 41, 13
PATIENCE = 120.0


class Program:
    """A session, the owner of its calls, and what is told of them."""

    def __init__(self, out: Path, redis: str | None) -> None:
        """Starts the session."""
        builder = at_a_free_port(SparkSession.builder.remote("local[2]"))
        builder = builder.config("spark.sql.pyspark.worker.logging.enabled", redis is None)
        self.spark = builder.getOrCreate()
        self.job = sa.job(self.spark, server=redis)
        self.gate = gate = Path(f"{out}.gate")
        self.told: dict[str, Any] = {}

        @sa.async_function("v long")
        async def ask(row):
            return {"v": 7 * row.id}

        @sa.async_function("v long", threads=64)
        def wait(row):
            while row.id % 3 == STUCK % 3 and not gate.exists():
                time.sleep(0.01)
            return {"v": row.id}

        @sa.async_function("v long")
        async def die(row):
            if row.id == STUCK:
                os._exit(3)
            return {"v": row.id}

        self.ask, self.wait, self.die = ask, wait, die

    def fails(self, function: Any) -> bool:
        """Has all rows called for; returns whether the action fails."""
        try:
            rows = sa.unordered_wait(self.spark.range(ROWS, numPartitions=2), function).collect()
        except PySparkException:
            return True
        assert len(rows) == ROWS
        return False

    def counts(self, *names: str) -> list[Any]:
        """Returns some of the metrics."""
        metrics: Any = self.job.metrics
        return [metrics[it] for it in names]

    def count(self) -> None:
        """Tells of an action that has ended."""
        assert not self.fails(self.ask)
        self.told["after the fact"] = self.counts("attempts", "tasks", "at_least")

    def look(self) -> None:
        """Tells of one that runs."""
        action = threading.Thread(target=self.fails, args=(self.wait,))
        action.start()
        waiting = len(range(STUCK % 3, ROWS, 3))
        wait_until(lambda: sum(it.in_flight for it in self.job.progress) == waiting, PATIENCE)
        running = [it.function for it in self.job.progress]
        self.told["while it runs"] = [running, *self.counts("attempts")]
        self.gate.touch()
        action.join()
        self.gate.unlink()
        self.told["behind it"] = self.counts("attempts", "at_least")

    def stop(self) -> None:
        """Tells of one that is stopped."""
        failed: list[bool] = []
        action = threading.Thread(target=lambda: failed.append(self.fails(self.wait)))
        action.start()
        wait_until(lambda: bool(self.job.progress), PATIENCE)
        self.told["stopped"] = self.job.stop()
        action.join()
        self.told["has failed"] = failed

    def kill(self) -> None:
        """Tells of one whose worker dies."""
        assert self.fails(self.die)
        self.told["killed"] = self.counts("at_least")


def main(out: Path, redis: str | None) -> None:
    """Writes what it heard."""
    program = Program(out, redis)
    program.count()
    if redis is not None:
        program.look()
        program.stop()
    program.kill()
    out.write_text(json.dumps(program.told))
    program.spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
