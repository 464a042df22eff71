# SPDX-License-Identifier: Apache-2.0
"""Calls a server for each row and writes what it says, once; to be killed and run again.

``python -m tests.spark.write_once_program URL ROWS CHUNK PATH``
"""

import sys

from pyspark.sql import SparkSession

import sparkawait as sa
from tests.support.spark_program import LOCAL


def main(url: str, rows: int, chunk: int, path: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    for name, value in LOCAL.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    get = sa.http.get(f"{url}/{{id}}", "name string", client=sa.http.Client(proxy=False))
    numbers = spark.range(rows, numPartitions=3)
    done = sa.write_once(numbers, get, path, key="id", chunk=chunk, max_concurrency=17)
    assert done.count() == rows
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
