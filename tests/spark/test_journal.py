# SPDX-License-Identifier: Apache-2.0
"""A journal on Spark: each way to call has it, Spark reads and writes it, and streams have none."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.testing import LookupServer

pytestmark = pytest.mark.spark

ROWS = 113


@pytest.fixture
def server():
    names = {it: {"name": f"name {it}"} for it in range(0, ROWS, 2)}
    with LookupServer({"names": names}, latency=None) as running:
        yield running


def lookup(server):
    client = sa.http.Client(proxy=False)
    return sa.http.get(server.url + "/names/{id}", "name string", client=client)


def numbers(spark, partitions=3):
    return spark.range(ROWS, numPartitions=partitions)


def expected(it):
    return None if it % 2 else f"name {it}"


def test_each_way_to_call_knows_what_was_paid_for(spark, server, tmp_path):
    function, journal = lookup(server), str(tmp_path / "j")
    out = sa.unordered_wait(numbers(spark), function, journal=journal).collect()
    assert sorted(out) == [(it, expected(it)) for it in range(ROWS)]
    assert server.stats()["requests"] == ROWS

    again = sa.ordered_wait(numbers(spark, 5).orderBy(F.desc("id")), function, journal=journal)
    assert [row.name for row in again.collect()] == [expected(it) for it in range(ROWS)][::-1]
    assert server.stats()["requests"] == ROWS

    # As a column it drops misses, to tell them from nulls: another question.
    for partitions in (3, 2):
        column = sa.async_udf(function, journal=journal)
        found = numbers(spark, partitions).select(column("id").alias("found")).collect()
        assert [row.found for row in found] == [expected(it) for it in range(ROWS)]
    assert server.stats()["requests"] == 2 * ROWS


def test_what_was_sent_is_not_sent_again(spark, calls, tmp_path):
    async def post(row):
        calls.add(row.id)

    for partitions in (3, 2):
        kept = sa.Journal(tmp_path / "j", version=1)
        assert sa.send(numbers(spark, partitions), post, journal=kept).rows == ROWS
    assert calls.counts() == {str(it): 1 for it in range(ROWS)}


def test_spark_reads_the_folder_and_writes_another_one(spark, server, tmp_path):
    journal = sa.Journal(tmp_path / "j", keep_input=True)
    sa.unordered_wait(numbers(spark), lookup(server), journal=journal).count()

    table = spark.read.parquet(str(tmp_path / "j"))
    assert table.count() == ROWS
    assert table.columns[:4] == ["key", "function", "version", "at"]
    assert {row.kind for row in table.select("kind").distinct().collect()} == {"ok"}
    names = table.selectExpr("input.id", "inline(result)").collect()
    assert sorted(names) == [(it, expected(it)) for it in range(ROWS)]

    # What is to be forgotten is left out.
    table.where("input.id >= 13").write.parquet(str(tmp_path / "k"))
    other = str(tmp_path / "k")
    out = sa.unordered_wait(numbers(spark), lookup(server), journal=other).collect()
    assert sorted(out) == [(it, expected(it)) for it in range(ROWS)]
    assert server.stats()["requests"] == ROWS + 13


def test_a_stream_has_no_journal(spark, server, tmp_path):
    stream = spark.readStream.format("rate").load().selectExpr("value as id")
    with pytest.raises(sa.ConfigurationError, match=r"`journal` is for DataFrames that end"):
        sa.unordered_wait(stream, lookup(server), journal=str(tmp_path))
