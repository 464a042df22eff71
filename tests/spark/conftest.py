# SPDX-License-Identifier: Apache-2.0
"""A local Spark for all tests of this folder, and what they share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.calls import CallLog, Once, Presence, Watch


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, one retry per task, small batches, and a time zone that is not UTC."""
    session = (
        SparkSession.builder.master("local[2,2]")
        .appName("sparkawait tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        # What ends in time must not need Spark to end the worker.
        .config("spark.python.task.killTimeout", "1h")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    # Tests make tasks fail on purpose.
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def calls(tmp_path: Path) -> CallLog:
    return CallLog(tmp_path / "calls")


@pytest.fixture
def once(tmp_path: Path) -> Once:
    return Once(tmp_path / "once")


@pytest.fixture
def presence(tmp_path: Path) -> Presence:
    return Presence(tmp_path / "presence")


@pytest.fixture
def watch(presence: Presence) -> Iterator[Watch]:
    watch = presence.watch()
    yield watch
    watch.close()
