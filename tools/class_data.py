# SPDX-License-Identifier: Apache-2.0
"""Writes an archive of the classes that Spark loads, for the Java virtual machines of the tests.

A Spark takes 10 s of processor time until its first query is done, and half of that is loading
classes: 5 s where it maps this archive. The tests start dozens. Java takes an archive only with the
JVM and the classes that made it, and ignores it otherwise, so nothing depends on it.

usage: python -m tools.class_data FILE
"""

import os
import sys
import tempfile
from pathlib import Path

_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_EXIT_SECONDS = 300


def main(file: Path) -> None:
    """Writes the archive to ``file``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    # Read by the JVM of the driver, and not by the one that finds out how to start it.
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_OPTIONS} -XX:ArchiveClassesAtExit={file} -Xlog:disable"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        _run_queries(Path(folder))


def _run_queries(folder: Path) -> None:
    """Has Spark load what most tests load: plans, shuffles, Python, files and a stream."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - the only way to its process
    rows = spark.range(17).withColumn("text", col("id").cast("string"))
    mapped = rows.mapInArrow(lambda batches: batches, rows.schema)
    mapped.groupBy("text").count().orderBy("text").toPandas()
    rows.join(rows, ["id", "text"]).write.parquet(str(folder / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(folder / "rows"))
    sink = stream.groupBy("text").count().writeStream.outputMode("complete").format("memory")
    sink = sink.option("checkpointLocation", str(folder / "checkpoint")).queryName("counts")
    sink.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    # It writes the archive when it ends, and it ends with its input.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_EXIT_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
