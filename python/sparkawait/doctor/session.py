# SPDX-License-Identifier: Apache-2.0
"""A session of the doctor's own, and what its executors tell of themselves."""

from __future__ import annotations

import json
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from sparkawait.doctor import probe
from sparkawait.doctor.settings import DoctorSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ask_executors", "facts_of", "open_session", "patient"]

_T = TypeVar("_T")
_WORKERS_ASKED = 8
_TOLD = (
    "spark.submit.deployMode",
    "spark.executor.instances",
    "spark.executor.cores",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.pyspark.memory",
    "spark.python.worker.reuse",
    "spark.python.use.daemon",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.task.cpus",
    "spark.dynamicAllocation.enabled",
    "spark.speculation",
)
"""Settings that matter and cannot be secret."""


@contextmanager
def open_session(settings: DoctorSettings) -> Generator[SparkSession]:
    """Yields a session that ends with the body. Spark says on standard error what it has to."""
    # PySpark warns of new versions of what it uses.
    warnings.filterwarnings("ignore", category=FutureWarning)
    builder: Any = SparkSession.builder
    builder = builder.appName("sparkawait doctor")
    if settings.is_client:
        spark = builder.remote(settings.remote).getOrCreate()
    else:
        builder = builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        where = settings.remote or settings.master
        builder = builder.remote(where) if settings.remote else builder.master(where)
        spark = builder.getOrCreate()
        if not settings.remote:
            # Failures are findings, and not to be read twice.
            spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def patient(seconds: float, call: Callable[[], _T]) -> _T:
    """Returns what `call` returns.

    Raises:
        TimeoutError: If that takes too long; the call goes on.
    """
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:  # noqa: BLE001 - raised again below
            outcome.append((False, error))

    thread = threading.Thread(target=run, name="sparkawait-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        msg = (
            f"nothing came back within {seconds:g} s; are there executors with free cores?"
            " `--timeout` gives it longer"
        )
        raise TimeoutError(msg)
    is_result, value = outcome[0]
    if not is_result:
        raise value
    return value


def ask_executors(spark: SparkSession, *, shipped: str) -> list[tuple[dict[str, Any], int]]:
    """Returns what workers told of themselves, and how many told the same."""
    # Only what is registered travels with its code, and executors may have no sparkawait.
    pickler: Any = cloudpickle
    pickler.register_pickle_by_value(probe)
    try:
        ask = F.udf(probe.look_as_json)
        numbers: DataFrame = spark.range(0, _WORKERS_ASKED, 1, _WORKERS_ASKED)
        rows = numbers.select(ask(F.lit(shipped)).alias("told")).collect()
    finally:
        pickler.unregister_pickle_by_value(probe)
    told = Counter(str(row["told"]) for row in rows)
    return [(json.loads(text), count) for text, count in told.most_common()]


def facts_of(spark: SparkSession) -> str:
    """Returns the version of Spark and the settings that matter."""
    found = [f"Spark {spark.version}"]
    for name in _TOLD:
        try:
            value = spark.conf.get(name, None)
        except Exception:  # noqa: BLE001, S112 - a server may not tell
            continue
        if value is not None:
            found.append(f"{name}={value}")
    return ", ".join(found)
