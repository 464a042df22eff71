# SPDX-License-Identifier: Apache-2.0
"""A job on a cluster whose executors have pyarrow only; writes what came out, as JSON.

``python -m tests.cluster.driver_program SETTINGS``: a file with ``master``, ``python``,
``packages``, ``wheel``, ``url``, ``rows``, ``mode``, ``out`` and ``host``, the address of this one.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparkawait as sa
import sparkawait.spark


@sa.async_function("executor bigint, module string")
async def place(row):
    import sparkawait

    # The daemon of an executor is the parent of its workers.
    return {"executor": os.getppid(), "module": sparkawait.__file__}


def session(settings: dict[str, str], more: dict[str, str] | None = None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = settings["python"]
    builder = (
        SparkSession.builder.master(settings["master"])
        .config("spark.driver.bindAddress", settings["host"])
        .config("spark.driver.host", settings["host"])
        .config("spark.ui.enabled", "false")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.cores.max", "2")
        .config("spark.executorEnv.PYTHONPATH", settings["packages"])
        # Both executors are there before the first task, and each gets its share.
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.locality.wait", "0")
    )
    for name, value in (more or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(path: str) -> None:
    settings = json.loads(Path(path).read_text())
    spark = session(settings)
    sparkawait.ship(spark, wheel=settings["wheel"])
    numbers = spark.range(settings["rows"], numPartitions=4)
    results: dict[str, object] = {}
    if settings["mode"] == "ordered":
        places = sa.ordered_wait(numbers, place).select("executor", "module").distinct().collect()
        results["places"] = [row.asDict() for row in places]
    items = sa.http.get(settings["url"] + "/items/{id}", schema="value bigint")
    wait = {"ordered": sa.ordered_wait, "unordered": sa.unordered_wait}[settings["mode"]]
    rows = wait(numbers, items, timeout=None, capacity=10).collect()
    results["rows"] = [[row["id"], row["value"]] for row in rows]
    Path(settings["out"]).write_text(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
