# SPDX-License-Identifier: Apache-2.0
"""One short look at everything, on any supported version of Spark and without the other helpers.

Run by itself it says whether an installation works: ``pytest tests/spark/test_smoke.py``.
"""

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa

pytestmark = pytest.mark.spark


@sa.async_function("doubled bigint, name string")
async def double(row):
    return {"doubled": 2 * row["id"], "name": f"number {row['id']}"}


EXPECTED = [(number, 2 * number, f"number {number}") for number in range(100)]


@pytest.fixture
def numbers(spark):
    return spark.range(100, numPartitions=3)


def test_ordered_wait(numbers):
    assert list(map(tuple, numbers.transform(sa.ordered_wait, double).collect())) == EXPECTED


def test_unordered_wait(numbers):
    assert sorted(map(tuple, numbers.transform(sa.unordered_wait, double).collect())) == EXPECTED


def test_key_ordered_wait(numbers):
    rows = numbers.transform(sa.key_ordered_wait, double, key="id").collect()

    assert sorted(map(tuple, rows)) == EXPECTED


def test_column_function(numbers):
    rows = numbers.select("id", sa.async_udf(double)("id").alias("r")).select("id", "r.*")

    assert list(map(tuple, rows.collect())) == EXPECTED


def test_column_function_in_sql(spark):
    spark.udf.register("smoke_double", sa.async_udf(double, columns=["id"]))

    rows = spark.sql("SELECT smoke_double(id).doubled FROM range(3)").collect()

    assert [row[0] for row in rows] == [0, 2, 4]


def test_capture(numbers):
    @sa.async_function("answer string")
    async def fail(row):
        raise OSError

    out = sa.ordered_wait(numbers, fail, on_error="capture")

    assert out.select(F.col("error.kind")).distinct().collect() == [("user-function-failed",)]


def test_stream(spark, numbers, tmp_path):
    numbers.write.parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema("id bigint").parquet(str(tmp_path / "source"))

    query = (
        sa.ordered_wait(stream, double)
        .writeStream.format("memory")
        .queryName("smoke")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert sorted(map(tuple, spark.table("smoke").collect())) == EXPECTED
