# SPDX-License-Identifier: Apache-2.0
"""A driver whose streams stand still between the commit of their sink and Spark's, to be killed.

``python -m tests.spark.carry_over_driver FOLDER PORT LINGER UNTIL THEN`` runs each of `QUERIES`
from its checkpoint, if it has one. ``UNTIL`` names rows, as JSON by query. ``THEN`` is ``stand``: a
micro-batch after which a sink has these comes to no end; or ``end``: the queries end when they have
them and nothing is in flight.

What happens is said on standard output, a line of JSON for each: ``["executed", query]``,
``["stands", query]``. It ends when the driver and its JVM have ended.
"""

import asyncio
import itertools
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import sparkawait as sa
from sparkawait.outcomes import Emit
from tests.support.waiting import wait_until

QUERIES: dict[str, tuple[Emit, str]] = {
    "next_batch-files": ("next_batch", "files"),
    "next_batch-batches": ("next_batch", "batches"),
    "at_once-files": ("at_once", "files"),
    "at_once-batches": ("at_once", "batches"),
}
"""When results leave, and the sink.

``files`` is Spark's own, which skips a micro-batch that it has without running it; ``batches`` runs
each, and then skips what it has.
"""


VALIDATION = "spark.sql.streaming.stateStore.commitValidation.enabled"
"""Whether a micro-batch that leaves its state as it was fails, since Spark 4.2."""


def tell(*words: str) -> None:
    # In one piece, whichever thread says it.
    os.write(sys.stdout.fileno(), f"{json.dumps(words)}\n".encode())


def rows_of(folder: Path, query: str) -> list[int]:
    """Returns what a query has put out, by now and for good."""
    out = folder / query / "out"
    if QUERIES[query][1] == "batches":
        return [id_ for path in out.glob("*.json") for id_ in json.loads(path.read_text())]
    logs = [path for path in out.glob("_spark_metadata/*") if path.stem.isdigit()]
    # Every tenth has the lines of those before it, too.
    lines = {line for path in logs for line in path.read_text().splitlines()[1:]}
    names = {Path(json.loads(line)["path"]).name for line in lines}
    return [id_ for name in names for id_ in pq.read_table(out / name)["id"].to_pylist()]


def has_all(folder: Path, query: str, rows: list[int]) -> bool:
    return Counter(rows) <= Counter(rows_of(folder, query))


def has_nothing_in_flight(query: StreamingQuery) -> bool:
    progress = query.lastProgress
    row = None if progress is None else progress["observedMetrics"].get("sparkawait")
    return row is not None and row["carried"] == row["held"] == 0


def put_batch(query: str, out: Path, batch: DataFrame, number: int) -> None:
    ids = [row.id for row in batch.select("id").collect()]
    tell("executed", query)
    path = out / f"{number}.json"
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(json.dumps(ids))
        part.rename(path)


def file_sink(spark: SparkSession, out: Path) -> Any:
    """Returns the sink behind ``writeStream.format("parquet")``."""
    jvm: Any = spark.sparkContext._jvm
    sql = jvm.org.apache.spark.sql.execution
    parquet = sql.datasources.parquet.ParquetFileFormat()
    nothing = jvm.PythonUtils.toSeq([]), jvm.PythonUtils.toScalaMap({})
    session: Any = spark._jsparkSession  # pyright: ignore[reportAttributeAccessIssue]
    return sql.streaming.sinks.FileStreamSink(session, str(out), parquet, *nothing)


def asked_of(port: int, query: str) -> Any:
    """Returns a function that asks a server for the double of each row."""

    @sa.async_function("doubled bigint")
    async def double(row):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"{json.dumps([query, row['id']])}\n".encode())
            return {"doubled": int(await reader.readline())}
        finally:
            writer.close()

    return double


def session(folder: Path) -> SparkSession:
    local = folder / "local"
    local.mkdir(exist_ok=True)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        # Who is killed leaves files behind.
        "spark.local.dir": str(local),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={local}",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def sink_of(
    spark: SparkSession, folder: Path, query: str, until: list[int], *, stands: bool
) -> Callable[[DataFrame, int], None]:
    out = folder / query / "out"
    out.mkdir(parents=True, exist_ok=True)
    files = file_sink(spark, out) if QUERIES[query][1] == "files" else None

    def put(batch: DataFrame, number: int) -> None:
        if files is None:
            put_batch(query, out, batch, number)
        else:
            files.addBatch(number, batch._jdf)  # pyright: ignore[reportAttributeAccessIssue]
        if stands and has_all(folder, query, until):
            tell("stands", query)
            threading.Event().wait()

    return put


def main(folder_: str, port: str, linger: str, until_: str, then: str) -> None:
    folder, until = Path(folder_), json.loads(until_)
    spark = session(folder)
    # Asked of `foreachBatch` only, in which the sink of files skips what it has.
    sessions = {"files": spark, "batches": spark.newSession()}
    queries: dict[str, StreamingQuery] = {}
    for name, (emit, sink_name) in QUERIES.items():
        own = sessions[sink_name]
        own.conf.set(VALIDATION, str(sink_name != "files").lower())
        reader = own.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        called = sa.unordered_wait(
            reader.json(str(folder / "source")),
            asked_of(int(port), name),
            timeout=None,
            carry_over=sa.CarryOver(emit=emit, linger=linger),
        )
        sink = sink_of(spark, folder, name, until[name], stands=then == "stand")
        writer = called.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(folder / name / "checkpoint"))
        queries[name] = writer.trigger(processingTime="200 milliseconds").start()
    if then == "stand":
        # A session knows its own queries only.
        for query in itertools.cycle(queries.values()):
            query.awaitTermination(1)
    for name, query in queries.items():

        def is_over(name: str = name, query: StreamingQuery = query) -> bool:
            if query.exception() is not None:
                raise query.exception()
            return has_all(folder, name, until[name]) and has_nothing_in_flight(query)

        wait_until(is_over, patience=90)
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
