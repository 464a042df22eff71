# SPDX-License-Identifier: Apache-2.0
"""Ships a wheel to workers whose Python has none, and writes what came of it, as JSON.

``python -m tests.spark.shipping_program OUT WHEEL PYTHON SERVERS classic|connect``: a program of
its own, because the Python of the workers is chosen before a session starts. A session of Spark
Connect chooses PYTHON where its server has chosen SERVERS.
"""

import json
import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

import sparkawait as sa
import sparkawait.spark
from tests.spark.carried import OFTEN, ROCKS, STORE
from tests.support.connect_server import at_a_free_port
from tests.support.waiting import wait_until

# Spark Connect has the second one since 4.1.
VEHICLES = [None] if pyspark.__version__.startswith(("3.", "4.0.")) else [None, OFTEN]
PATIENCE_SECONDS = 60.0


@sa.async_function("module string, python string")
async def place(row):
    import sparkawait

    return {"module": sparkawait.__file__, "python": sys.executable}


def session(kind: str, python: str, servers: str) -> SparkSession:
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    if kind == "connect":
        builder = builder.config("spark.sql.execution.pyspark.python", python)
        os.environ["PYSPARK_PYTHON"] = servers
        return at_a_free_port(builder.remote("local[1]")).getOrCreate()
    os.environ["PYSPARK_PYTHON"] = python
    return builder.master("local[1]").getOrCreate()


def refusal(spark: SparkSession, wheel: str) -> str:
    try:
        sparkawait.ship(spark, wheel=wheel)
    except sa.ConfigurationError as error:
        return str(error)
    return "nothing was raised"


def carried_over(spark: SparkSession, folder: Path) -> list[object]:
    """A stream by each vehicle. Spark unpickles what the second one gets on the driver, too."""
    spark.conf.set(STORE, ROCKS)
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.range(3).write.parquet(str(folder / "source"))
    source = spark.readStream.schema("id bigint").parquet(str(folder / "source"))
    return [
        [vehicle, carried_by(vehicle, source, f"carried{number}")]
        for number, vehicle in enumerate(VEHICLES)
    ]


def carried_by(vehicle: str | None, source: DataFrame, name: str) -> list[object]:
    out = sa.unordered_wait(source, place, carry_over=sa.CarryOver(vehicle=vehicle))
    writer = out.writeStream.format("memory").queryName(name)
    query = writer.trigger(processingTime="100 milliseconds").start()
    rows = source.sparkSession.table(name)
    wait_until(lambda: rows.count() == 3 or not query.isActive, PATIENCE_SECONDS)
    failure = query.exception()
    query.stop()
    return (
        [str(failure)] if failure else sorted([row["id"], row["python"]] for row in rows.collect())
    )


def main(out: str, wheel: str, python: str, servers: str, kind: str) -> None:
    spark = session(kind, python, servers)
    results: dict[str, object] = {}
    results["unfit"] = refusal(spark, wheel.replace("linux", "win"))
    for _ in range(2):
        sparkawait.ship(spark, wheel=wheel)
    results["another"] = refusal(spark, f"{wheel}.other")
    rows = sa.ordered_wait(spark.range(3), place).collect()
    results["rows"] = [row.asDict() for row in rows]
    column = sa.async_udf(place)("id").alias("found")
    results["column"] = spark.range(1).select(column).first()["found"].asDict()  # pyright: ignore[reportOptionalSubscript]
    results["carried over"] = carried_over(spark, Path(out).parent)
    Path(out).write_text(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
