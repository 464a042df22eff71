# SPDX-License-Identifier: Apache-2.0
"""A stream with `carry_over`, by each vehicle that Spark has; prints what came of it, as JSON.

usage: python carried_program.py FOLDER
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

import sparkawait as sa

FILES, ROWS = 7, 13
LONG = 1.3
"""Seconds of some calls: longer than a micro-batch waits for them."""


def came_of(spark: SparkSession, folder: Path, carry_over: sa.CarryOver) -> dict[str, list[int]]:
    """Runs a stream over all files, and one behind it that finds nothing to do."""
    folder.mkdir(parents=True)
    source, calls = folder / "in", folder / "calls"
    source.mkdir()
    for file in range(FILES):
        rows = (json.dumps({"id": file * ROWS + row}) for row in range(ROWS))
        (source / f"{file}.json").write_text("\n".join(rows))

    async def tripled(row):
        log = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{row.id}\n".encode())
        os.close(log)
        await asyncio.sleep(LONG if row.id % ROWS == 5 else 0)
        return {"tripled": 3 * row.id}

    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 3).json(str(source))
    # Several bundles for each shard, as a topic with more partitions than shards has.
    out = sa.unordered_wait(
        stream.repartition(8), tripled, schema="tripled long", timeout="29s", carry_over=carry_over
    )
    for _ in range(2):
        query = (
            out.writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "out"))
        )
        query.awaitTermination()
    found = spark.read.parquet(str(folder / "out")).orderBy("id").collect()
    return {
        "rows": [row.id for row in found if row.tripled == 3 * row.id],
        "calls": sorted(int(line) for line in calls.read_text().split()),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    vehicles = {"default": sa.CarryOver()}
    if pyspark.__version__ >= "4":
        vehicles["transform_with_state"] = sa.CarryOver(vehicle="transform_with_state")
    seen = {name: came_of(spark, folder / name, how) for name, how in vehicles.items()}
    spark.stop()
    told = {"spark": pyspark.__version__, "pyarrow": pa.__version__, "seen": seen}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
