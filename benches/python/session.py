# SPDX-License-Identifier: Apache-2.0
"""Spark for a bench: one task at a time, if not said otherwise; new workers for each file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from figures import rate
from pyspark.sql import DataFrame, SparkSession

__all__ = ["local_spark", "map_in_arrow", "write_rate"]


@contextmanager
def local_spark(cores: int = 1) -> Iterator[SparkSession]:
    """Starts a Spark with so many cores, and stops it together with its Python workers."""
    # Workers import the bench files, and run the Python that runs this.
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores}]").appName("sparkawait benches")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Returns `frame.mapInArrow(..)`, whose type PySpark leaves open."""
    return frame.mapInArrow(function, schema)


def write_rate(frame: DataFrame, rows: int) -> float:
    """Returns the rows per second of an action that computes all of `frame` and keeps nothing."""
    return rate(rows, lambda: frame.write.format("noop").mode("overwrite").save())
