# SPDX-License-Identifier: Apache-2.0
"""Looks at the driver, starts Spark, looks at its executors, and makes a call through each path."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sparkawait
from sparkawait.doctor import probe
from sparkawait.doctor.java import look_for_java
from sparkawait.doctor.paths import try_alone, try_with_spark
from sparkawait.doctor.processes import add_process, compare_packages
from sparkawait.doctor.report import Report, Status, one_line
from sparkawait.doctor.settings import DoctorSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["examine"]

_SESSION, _EXECUTORS, _CALLS = "session", "executors", "calls in executors"
_NO_PYSPARK = (
    "PySpark is not installed; run `pip install 'sparkawait[spark]'`, or use sparkawait.arrow alone"
)


def examine(settings: DoctorSettings) -> Report:
    """Looks at everything that it can get to, in that order."""
    report = Report(sparkawait.__version__)
    driver = probe.look()
    add_process(report, "driver", driver)
    can_start = _can_start_spark(report, settings)
    try_alone(report)
    if can_start:
        _with_spark(report, settings, driver)
    else:
        _leave_out(report, _SESSION, _EXECUTORS, _CALLS)
    return report


def _can_start_spark(report: Report, settings: DoctorSettings) -> bool:
    spark = _version_of_pyspark()
    if spark is None:
        report.add("driver", "PySpark", _NO_PYSPARK, Status.PROBLEM)
        return False
    return _has_packages(report) and (settings.is_client or look_for_java(report, spark))


def _version_of_pyspark() -> str | None:
    for name in ("pyspark", "pyspark-client", "databricks-connect"):
        try:
            importlib.metadata.version(name)
            import pyspark
        except (importlib.metadata.PackageNotFoundError, ImportError):
            continue
        return str(pyspark.__version__)
    return None


def _has_packages(report: Report) -> bool:
    from sparkawait.spark.workers import require_packages

    try:
        require_packages()
    except sparkawait.ConfigurationError as error:
        report.add("driver", "packages for Spark", str(error), Status.PROBLEM)
        return False
    return True


def _with_spark(report: Report, settings: DoctorSettings, driver: dict[str, Any]) -> None:
    from sparkawait.doctor.session import ask_executors, facts_of, open_session, patient
    from sparkawait.spark.drivers_python import run_drivers_python

    within: Callable[[Callable[[], Any]], Any] = functools.partial(patient, settings.timeout)
    where = "of Spark Connect" if settings.remote else f"of {settings.master}"
    with contextlib.ExitStack() as stack:
        try:
            spark = within(lambda: stack.enter_context(open_session(settings)))
            run_drivers_python(spark)
            report.add(_SESSION, "start", f"a session {where}")
            report.add(_SESSION, "settings", within(lambda: facts_of(spark)))
            shipped = _ship(report, spark, within) if settings.ship else ""
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            report.add(_SESSION, "start", one_line(error), Status.PROBLEM)
            _leave_out(report, _EXECUTORS, _CALLS)
            return
        try:
            told = within(lambda: ask_executors(spark, shipped=shipped))
        except Exception as error:  # noqa: BLE001 - the same
            report.add(_EXECUTORS, "answer", one_line(error), Status.PROBLEM)
            _leave_out(report, _CALLS)
            return
        is_fit = True
        for worker, count in told:
            report.add(_EXECUTORS, "answer", f"{count} of {sum(n for _, n in told)} tasks say:")
            add_process(report, _EXECUTORS, worker)
            is_fit = compare_packages(report, driver, worker) and is_fit
        if is_fit:
            try_with_spark(report, spark, within)
        else:
            _leave_out(report, _CALLS)


def _leave_out(report: Report, *places: str) -> None:
    for place in places:
        report.add(place, "Spark", "the problem above comes first", Status.UNKNOWN)


def _ship(report: Report, spark: SparkSession, within: Callable[[Callable[[], Any]], Any]) -> str:
    from sparkawait.spark import ship
    from sparkawait.spark.shipment import folder_name

    try:
        within(lambda: ship(spark))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        report.add(_SESSION, "ship", one_line(error), Status.PROBLEM)
        return ""
    report.add(_SESSION, "ship", "the driver's wheel was sent to the executors")
    return folder_name(sparkawait.__version__)
