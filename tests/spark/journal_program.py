# SPDX-License-Identifier: Apache-2.0
"""Calls a server for each row, with a journal; to be killed and run again.

``python -m tests.spark.journal_program URL ROWS PARTITIONS MODE JOURNAL OUT``, with further
settings of Spark in ``JOURNAL_SPARK``.
"""

import json
import os
import sys

from pyspark.sql import SparkSession

import sparkawait as sa
from tests.support.spark_program import LOCAL

MOST_CALLS = 23
"""Calls of a task at a time."""
COST = 0.25
"""What a call costs."""


def main(url: str, rows: int, partitions: int, mode: str, *paths: str) -> None:
    journal, out = paths
    # A worker that was killed fails its task, which Spark runs again.
    builder = SparkSession.builder.master("local[2, 50]")
    for name, value in {**LOCAL, **json.loads(os.environ.get("JOURNAL_SPARK", "{}"))}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    get = sa.http.get(f"{url}/{{id}}", "name string", client=sa.http.Client(proxy=False))
    numbers = spark.range(rows, numPartitions=partitions)
    wait = getattr(sa, mode)
    options = {"key": "id"} if mode == "key_ordered_wait" else {}
    kept = sa.Journal(journal, keep_input=True)
    options["rate_limit"] = sa.Budget(1_000_000.0, cost=COST)
    named = wait(numbers, get, journal=kept, max_concurrency=MOST_CALLS, **options)
    named.write.mode("overwrite").parquet(out)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
