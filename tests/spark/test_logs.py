# SPDX-License-Identifier: Apache-2.0
"""What a Python worker logs reaches the log of its executor."""

import pytest

from tests.support.spark_program import run_spark_program

# What it is about is in the worker, which is the same on each Spark.
pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

PROGRAM = """
lookup = sa.redis.get("redis://127.0.0.1:1", "{id}", schema="value string")
# `first()` may stop the task before it has come to its end.
print(*sa.ordered_wait(spark.range(1), lookup, on_error="null").collect())
"""


@pytest.fixture(scope="module")
def log():
    """Standard error of a local Spark, which is also that of its workers."""
    program = run_spark_program(PROGRAM, SPARKAWAIT_LOG="info")
    assert "Row(id=0, value=None)" in program.stdout, program.stderr[-5000:]
    return [line for line in program.stderr.splitlines() if "sparkawait: " in line]


def test_warnings_of_rust_are_in_it(log):
    line, *_ = [line for line in log if "no connection to Redis" in line]

    assert " WARNING sparkawait: no connection to Redis: reason=the connection to Redis at" in line


def test_calls_that_were_made_again_unasked_are_in_it(log):
    [line] = [line for line in log if "made again" in line]

    assert " WARNING sparkawait: 3 of the 4 calls of `redis.get` were made again" in line


def test_the_metrics_of_a_task_are_in_it_at_level_info(log):
    [line] = [line for line in log if "partition 0" in line]

    assert " INFO sparkawait: " in line
    assert ", partition 0, attempt 0, succeeded: {" in line
    assert '"admitted": 1, ' in line
    assert '"failed": 1, ' in line
