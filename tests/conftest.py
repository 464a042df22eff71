# SPDX-License-Identifier: Apache-2.0
"""What every test shares: a local Spark and its environment, time limits, Hypothesis profiles."""

import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.sql_conf import ZONE, all_settings, sql_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Workers must run the Python of the tests, not the `python3` that is first on PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

# A Spark that lives for minutes is done before what its better compiler works on is of use. With
# that one alone, Java reserves 48 MB for compiled code: what hundreds of queries generate does not
# fit in there, and is thrown away and compiled again and again. Java 8 looks at the first only; the
# second is for executors, launchers and masters too.
FLAGS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
for name in ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS"):
    os.environ.setdefault(name, FLAGS)

# Half of what a Spark does as it starts is to load classes: those that `make` has archived for this
# environment are mapped instead. An archive that does not fit is ignored, and would be told of.
CLASS_DATA = Path(__file__).parents[1] / "target" / "class-data" / f"{Path(sys.prefix).name}.jsa"
if CLASS_DATA.exists():
    os.environ["JDK_JAVA_OPTIONS"] += f" -XX:SharedArchiveFile={CLASS_DATA} -Xlog:disable"

# The first test of a session that uses Spark also waits for the JVM.
SPARK_TIMEOUT_SECONDS = 180

# A failure prints what reproduces it. In CI the same examples are tried each time. A busy machine
# may take its time, also to draw them.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("local", UNHURRIED)
settings.register_profile("ci", UNHURRIED, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        since = item.get_closest_marker("since_spark")
        if since is not None and _spark_version() < since.args:
            needed = ".".join(map(str, since.args))
            item.add_marker(pytest.mark.skip(reason=f"needs Spark {needed}"))
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_SECONDS))


def _spark_version() -> tuple[int, ...]:
    """Returns the installed line of Spark, as (4, 1)."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(map(int, version.split(".")[:2]))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Two cores, one retry per task, small batches, and a time zone that is not UTC."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,2]")
        .appName("sparkawait tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        # Off by default in 4.1 to 4.3; unknown to older versions.
        .config("spark.sql.timeType.enabled", "true")
        # Plans have values of 10 MB in them, and Spark keeps the texts of 1 000 plans.
        .config("spark.driver.memory", "2g")
        .config("spark.sql.ui.retainedExecutions", "1")
        .config("spark.sql.maxPlanStringLength", "10000")
        .config("spark.python.daemon.module", "tests.support.warm_daemon")
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
def in_zone(spark: "SparkSession") -> Iterator[Callable[[str], None]]:
    """Sets the zone of the session."""
    with sql_conf(spark, {ZONE: spark.conf.get(ZONE)}):
        yield lambda zone: spark.conf.set(ZONE, zone)


@pytest.fixture(autouse=True)
def _settings_are_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Other tests have the same session."""
    is_marked = request.node.get_closest_marker("spark") is not None
    if not is_marked or "spark" not in request.fixturenames:
        yield
        return
    session = request.getfixturevalue("spark")
    before = all_settings(session)
    yield
    assert all_settings(session) == before, "a test left a setting of the session changed"
