# SPDX-License-Identifier: Apache-2.0
"""A Spark in a process of its own, for tests of what its workers print or may use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["run_spark_program"]

ROOT = Path(__file__).parents[2]
PROGRAM = """
from pyspark.sql import SparkSession
import sparkawait as sa

builder = SparkSession.builder.master("local[1]")
for key, value in {settings!r}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
{body}
spark.stop()
"""
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def run_spark_program(
    body: str, settings: dict[str, str] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `body`, which has a ``spark`` of one core and sparkawait as ``sa``.

    Args:
        body: Lines of Python.
        settings: Further settings of Spark.
        environment: Further variables of the environment, of driver and workers.

    Returns:
        What it printed. Standard error is also that of the workers.
    """
    program = PROGRAM.format(settings={**LOCAL, **(settings or {})}, body=body)
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
