# SPDX-License-Identifier: Apache-2.0
"""Python workers with a bound on their memory, which Spark sets as a bound of the address space."""

import sys

import pytest

from tests.support.spark_program import run_spark_program

# What it is about is in the worker, which is the same on each Spark.
pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

PROGRAM = """
@sa.async_function("bound bigint")
async def bound(row):
    import resource
    return {"bound": resource.getrlimit(resource.RLIMIT_AS)[0] >> 20}

rows = sa.ordered_wait(spark.range(1000), bound).collect()
print(len(rows), {row.bound for row in rows})
"""


def run(memory):
    return run_spark_program(PROGRAM, {"spark.executor.pyspark.memory": memory})


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="the bound binds on Linux only")
def test_a_function_runs_with_400_megabytes_and_with_less_the_error_says_what_is_missing():
    done = run("400m")
    assert done.stdout.split(maxsplit=1) == ["1000", "{400}\n"], done.stderr[-5000:]

    # The library of the tests is not optimised: it has 25 MB more of code than that of a wheel.
    done = run("300m")
    assert done.returncode != 0
    assert "bounded to 300 MB" in done.stderr
    assert "raise spark.executor.pyspark.memory" in done.stderr
    assert "cannot join thread" not in done.stderr
    assert "sparkawait.ship(spark)" not in done.stderr
