# SPDX-License-Identifier: Apache-2.0
"""What Spark itself repeats or breaks off, with a journal: nobody pays again for what is in it."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.support.scripted_server import ScriptedServer
from tests.support.sql_conf import sql_conf
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

ROWS = 331


class Service:
    """Counts calls by what was asked, and answers nothing above `silent_from`."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.silent_from = ROWS
        self.answers = threading.Event()
        self.lock = threading.Lock()

    def __call__(self, target, _before):
        id_ = int(target[1:])
        with self.lock:
            self.calls[id_] += 1
        if id_ >= self.silent_from:
            self.answers.wait(120)
        return 200, {}, b'{"name": "name of %d"}' % id_

    @property
    def total(self):
        with self.lock:
            return self.calls.total()


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def lookup(service):
    with ScriptedServer(service) as server:
        yield sa.http.get(f"{server.url}/{{id}}", "name string", client=sa.http.Client(proxy=False))
        service.answers.set()


def expected(rows=ROWS):
    return [(it, f"name of {it}") for it in range(rows)]


def kept(folder):
    """The ids that a journal has."""
    while True:
        # One of a task that ends is put together with others.
        with suppress(FileNotFoundError):
            files = [pq.read_table(it, columns=["input"]) for it in folder.glob("[!_.]*.parquet")]
            return {row["input"]["id"] for rows in files for row in rows.to_pylist()}


def test_sql_knows_what_was_paid_for(spark, service, lookup, tmp_path):
    for partitions in (3, 5):
        function = sa.async_udf(lookup, journal=str(tmp_path / "j"))
        spark.udf.register("name_of", function)
        spark.range(ROWS, numPartitions=partitions).createOrReplaceTempView("journal_numbers")
        found = spark.sql("select id, name_of(id) as name from journal_numbers")
        assert sorted(found.collect()) == expected()
        inner = spark.sql("select name_of(id) as name from journal_numbers")
        assert inner.selectExpr("count(name)").first()[0] == ROWS
    assert service.total == ROWS


def test_adaptive_execution_makes_no_row_another_one(spark, service, lookup, tmp_path):
    for adaptive, partitions in (("true", 7), ("false", 3), ("true", 13)):
        with sql_conf(
            spark,
            {
                "spark.sql.adaptive.enabled": adaptive,
                "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
                "spark.sql.shuffle.partitions": str(partitions),
            },
        ):
            # All rows but few have one key.
            grouped = spark.range(ROWS).groupBy("id").agg(F.max("id").alias("most"))
            skewed = grouped.select("id").repartition(F.when(F.col("id") < 300, 0).otherwise(1))
            out = sa.unordered_wait(skewed, lookup, journal=str(tmp_path / "j"))
            others = spark.range(ROWS).withColumnRenamed("id", "other")
            joined = out.join(others, F.expr("id = other"))
            assert sorted(joined.select("id", "name").collect()) == expected()
    assert service.total == ROWS


def test_a_limit_and_a_job_that_is_cancelled_keep_what_was_completed(
    spark, service, lookup, tmp_path
):
    folder = tmp_path / "j"
    journal = sa.Journal(folder, keep_input=True)

    def named():
        return sa.ordered_wait(
            spark.range(ROWS, numPartitions=2), lookup, journal=journal, max_concurrency=7
        )

    assert len(named().limit(13).collect()) == 13
    # A row leaves its task when it is committed. What was completed behind these rows is
    # committed when the worker notices the limit, which may be while the next job calls.
    assert set(range(13)) <= kept(folder)
    service.silent_from = 120
    with service.lock:
        limited = service.calls.copy()
    failed: list[Exception] = []

    def run():
        spark.sparkContext.setJobGroup("journal", "to be cancelled", interruptOnCancel=True)
        try:
            named().collect()
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    job = threading.Thread(target=run)
    job.start()
    # Each task has what it may call at a time in flight, and nothing else comes.
    wait_until(lambda: set(range(120)) <= kept(folder), 120)
    spark.sparkContext.cancelJobGroup("journal")
    job.join(120)
    assert failed
    before = kept(folder)
    with service.lock:
        paid = {id_: service.calls[id_] for id_ in before}
        lost = {id_: count for id_, count in service.calls.items() if id_ not in before}
    assert (Counter(lost) - limited).total() <= 2 * 7
    # New calls are answered, and those of the cancelled job are not: answered before its worker
    # notices the end, they would be followed by others.
    service.silent_from = ROWS

    assert [tuple(row) for row in named().collect()] == expected()
    assert {id_: service.calls[id_] for id_ in before} == paid
    assert service.total <= ROWS - len(before) + sum(paid.values()) + sum(lost.values())


def test_a_batch_of_a_stream_has_a_journal(spark, service, lookup, tmp_path):
    spark.range(ROWS, numPartitions=3).write.parquet(str(tmp_path / "source"))
    column = sa.async_udf(lookup, journal=str(tmp_path / "column"))
    rows: list[tuple[int, str]] = []

    def keep(batch, _number):
        named = sa.ordered_wait(batch, lookup, journal=str(tmp_path / "wait"))
        rows.extend(map(tuple, named.collect()))

    def named_in_batch(batch, _number):
        rows.extend(map(tuple, batch.select("id", column("id").alias("name")).collect()))

    def named_before(batch, _number):
        rows.extend(map(tuple, batch.collect()))

    for run, (sink, paid) in enumerate(
        [(keep, 1), (keep, 1), (named_in_batch, 2), (named_before, 2)]
    ):
        stream = spark.readStream.schema("id bigint").parquet(str(tmp_path / "source"))
        if sink is named_before:
            stream = stream.select("id", column("id").alias("name"))
        query = stream.writeStream.foreachBatch(sink).trigger(availableNow=True)
        # Another query, as one whose checkpoint was lost.
        query.option("checkpointLocation", str(tmp_path / f"checkpoint{run}")).start()
        for started in spark.streams.active:
            started.awaitTermination()
        assert sorted(rows) == expected()
        assert service.total == paid * ROWS
        rows.clear()
