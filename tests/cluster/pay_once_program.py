# SPDX-License-Identifier: Apache-2.0
"""What Spark's own repetitions cost, on a cluster of two executors: one program, three jobs.

``python -m tests.cluster.pay_once_program SETTINGS``: a file with ``master``, ``python``,
``packages``, ``wheel``, ``url``, ``rows`` and ``out``. The calls of each job go to a path of its
own, by which the service counts them; the second copy of a task runs on another host only.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sparkawait as sa
import sparkawait.spark
from tests.cluster.driver_program import session
from tests.support.spark_cluster import START_SECONDS
from tests.support.waiting import wait_until

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().split()[3])


@sa.async_function("executor bigint")
async def place(row):
    # The daemon of an executor is the parent of its workers, and its child.
    return {"executor": parent_of(os.getppid())}


class Jobs:
    """Jobs over rows in two partitions, of which each executor takes one."""

    def __init__(self, spark: SparkSession, settings: dict[str, Any]) -> None:
        self._spark = spark
        self._settings = settings

    def found(self, name: str) -> DataFrame:
        # The driver is one of those, and one executor may have just been replaced.
        status = self._spark.sparkContext._jsc.sc()
        wait_until(lambda: status.getExecutorMemoryStatus().size() == 3, START_SECONDS)
        numbers = self._spark.range(self._settings["rows"], numPartitions=2)
        url = f"{self._settings['url']}/{name}/{{id}}"
        items = sa.http.get(url, schema="value bigint", client=sa.http.Client(proxy=False))
        return sa.ordered_wait(
            numbers, items, timeout=None, capacity=20, tuning=sa.Tuning(warm_up=False)
        )

    def speculation(self) -> int:
        """The service answers a row of the second task when both copies have asked for it."""
        return len(self.found("speculation").collect())

    def lost_output(self) -> int:
        """What the second action would read is gone with an executor."""
        placed = sa.ordered_wait(self.found("lost-output"), place).repartition(2).rdd
        executors = {row.executor for row in placed.collect()}
        self._end(executors)
        return placed.count()

    def lost_rows(self) -> int:
        """The same for persisted rows."""
        placed = sa.ordered_wait(self.found("lost-rows"), place).persist()
        executors = {row.executor for row in placed.collect()}
        self._end(executors)
        return placed.count()

    @staticmethod
    def _end(executors: set[int]) -> None:
        assert len(executors) == 2, executors
        os.kill(min(executors), signal.SIGKILL)


def main(path: str) -> None:
    settings = json.loads(Path(path).read_text())
    counts = []
    # A session of its own for copies of tasks, of which there are to be none in the others.
    for more, names in (({}, ["lost_output", "lost_rows"]), (SPECULATION, ["speculation"])):
        spark = session(settings, more)
        sparkawait.ship(spark, wheel=settings["wheel"])
        jobs = Jobs(spark, settings)
        counts += [getattr(jobs, name)() for name in names]
        spark.stop()
    Path(settings["out"]).write_text(json.dumps({"counts": counts}))


if __name__ == "__main__":
    main(sys.argv[1])
