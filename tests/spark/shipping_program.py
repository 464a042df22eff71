# SPDX-License-Identifier: Apache-2.0
"""Ships a wheel to workers whose Python has none, and writes what came of it, as JSON.

``python -m tests.spark.shipping_program OUT WHEEL PYTHON classic|connect``: a program of its own,
because the Python of the workers is chosen before a session starts.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparkawait as sa
import sparkawait.spark


@sa.async_function("module string, python string")
async def place(row):
    import sparkawait

    return {"module": sparkawait.__file__, "python": sys.executable}


def session(kind: str, python: str) -> SparkSession:
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    if kind == "connect":
        builder = builder.config("spark.sql.execution.pyspark.python", python)
        return builder.remote("local[1]").getOrCreate()
    os.environ["PYSPARK_PYTHON"] = python
    return builder.master("local[1]").getOrCreate()


def refusal(spark: SparkSession, wheel: str) -> str:
    try:
        sparkawait.spark.ship(spark, wheel=wheel)
    except sa.ConfigurationError as error:
        return str(error)
    return "nothing was raised"


def main(out: str, wheel: str, python: str, kind: str) -> None:
    spark = session(kind, python)
    results: dict[str, object] = {}
    results["unfit"] = refusal(spark, wheel.replace("linux", "win"))
    for _ in range(2):
        sparkawait.spark.ship(spark, wheel=wheel)
    results["another"] = refusal(spark, f"{wheel}.other")
    rows = sa.ordered_wait(spark.range(3), place).collect()
    results["rows"] = [row.asDict() for row in rows]
    column = sa.async_udf(place)("id").alias("found")
    results["column"] = spark.range(1).select(column).first()["found"].asDict()  # pyright: ignore[reportOptionalSubscript]
    Path(out).write_text(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
