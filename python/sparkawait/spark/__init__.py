# SPDX-License-Identifier: Apache-2.0
"""The wait functions for DataFrames. The only package that imports PySpark.

Works with classic sessions and with Spark Connect, for batch and streaming DataFrames. Everything
here runs on the driver, but for `partition`, `columns`, `pandas_columns` and `connection`, which
run in the executors.
"""

from sparkawait.spark.metrics import Metrics
from sparkawait.spark.shipping import ship
from sparkawait.spark.udf import AsyncUserDefinedFunction, async_udf
from sparkawait.spark.wait import key_ordered_wait, ordered_wait, unordered_wait

__all__ = [
    "AsyncUserDefinedFunction",
    "Metrics",
    "async_udf",
    "key_ordered_wait",
    "ordered_wait",
    "ship",
    "unordered_wait",
]
