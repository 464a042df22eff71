# SPDX-License-Identifier: Apache-2.0
"""Uses everything over Spark Connect and writes what came out, as JSON, into the given file.

With ``sessions`` behind it, also what several sessions and threads read.

A program of its own, because classic sessions and those of Connect do not mix in a process.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.testing import LookupServer, simulated
from tests.spark import sessions_seen
from tests.spark.carried import ROCKS, STORE
from tests.support.connect_server import at_a_free_port
from tests.support.sql_conf import ZONE, sql_conf
from tests.support.waiting import wait_until

# Since Spark 4.0 the server comes with the package; before, Spark fetches it from Maven Central.
SERVER_35 = "org.apache.spark:spark-connect_2.12:3.5.7"


@sa.async_function("doubled bigint, name string")
async def double(row):
    return {"doubled": 2 * row["id"], "name": f"number {row['id']}"}


@sa.async_function("doubled bigint, name string", threads=7)
def double_in_a_thread(row):
    return {"doubled": 2 * row["id"], "name": f"number {row['id']}"}


def sum_in_a_thread(a, b):
    return a + b


@sa.async_function("answer bigint")
async def fail_odd(row):
    if row["id"] % 2:
        raise LookupError
    return {"answer": row["id"]}


@sa.async_function("before bigint")
async def call_before(row):
    return {"before": row["id"]}


@sa.async_function("after bigint")
async def fail_at_three(row):
    if row["id"] == 3:
        raise LookupError
    return {"after": row["id"]}


async def sum_of(a, b):
    return a + b


@sa.async_function("same bigint")
async def same(row):
    return {"same": row["id"]}


def rows(df: DataFrame) -> list[Any]:
    return [list(row.asDict(recursive=True).values()) for row in df.collect()]


def message_of(call: Callable[[], object]) -> str:
    try:
        call()
    except sa.ConfigurationError as error:
        return str(error)
    return "nothing was raised"


def failure_of_a_task(spark: SparkSession) -> str:
    before = sa.ordered_wait(spark.range(10, numPartitions=1), call_before)
    try:
        sa.ordered_wait(before, fail_at_three).collect()
    except Exception as error:  # noqa: BLE001 - its class has moved between versions of Spark
        return str(error)
    return "nothing was raised"


def stream(spark: SparkSession, folder: Path) -> list[Any]:
    spark.range(20, numPartitions=2).write.parquet(str(folder / "source"))
    source = spark.readStream.schema("id bigint").parquet(str(folder / "source"))
    query = (
        sa.unordered_wait(source, double)
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(rows(spark.read.parquet(str(folder / "out"))))


Behind = Callable[[DataFrame], DataFrame]


def as_it_is(df: DataFrame) -> DataFrame:
    return df


def called_again(df: DataFrame) -> DataFrame:
    """Calls for each row once more, with the vehicle of which a query may have several."""
    again = sa.unordered_wait(
        df.repartition(2), same, carry_over=sa.CarryOver(vehicle="transform_with_state")
    )
    return again.where("id = same").drop("same")


def carried_over_by_two(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """What comes of a query with two calls that are carried over, or why it is refused."""
    with sql_conf(spark, {STORE: ROCKS}):
        try:
            return carried_over(spark, folder, called_again)
        except sa.ConfigurationError as error:
            return {"refused": str(error)}


def written_once(numbers: DataFrame, folder: Path) -> dict[str, Any]:
    """What two runs write and call, the second one of more rows and of those that failed."""
    path, called, down = folder / "once", folder / "called", folder / "down"

    @sa.async_function("doubled bigint, name string")
    async def double_when_up(row):
        with called.open("a") as file:
            file.write(f"{row['id']}\n")
        if row["id"] % 7 == 3 and down.exists():
            raise ConnectionError
        return {"doubled": 2 * row["id"], "name": f"number {row['id']}"}

    def run(few: DataFrame) -> tuple[DataFrame, list[int]]:
        options: Any = {"key": "id", "chunk": 7, "on_error": "capture", "again": "failed"}
        done = sa.write_once(few, double_when_up, path, **options)
        calls = sorted(map(int, called.read_text().split()))
        called.unlink()
        return done, calls

    down.touch()
    first, calls = run(numbers.where("id < 13"))
    failed = sorted(row.id for row in first.where("error is not null").collect())
    down.unlink()
    second, calls_again = run(numbers)
    found = sorted([row.id, row.doubled, row.name] for row in second.collect())
    return {"calls": [calls, calls_again], "failed": failed, "rows": found}


def split_in(mode: Any, numbers: DataFrame, path: Path) -> Any:
    """How many rows are good and how many failed, or why nothing is written."""
    out = sa.ordered_wait(numbers, fail_odd, on_error="capture")
    try:
        good, failed = sa.split(out, path, **({"mode": mode} if mode else {}))
    except Exception as error:  # noqa: BLE001 - its class has moved between versions of Spark
        return str(error).partition("\n")[0]
    return [good.columns, good.count(), failed.count(), failed.first().error.kind]


def sent(numbers: DataFrame, **given: Any) -> Any:
    try:
        sent = sa.send(numbers, fail_odd, **given)
    except sa.ConfigurationError as error:
        return str(error)
    return [sent.rows, sent.failed, sent.calls, sent.repeated_calls, len(sent.failures)]


def drained(query: Any) -> bool | str:
    """Ends a query whose rows have all come; returns whether none is in flight, or why not."""
    try:
        return sa.drain(query, timeout="60s")
    except sa.ConfigurationError as error:
        query.stop()
        return str(error)


def carried_over(spark: SparkSession, folder: Path, behind: Behind = as_it_is) -> dict[str, Any]:
    """What comes out of a stream while one of its calls is in flight, and when that has ended.

    Args:
        spark: The session.
        folder: A folder with the rows in it.
        behind: What is done with what the call returns.
    """
    folder = folder / behind.__name__
    folder.mkdir()
    gate, out, called = (folder / name for name in ("gate", "carried", "called"))

    @sa.async_function("doubled bigint, name string")
    async def wait_at_the_gate(row):
        with called.open("a") as file:
            file.write(f"{row['id']}\n")
        while row["id"] == 7 and not gate.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return {"doubled": 2 * row["id"], "name": f"number {row['id']}"}

    def found() -> list[Any]:
        columns = "id bigint, doubled bigint, name string"
        return sorted(rows(spark.read.schema(columns).parquet(str(out))))

    out.mkdir()
    source = spark.readStream.schema("id bigint").parquet(str(folder.parent / "source"))
    carried = sa.unordered_wait(source, wait_at_the_gate, carry_over=sa.CarryOver())
    query = (
        behind(carried)
        .writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(folder / "carried checkpoint"))
        .trigger(processingTime="50 milliseconds")
        .start()
    )
    wait_until(lambda: len(found()) == 19, patience=300)
    meanwhile = found()
    numbers = query.recentProgress[0]["observedMetrics"]["sparkawait"]
    numbers = numbers if isinstance(numbers, dict) else numbers.asDict()
    gate.touch()
    wait_until(lambda: len(found()) == 20, patience=300)
    return {
        "drained": drained(query),
        "meanwhile": [row[0] for row in meanwhile],
        "in the end": found(),
        "calls": sorted(map(int, called.read_text().split())),
        # PySpark takes Spark's JSON of a row, which has the values in a list, for the row.
        "carried": numbers["values"][0] if "values" in numbers else numbers["carried"],
    }


def carried_over_twice(spark: SparkSession) -> str:
    carry_over = sa.CarryOver()
    source = spark.readStream.format("rate").load().selectExpr("value as id")
    first = sa.unordered_wait(source, double, carry_over=carry_over).where("doubled > 2")
    return message_of(lambda: sa.unordered_wait(first, same, carry_over=carry_over))


def instants(spark: SparkSession) -> list[Any]:
    """What Spark and a native function, as a column and in a wait, make of one text."""
    text = "2024-01-01 00:00:00"
    with (
        sql_conf(spark, {ZONE: "Asia/Kolkata"}),
        LookupServer({"t": {"0": {"at": text}}}) as server,
    ):
        get = sa.http.get(
            server.url + "/t/{id}", "at timestamp", client=sa.http.Client(proxy=False)
        )
        row = spark.range(1)
        found = [
            spark.sql(f"select from_json('{{\"at\": \"{text}\"}}', 'at timestamp').at as at"),
            row.select(sa.async_udf(get)("id").alias("at")),
            sa.ordered_wait(row, get),
        ]
        return [it.select(F.unix_timestamp("at")).collect()[0][0] for it in found]


def previewed(spark: SparkSession) -> list[str]:
    with LookupServer({"t": {"7": {"n": 3}}}) as server:
        get = sa.http.get(server.url + "/t/{id}", "n int", client=sa.http.Client(proxy=False))
        with redirect_stdout(StringIO()) as out:
            sa.http.preview(spark.range(7, 13, numPartitions=2), get)
        return [*out.getvalue().splitlines(), f"{server.stats()['requests']} request"]


def of_the_job(spark: SparkSession) -> dict[str, Any]:
    """What a service sees of a budget for 13 calls, and of two calls at a time."""
    entries = {str(number): {"n": number} for number in range(83)}
    with LookupServer({"t": entries}, latency="3ms") as server:
        get = sa.http.get(server.url + "/t/{id}", "n int", client=sa.http.Client(proxy=False))
        out = sa.unordered_wait(
            spark.range(83, numPartitions=5),
            get,
            rate_limit=sa.Budget(0.91, cost=0.07, name="connect budget"),
            max_concurrency=sa.PerJob(2, name="connect calls"),
            on_error="capture",
        )
        kinds = [row.error and row.error.kind for row in out.collect()]
        seen = server.stats()
    return {
        "rows": len(kinds),
        "spent": kinds.count("budget-spent"),
        "requests": seen["requests"],
        "at a time": seen["max_in_flight"],
    }


def results(spark: SparkSession, folder: Path) -> dict[str, Any]:
    numbers = spark.range(20, numPartitions=3)
    doubled = sa.async_udf(double)
    spark.udf.register("double_id", sa.async_udf(double, columns=["id"]))
    add = sa.async_udf("long")(sum_of)
    spark.udf.register("add_ids", add)
    ordinal = sa.async_udf(simulated())
    clock = spark.readStream.format("rate").load().withWatermark("timestamp", "5 seconds")
    odd = numbers.withColumnRenamed("id", "a.b")
    return {
        "class": type(numbers).__module__,
        "preview": previewed(spark),
        "ordered": rows(numbers.transform(sa.ordered_wait, double, timeout="5s")),
        "unordered": sorted(rows(numbers.transform(sa.unordered_wait, double))),
        "key_ordered": sorted(rows(sa.key_ordered_wait(numbers, double, key="id"))),
        "plain": sorted(rows(sa.unordered_wait(numbers, double_in_a_thread, timeout="30s"))),
        "plain values": rows(
            numbers.select("id", sa.async_udf("long")(sum_in_a_thread)("id", F.lit(1)).alias("r"))
        ),
        "channel": rows(sa.ordered_wait(numbers, double, channel=F.col("id") % 3)),
        "limit": sorted(
            rows(
                sa.unordered_wait(
                    numbers,
                    double,
                    channel=F.col("id") % 3,
                    timeout="5s",
                    rate_limit=[
                        sa.RateLimit("200/s", scope="host"),
                        sa.RateLimit("99/s", scope="job"),
                        sa.RateLimit("9000/s", cost=F.length("id") / 4, name="expression"),
                        sa.RateLimit("9001/s", cost=lambda row: row.id, result_cost="doubled"),
                    ],
                )
            )
        ),
        "limits of the job": of_the_job(spark),
        "expressions": sorted(
            rows(
                sa.key_ordered_wait(
                    sa.unordered_wait(numbers, double, cache=sa.Cache(key=F.col("id") + 0)),
                    same,
                    key=F.col("id") % 3,
                    channel=F.lower(F.lit("A")),
                    chain=True,
                )
            )
        ),
        "wrong expression": message_of(
            lambda: sa.ordered_wait(
                sa.ordered_wait(numbers, double), same, channel=F.col("name"), chain=True
            )
        ),
        "wrong channel": message_of(
            lambda: sa.ordered_wait(numbers, double, channel=F.col("absent"))
        ),
        "chain": rows(sa.ordered_wait(sa.ordered_wait(numbers, double), same, chain=True)),
        "side by side": rows(
            sa.ordered_wait(
                numbers, [double, same.with_options(channel=F.col("id") % 3)], timeout="30s"
            )
        ),
        "selected": rows(sa.ordered_wait(numbers, double).select("doubled"))[:2],
        "capture": rows(sa.ordered_wait(numbers, fail_odd, on_error="capture"))[:2],
        "written once": written_once(numbers, folder),
        "split": [
            split_in(mode, numbers, folder / "split")
            for mode in (None, "errorifexists", "append", "overwrite")
        ],
        "sent": sent(numbers),
        "sent and written": sent(numbers, failed=str(folder / "failed")),
        "column": rows(numbers.select("id", doubled("id").alias("r")).select("id", "r.*")),
        "values": rows(numbers.select("id", add("id", b=F.lit(1)).alias("r"))),
        "instants": instants(spark),
        "native": rows(numbers.select("id", ordinal("id").alias("r"))),
        "sql with values": rows(spark.sql("SELECT id, add_ids(id, 1) AS r FROM range(20)")),
        "sql": rows(
            spark.sql("SELECT id, r.* FROM (SELECT id, double_id(id) AS r FROM range(20))")
        ),
        "dots": sa.ordered_wait(odd, double, schema="seen string").columns,
        "stream": stream(spark, folder),
        "carried over": carried_over(spark, folder),
        "carried over by two": carried_over_by_two(spark, folder),
        "carried over twice": carried_over_twice(spark),
        "wrong capacity": message_of(lambda: sa.ordered_wait(numbers, double, capacity=0)),
        "metrics": message_of(lambda: sa.ordered_wait(numbers, double, metrics=sa.Metrics())),
        "failed task": failure_of_a_task(spark),
        "metadata": sa.ordered_wait(numbers.withMetadata("id", {"unit": "m"}), double)
        .schema["id"]
        .metadata,
        "event time": sa.ordered_wait(clock, double, schema="seen string")
        .schema["timestamp"]
        .metadata,
    }


def connect(folder: Path) -> SparkSession:
    """Starts a server, and a session of it."""
    builder = (
        at_a_free_port(SparkSession.builder.remote("local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Off by default in 4.1 to 4.3; unknown to older versions.
        .config("spark.sql.timeType.enabled", "true")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.python.daemon.module", "tests.support.warm_daemon")
    )
    if pyspark.__version__.startswith("3."):
        builder = builder.config("spark.jars.packages", SERVER_35)
    return builder.getOrCreate()


def main() -> None:
    out = Path(sys.argv[1])
    spark = connect(out.parent)
    found = results(spark, out.parent)
    if "sessions" in sys.argv[2:]:
        found["sessions"] = sessions_seen.results(spark)
    out.write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
