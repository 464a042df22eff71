# SPDX-License-Identifier: Apache-2.0
"""Runs the page about Kafka, Delta and Iceberg, with further orders in the topic.

usage: python lake_program.py {twice | flowing} FOLDER BROKER

FOLDER has the page's code: `session.py` makes the session and the frame, `tables.py` runs both
queries until they end, `delta.py` and `iceberg.py` start the queries that go on. Prints what a
reader would see in the tables, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import sparkawait as sa

RUNS = [(0, 211), (211, 401)]
"""Ids of the orders that come before each run."""

ARRIVALS = [(0, 97), (97, 211), (211, 307)]
"""Ids of the orders that come in a stream: first, while the table refuses them, and behind that."""

AGAIN = (307, 320)
"""And of those that a query with a new checkpoint finds."""

PATIENCE = 240.0
"""Seconds in which rows get to a table, on a machine that does other things."""


def orders(spark: SparkSession, broker: str, start: int, end: int) -> None:
    """Puts orders into the topic."""
    columns = "cast(id as string) key", "to_json(struct(id order_id, id % 31 customer_id)) value"
    frame = spark.range(start, end).selectExpr(*columns)
    options = {"kafka.bootstrap.servers": broker, "topic": "orders"}
    frame.write.format("kafka").options(**options).save()


def rows_of(table: DataFrame) -> list[dict[str, Any]]:
    """Returns the rows of a table, by id."""
    return [row.asDict(recursive=True) for row in table.orderBy("order_id").collect()]


class Delta:
    """A Delta table, which a constraint lets refuse rows."""

    name = "delta"
    page = "delta.py"
    query = "to_delta"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self) -> DataFrame:
        return self._spark.read.format("delta").load("flowing")

    def refuse(self) -> None:
        rule = f"alter table delta.`{Path('flowing').absolute()}` add constraint no"
        self._spark.sql(f"{rule} check (order_id < {ARRIVALS[0][1]})")

    def accept(self) -> None:
        self._spark.sql(f"alter table delta.`{Path('flowing').absolute()}` drop constraint no")


class Iceberg:
    """An Iceberg table, which a format that does not exist lets refuse everything."""

    name = "iceberg"
    page = "iceberg.py"
    query = "to_iceberg"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self) -> DataFrame:
        # Iceberg keeps the table as it was read last, as long as it is read every 30 seconds.
        self._spark.sql("refresh table lake.sales.flowing")
        return self._spark.read.table("lake.sales.flowing")

    def refuse(self) -> None:
        properties = "('write.format.default' = 'none-that-exists')"
        self._spark.sql(f"alter table lake.sales.flowing set tblproperties {properties}")

    def accept(self) -> None:
        properties = "('write.format.default')"
        self._spark.sql(f"alter table lake.sales.flowing unset tblproperties {properties}")


def wait_for(is_true: Callable[[], bool], what: str) -> None:
    """Waits until something has come."""
    end = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > end:
            message = f"{what} has not come in {PATIENCE:.0f} s"
            raise TimeoutError(message)
        time.sleep(0.3)


def start_again(names: dict[str, Any], sink: Delta | Iceberg) -> Any:
    """Starts the query with an empty checkpoint where the old one ended, as another page says."""
    offsets = Path("checkpoints", f"flowing-{sink.name}", "offsets")
    last = max((it for it in offsets.iterdir() if it.name.isdecimal()), key=lambda it: int(it.name))
    ended = last.read_text().splitlines()[-1]
    exec(Path("session.py").read_text().replace('"earliest"', repr(ended)), names)  # noqa: S102
    exec(Path(sink.page).read_text().replace("flowing-", "again-"), names)  # noqa: S102
    return names[sink.query]


def flow(names: dict[str, Any], broker: str, sink: Delta | Iceberg) -> dict[str, Any]:
    """Starts a query of the page, lets its table fail once, starts it again, and drains it.

    Then it goes on with a new checkpoint.
    """
    spark, code = names["spark"], Path(sink.page).read_text()

    def started() -> Any:
        exec(code, names)  # noqa: S102
        return names[sink.query]

    def has(count: int) -> Callable[[], bool]:
        def look() -> bool:
            if (error := query.exception()) is not None:
                raise error
            return query.lastProgress is not None and sink.read().count() >= count

        return look

    first, refused, last = ARRIVALS
    orders(spark, broker, *first)
    query = started()
    wait_for(has(first[1]), f"row {first[1]} of {sink.query}")
    told = [progress["observedMetrics"]["sparkawait"] for progress in query.recentProgress]
    sink.refuse()
    orders(spark, broker, *refused)
    failure = ""
    try:
        query.awaitTermination(PATIENCE)
    except StreamingQueryException as error:
        failure = str(error)
    query.stop()
    sink.accept()
    orders(spark, broker, *last)
    query = started()
    wait_for(has(last[1]), f"row {last[1]} of {sink.query}")
    is_empty = sa.drain(query, timeout=PATIENCE)
    orders(spark, broker, *AGAIN)
    query = start_again(names, sink)
    wait_for(has(AGAIN[1]), f"row {AGAIN[1]} of {sink.query}")
    is_empty = sa.drain(query, timeout=PATIENCE) and is_empty
    return {
        "carried": max(numbers["carried"] for numbers in told),
        "failure": failure,
        "is_empty": is_empty,
        "rows": rows_of(sink.read()),
    }


def main() -> None:
    """Runs the page."""
    how, broker = sys.argv[1:]
    names: dict[str, Any] = {}
    exec(Path("session.py").read_text(), names)  # noqa: S102 - it makes the session
    spark = names["spark"]
    seen: Any
    if how == "twice":
        seen = []
        for start, end in RUNS:
            orders(spark, broker, start, end)
            exec(Path("tables.py").read_text(), names)  # noqa: S102
            found = spark.read.format("delta").load("enriched"), spark.table("lake.sales.enriched")
            seen.append([rows_of(table) for table in found])
    else:
        sink = {"delta": Delta, "iceberg": Iceberg}[how](spark)
        seen = flow(names, broker, sink)
    spark.stop()
    sys.stdout.write(json.dumps(seen, default=str))


if __name__ == "__main__":
    main()
