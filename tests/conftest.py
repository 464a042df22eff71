# SPDX-License-Identifier: Apache-2.0
"""What every test shares: the environment of Spark's workers, time limits, Hypothesis profiles."""

import os
import sys

import pytest
from hypothesis import settings

# Workers must run the Python of the tests, not the `python3` that is first on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

# The first test of a session that uses Spark also waits for the JVM.
SPARK_TIMEOUT_SECONDS = 180

# A failure prints what reproduces it. In CI the same examples are tried each time.
settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_SECONDS))
