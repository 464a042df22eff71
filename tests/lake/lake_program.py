# SPDX-License-Identifier: Apache-2.0
"""Runs the page about Kafka, Delta and Iceberg twice, with further orders in the topic.

usage: python lake_program.py PAGE BROKER

PAGE is its code, whose second part begins with the first query. Prints
the rows of both tables after each run, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

RUNS = [(0, 211), (211, 401)]
"""Ids of the orders that come before each run."""


def orders(spark: SparkSession, broker: str, start: int, end: int) -> None:
    """Puts orders into the topic."""
    columns = "cast(id as string) key", "to_json(struct(id order_id, id % 31 customer_id)) value"
    frame = spark.range(start, end).selectExpr(*columns)
    options = {"kafka.bootstrap.servers": broker, "topic": "orders"}
    frame.write.format("kafka").options(**options).save()


def tables(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of both tables, by id."""
    found = {
        "delta": spark.read.format("delta").load("enriched"),
        "iceberg": spark.table("lake.sales.enriched"),
    }
    return {
        name: [row.asDict(recursive=True) for row in table.orderBy("order_id").collect()]
        for name, table in found.items()
    }


def main() -> None:
    """Runs the page."""
    before, queries, rest = Path(sys.argv[1]).read_text().partition("to_delta = (")
    names: dict[str, Any] = {}
    exec(before, names)  # noqa: S102 - it makes the session
    spark = names["spark"]
    seen = []
    for start, end in RUNS:
        orders(spark, sys.argv[2], start, end)
        exec(queries + rest, names)  # noqa: S102
        seen.append(tables(spark))
    spark.stop()
    sys.stdout.write(json.dumps(seen, default=str))


if __name__ == "__main__":
    main()
