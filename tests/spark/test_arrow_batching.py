# SPDX-License-Identifier: Apache-2.0
"""Functions of record batches, in Spark's workers."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa

# What it is about is in the worker, which is the same on each Spark.
pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

ROWS = 5003


def doubled(batch):
    return pa.RecordBatch.from_pydict({"doubled": pc.multiply(batch["id"], 2)})


@pytest.mark.parametrize("threads", [pytest.param(None, marks=pytest.mark.nightly), 3])
@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_each_row_comes_out_once_with_its_result(spark, calls, threads, wait):
    def noted(batch):
        calls.add(batch.num_rows)
        return doubled(batch)

    batch = sa.Batch(max_rows=331, arrow=True)
    function = sa.async_function("doubled long", batch=batch, threads=threads)(noted)
    rows = wait(spark.range(ROWS, numPartitions=3), function, channel=F.col("id") % 5)

    assert sorted(map(tuple, rows.collect())) == [(i, 2 * i) for i in range(ROWS)]
    sizes = {int(size): count for size, count in calls.counts().items()}
    assert sum(size * count for size, count in sizes.items()) == ROWS
    assert max(sizes) <= 331


def test_types_of_spark_arrive_as_arrow_has_them(spark):
    @sa.async_function("kinds string", batch=sa.Batch(arrow=True))
    async def kinds(batch):
        kinds = ", ".join(f"{it.name} {it.type}" for it in batch.schema)
        return pa.RecordBatch.from_pydict({"kinds": pa.array([kinds] * batch.num_rows)})

    rows = spark.range(3, numPartitions=1).selectExpr(
        "cast(id as int) n", "cast(id as string) s", "array(id) l", "named_struct('x', id) t"
    )
    found = {row.kinds for row in sa.ordered_wait(rows, kinds).collect()}
    inner = "l list<element: int64 not null>, t struct<x: int64 not null>"
    assert found == {f"n int32, s string, {inner}"}


def test_a_column_function_has_no_record_batches(spark):
    function = sa.async_function("doubled long", batch=sa.Batch(arrow=True))(doubled)
    with pytest.raises(sa.ConfigurationError, match="takes record batches, which a column"):
        sa.async_udf(function)
