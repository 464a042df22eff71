# SPDX-License-Identifier: Apache-2.0
"""How often a row is called, as `docs/pay-once.md` says: counted by the server that is called."""

import json
from pathlib import Path
from urllib.request import urlopen

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.testing import LookupServer

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs" / "pay-once.md").read_text(encoding="utf-8")
ROWS = 20


def stream(spark, folder, each_batch, rows=ROWS):
    """Sends `rows` through one micro-batch; may be called again with the same folder."""
    source = folder / "source"
    if not source.exists():
        spark.range(rows, numPartitions=1).write.parquet(str(source))
    query = (
        spark.readStream.schema("id bigint")
        .parquet(str(source))
        .writeStream.foreachBatch(each_batch)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


class Situation:
    """What a user has: a session, a folder, and a service that is looked up."""

    def __init__(self, spark, folder, server, once):
        self.once = once
        self.spark = spark
        self.folder = folder
        self.server = server
        self.lookup = sa.http.get(f"{server.url}/names/{{id}}", "name string")
        self.customers = self.look_up(spark.range(ROWS, numPartitions=2))

    def look_up(self, df):
        return sa.ordered_wait(df, self.lookup, on_error="capture")

    def path(self, name):
        return str(self.folder / name)


def write(it):
    it.customers.write.parquet(it.path("out"))


def show_and_count(it):
    it.customers.show(ROWS)
    it.customers.count()


def persist_show_and_count(it):
    kept = it.customers.persist()
    kept.show(ROWS)
    kept.count()
    kept.unpersist()


def write_then_use(it):
    it.customers.write.parquet(it.path("out"))
    written = it.spark.read.parquet(it.path("out"))
    written.show()
    written.count()
    written.where("error is not null").collect()


def split_by_error(it):
    it.customers.where("error is null").write.parquet(it.path("good"))
    it.customers.where("error is not null").write.parquet(it.path("bad"))


def order_by(it):
    it.customers.orderBy("name").write.parquet(it.path("out"))


def order_by_before(it):
    it.look_up(it.spark.range(ROWS).orderBy("id")).write.parquet(it.path("out"))


def group_by(it):
    it.customers.groupBy("name").count().write.parquet(it.path("out"))


def union_with_itself(it):
    it.customers.where("id < 5").union(it.customers.where("id >= 5")).collect()


def view_used_twice(it):
    it.customers.createOrReplaceTempView("pay_once")
    it.spark.sql("select count(*) from pay_once").collect()
    it.spark.sql("select max(name) from pay_once").collect()


def filter_afterwards(it):
    it.customers.where("id < 5").collect()


def filter_before(it):
    it.look_up(it.spark.range(ROWS).where("id < 5")).collect()


def condition_around(it):
    rows = it.spark.range(ROWS, numPartitions=2)
    rows.select(F.when(F.col("id") < 5, it.lookup("id"))).collect()


def condition_inside(it):
    rows = it.spark.range(ROWS, numPartitions=2)
    rows.select(it.lookup(F.when(F.col("id") < 5, F.col("id")))).collect()


def column_that_nobody_reads(it):
    it.customers.select("id").collect()


def local_checkpoint(it):
    kept = it.customers.localCheckpoint()
    kept.count()
    kept.collect()


def batch_used_twice(it):
    def each_batch(batch, _number):
        found = it.look_up(batch)
        found.write.parquet(it.path("a"))
        found.write.parquet(it.path("b"))

    stream(it.spark, it.folder, each_batch)


def batch_that_is_replayed(it):
    failed = []

    def each_batch(batch, _number):
        it.look_up(batch).write.mode("overwrite").parquet(it.path("out"))
        if not failed:
            failed.append(True)
            message = "the sink failed"
            raise OSError(message)

    with pytest.raises(Exception, match="the sink failed"):
        stream(it.spark, it.folder, each_batch)
    stream(it.spark, it.folder, each_batch)


def task_that_fails_once(it):
    url, once = it.server.url, it.once

    @sa.async_function("name string")
    async def fail_at_the_last_row(row):
        # Through the same server, so that it counts these calls too.
        with urlopen(f"{url}/names/{row['id']}") as answer:  # noqa: S310, ASYNC210
            name = json.load(answer)["name"]
        if row["id"] == ROWS - 1 and once.take():
            message = "the service was restarted"
            raise ConnectionError(message)
        return {"name": name}

    numbers = it.spark.range(ROWS, numPartitions=2)
    found = sa.ordered_wait(numbers, fail_at_the_last_row, capacity=1)
    assert len(found.collect()) == ROWS


def batch_that_is_kept(it):
    def each_batch(batch, _number):
        found = it.look_up(batch).persist()
        found.write.parquet(it.path("a"))
        found.write.parquet(it.path("b"))
        found.unpersist()

    stream(it.spark, it.folder, each_batch)


# What is done, the calls for 20 rows, and how the page says it.
COSTS = [
    (write, 20, "`found.write.parquet(..)`"),
    (column_that_nobody_reads, 20, '`found.select("id").collect()`: no returned column is read'),
    (group_by, 20, '`found.groupBy("name").count().write..`'),
    (show_and_count, 40, "`found.show()`, then `found.count()`"),
    (view_used_twice, 40, "a temporary view of `found`, and two queries of it"),
    (union_with_itself, 40, "`found.where(a).union(found.where(b)).collect()`"),
    (
        split_by_error,
        40,
        '`found.where("error is null").write..`, then `found.where("error is not null").write..`',
    ),
    (order_by, 40, '`found.orderBy("name").write..`: Spark samples the rows first'),
    (order_by_before, 20, '`look_up(customers.orderBy("id")).write..`'),
    (filter_afterwards, 20, '`found.where("id < 5").collect()`'),
    (filter_before, 5, '`look_up(customers.where("id < 5")).collect()`'),
    (
        condition_around,
        20,
        '`F.when(F.col("id") < 5, name_of("id"))`: a column function is called for every row',
    ),
    (
        condition_inside,
        5,
        '`name_of(F.when(F.col("id") < 5, F.col("id")))`: a null makes no call (`skip_null=True`)',
    ),
    (persist_show_and_count, 20, "`kept = found.persist()`, then `kept.show()` and `kept.count()`"),
    (
        local_checkpoint,
        20,
        "`kept = found.localCheckpoint()`, then `kept.count()` and `kept.collect()`",
    ),
    (write_then_use, 20, "`found.write.parquet(path)`, then any number of reads of `path`"),
    (task_that_fails_once, 30, "one of two tasks fails at its last row and is run again"),
    (batch_used_twice, 40, "`foreachBatch`: the result of a micro-batch is written to two tables"),
    (
        batch_that_is_kept,
        20,
        "`foreachBatch`: the same, with `persist()` before and `unpersist()` after",
    ),
    (batch_that_is_replayed, 40, "a micro-batch whose sink fails is replayed after a restart"),
]


@pytest.fixture(scope="module")
def server():
    names = {str(number): {"name": f"customer {number}"} for number in range(ROWS)}
    with LookupServer({"names": names}, latency=0) as server:
        yield server


@pytest.fixture
def situation(spark, tmp_path, server, once):
    return Situation(spark, tmp_path, server, once)


@pytest.mark.parametrize(("use", "calls", "text"), COSTS, ids=[use.__name__ for use, *_ in COSTS])
def test_calls_are_as_many_as_the_page_says(situation, use, calls, text):
    before = situation.server.stats()["requests"]

    use(situation)

    assert situation.server.stats()["requests"] - before == calls
    assert f"| {text} | {calls} |" in PAGE
