# SPDX-License-Identifier: Apache-2.0
"""Which Python runs the workers of a session on the driver's machine, where nobody has chosen one.

To be used on the driver, from any thread.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from sparkawait.spark.metrics import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_drivers_python"]

_UNCHOSEN = "python3"
"""What workers run where nobody said what they should: the first on PATH, with any packages."""
_CHOICE = "PYSPARK_PYTHON"
_CHOICE_OF_SUBMIT = "spark.pyspark.python"
_CHOICE_OF_CONNECT = "spark.sql.execution.pyspark.python"
_SERVER_OF_THIS_PROCESS = "SPARK_LOCAL_REMOTE"
"""Set by PySpark when it has started a server of Spark Connect itself."""


def run_drivers_python(spark: SparkSession | None) -> None:
    """Has workers on this machine run the Python of the driver, where nobody chose theirs.

    So a program runs in an environment that was not activated, as those of notebooks and editors.
    Otherwise Spark takes the first `python3` on PATH, which has other packages.
    """
    if spark is None or not sys.executable or _CHOICE in os.environ:
        return
    if is_connect(spark):
        # Asked last: it takes a call to the server.
        if _SERVER_OF_THIS_PROCESS in os.environ and not spark.conf.get(_CHOICE_OF_CONNECT, None):
            spark.conf.set(_CHOICE_OF_CONNECT, sys.executable)
        return
    context: Any = spark.sparkContext
    is_chosen = context.pythonExec != _UNCHOSEN or spark.conf.get(_CHOICE_OF_SUBMIT, None)
    if context.master.startswith("local") and not is_chosen:
        context.pythonExec = sys.executable
