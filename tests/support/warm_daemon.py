# SPDX-License-Identifier: Apache-2.0
"""Forks the Python workers of Spark, as its own daemon does, with packages imported before.

A worker imports pandas, pyarrow, sparkawait and more of PySpark after it was forked, a second of
processor time each: that is what users have, and the programs that tests start without this. The
session of the tests need not, since hundreds of its workers are ended.
"""

import gc
import importlib
import sys

from pyspark.daemon import manager

_USED = (
    "asyncio",
    "email.message",
    "importlib.metadata",
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "sparkawait.spark.columns",
    "sparkawait.spark.shipment",
    "pytest",  # of the modules that functions of tests are in
)

if __name__ == "__main__":
    for name in _USED:
        importlib.import_module(name)
    # A worker would read the directory of PySpark's archive again, once for each package in it,
    sys.path_importer_cache.clear()
    # and look at all that there is for garbage after each task.
    gc.freeze()
    manager()
