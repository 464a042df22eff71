# SPDX-License-Identifier: Apache-2.0
"""Python workers with a bound on their memory, which Spark sets as a bound of the address space."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pyspark.sql import SparkSession
import sparkawait as sa

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.executor.pyspark.memory", sys.argv[1])
    .getOrCreate()
)

@sa.async_function("bound bigint")
async def bound(row):
    import resource
    return {"bound": resource.getrlimit(resource.RLIMIT_AS)[0] >> 20}

rows = sa.ordered_wait(spark.range(1000), bound).collect()
print(len(rows), {row.bound for row in rows})
spark.stop()
"""


def run(memory):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, memory],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the bound binds on Linux only")
def test_a_function_runs_with_400_megabytes_and_with_less_the_error_says_what_is_missing():
    done = run("400m")
    assert done.stdout.split(maxsplit=1) == ["1000", "{400}\n"], done.stderr[-5000:]

    done = run("250m")
    assert done.returncode != 0
    assert "bounded to 250 MB" in done.stderr
    assert "raise spark.executor.pyspark.memory" in done.stderr
    assert "cannot join thread" not in done.stderr
