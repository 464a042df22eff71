# SPDX-License-Identifier: Apache-2.0
"""``sparkawait doctor``: looks at the driver, starts Spark, looks at its executors, calls there.

A call goes through each path that a row can take: Python, native, column; also without Spark.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import json
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

import sparkawait
from sparkawait import _probe
from sparkawait._checks import positive_duration
from sparkawait._doctor.report import (
    Report,
    Status,
    add_process,
    compare_packages,
    look_for_java,
    one_line,
)
from sparkawait.exceptions import ConfigurationError, how_to_install
from sparkawait.testing import simulated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ABOUT: dict[str, Any] = {
    "help": "look for what is in the way of a job, and print a report to paste",
    "description": "Checks this Python, Java, the executors and what they have installed, makes a"
    " call on each path that a row can take, and prints a report without secrets or values of"
    " environment variables. The exit status is 0 if there is no problem, else 1.",
}
_SESSION, _EXECUTORS, _CALLS = "session", "executors", "calls in executors"
_NO_PYSPARK = f"PySpark is not installed; {how_to_install('spark')}, or use sparkawait.arrow alone"
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
_ROWS = 4
_EXPECTED = [(number, 2 * number) for number in range(_ROWS)]
_T = TypeVar("_T")


@dataclass(frozen=True)
class DoctorSettings:
    """The options of the program.

    Attributes:
        master: The Spark master of a classic session.
        remote: The address of a server of Spark Connect, instead.
        ship: Whether the driver's wheel is sent to the executors first.
        timeout: Seconds that Spark has for each thing that it is asked.
        json: Whether the report is JSON.
    """

    master: str = "local[2]"
    remote: str | None = None
    ship: bool = False
    timeout: float = 120.0
    json: bool = False

    @property
    def is_client(self) -> bool:
        """Whether Spark itself runs somewhere else, so that no Java is needed here."""
        return self.remote is not None and not self.remote.startswith("local")


def add_options(doctor: argparse.ArgumentParser) -> None:
    """Adds the options to the command line."""
    usual = DoctorSettings()
    where = doctor.add_mutually_exclusive_group()
    where.add_argument(
        "--master",
        default=usual.master,
        metavar="URL",
        help=f"the Spark master, such as spark://host:7077 or yarn (default: {usual.master})",
    )
    where.add_argument(
        "--remote", metavar="URL", help="a server of Spark Connect instead, such as sc://host:15002"
    )
    doctor.add_argument(
        "--ship",
        action="store_true",
        help="send the driver's wheel to the executors first, as sparkawait.ship does",
    )
    doctor.add_argument(
        "--timeout",
        type=_timeout,
        default=usual.timeout,
        metavar="TIME",
        help=f"how long Spark may take for each thing asked (default: {usual.timeout:g}s)",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")


def _timeout(text: str) -> float:
    try:
        return positive_duration(text, "timeout")
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(settings: DoctorSettings) -> bool:
    """Prints the report; tells whether nothing is in the way."""
    report = examine(settings)
    print(report.to_json() if settings.json else report)
    return report.is_well


def examine(settings: DoctorSettings) -> Report:
    """Looks at everything that it can get to, in that order."""
    report = Report(sparkawait.__version__)
    driver = _probe.look()
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
    from sparkawait.spark.session import require_packages

    try:
        require_packages()
    except ConfigurationError as error:
        report.add("driver", "packages for Spark", str(error), Status.PROBLEM)
        return False
    return settings.is_client or look_for_java(report, spark)


def _version_of_pyspark() -> str | None:
    for name in ("pyspark", "pyspark-client", "databricks-connect"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError, ImportError):
            importlib.metadata.version(name)
            import pyspark

            return str(pyspark.__version__)
    return None


def _with_spark(report: Report, settings: DoctorSettings, driver: dict[str, Any]) -> None:
    from sparkawait.spark.session import Session, run_drivers_python

    within: Callable[[Callable[[], Any]], Any] = functools.partial(patient, settings.timeout)
    place, subject, behind = _SESSION, "start", (_EXECUTORS, _CALLS)
    with contextlib.ExitStack() as stack:
        try:
            spark = within(lambda: stack.enter_context(_session(settings)))
            run_drivers_python(Session(spark))
            where = "of Spark Connect" if settings.remote else f"of {settings.master}"
            report.add(place, subject, f"a session {where}")
            report.add(place, "settings", within(lambda: _facts_of(spark)))
            shipped = _ship(report, spark, within) if settings.ship else ""
            place, subject, behind = _EXECUTORS, "answer", (_CALLS,)
            told = within(lambda: _ask_executors(spark, shipped))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            report.add(place, subject, one_line(error), Status.PROBLEM)
            _leave_out(report, *behind)
            return
        is_fit = True
        for worker, count in told:
            report.add(place, subject, f"{count} of {sum(n for _, n in told)} tasks say:")
            add_process(report, place, worker)
            is_fit = compare_packages(report, driver, worker) and is_fit
            _look_at_streams(report, spark.version, worker)
        if is_fit:
            _try_with_spark(report, spark, within)
        else:
            _leave_out(report, _CALLS)


def _look_at_streams(report: Report, spark: str, worker: dict[str, Any]) -> None:
    """Adds why streams with `carry_over` fail in a worker, if they do. Batch jobs work there."""
    from sparkawait.spark.step import problem_of_pyarrow

    pyarrow = worker["packages"]["pyarrow"]
    # A worker has its PySpark from Spark, which may not have been installed as a package.
    version = worker["packages"]["pyspark"] or spark
    problem = None if pyarrow is None else problem_of_pyarrow(version, pyarrow)
    if problem is not None:
        report.add(_EXECUTORS, "streams with carry_over", problem, Status.WARNING)


def _leave_out(report: Report, *places: str) -> None:
    for place in places:
        report.add(place, "Spark", "the problem above comes first", Status.UNKNOWN)


# -- a session of the doctor's own, and what its executors tell of themselves


@contextlib.contextmanager
def _session(settings: DoctorSettings) -> Generator[SparkSession]:
    """Yields a session that ends with the body. Spark says on standard error what it has to."""
    from pyspark.sql import SparkSession

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
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again below
            outcome.set_exception(error)

    threading.Thread(target=run, name="sparkawait-doctor", daemon=True).start()
    wait([outcome], seconds)
    if not outcome.done():
        msg = (
            f"nothing came back within {seconds:g} s; are there executors with free cores?"
            " `--timeout` gives it longer"
        )
        raise TimeoutError(msg)
    return outcome.result()


def _ask_executors(spark: SparkSession, shipped: str) -> list[tuple[dict[str, Any], int]]:
    """Returns what workers told of themselves, and how many told the same."""
    from pyspark.sql import functions as F  # noqa: N812 - its customary name

    from sparkawait.spark.shipment import probe_by_value

    # A plain function: what runs one needs no pyarrow there.
    with probe_by_value():
        ask = F.udf(_probe.look_as_json)
        numbers: DataFrame = spark.range(0, _WORKERS_ASKED, 1, _WORKERS_ASKED)
        rows = numbers.select(ask(F.lit(shipped)).alias("told")).collect()
    told = Counter(str(row["told"]) for row in rows)
    return [(json.loads(text), count) for text, count in told.most_common()]


def _facts_of(spark: SparkSession) -> str:
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


# -- calls, each through one path


@sparkawait.async_function("doubled bigint")
async def double(row: sparkawait.typing.Row) -> dict[str, int]:
    """Waits for nothing; importable, so that executors find it in their own sparkawait."""
    return {"doubled": 2 * row["id"]}


def _try(
    report: Report, place: str, subject: str, call: Callable[[], list[tuple[Any, Any]]]
) -> None:
    started = time.monotonic()
    try:
        found = sorted(call())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        report.add(place, subject, one_line(error), Status.PROBLEM)
        return
    seconds = time.monotonic() - started
    if found == _EXPECTED:
        report.add(place, subject, f"{_ROWS} rows came back, in {seconds:.1f} s")
    else:
        report.add(place, subject, f"{_EXPECTED} was expected, got {found}", Status.PROBLEM)


def try_alone(report: Report) -> None:
    """Makes calls in this process, without Spark."""

    def run(function: Any, column: str, factor: int) -> list[tuple[Any, Any]]:
        rows = pa.record_batch({"id": pa.array(range(_ROWS), pa.int64())})
        out = sparkawait.arrow.ordered_wait([rows], function, timeout="60s")
        found = out.to_table().to_pylist()
        return [(row["id"], factor * row[column]) for row in found]

    place = "calls without Spark"
    _try(report, place, "Python function", lambda: run(double, "doubled", 1))
    # It returns the position of the row.
    _try(report, place, "native function", lambda: run(simulated("1ms"), "ordinal", 2))


def _try_with_spark(
    report: Report, spark: SparkSession, within: Callable[[Callable[[], Any]], Any]
) -> None:
    """Makes calls in the executors of a session."""

    def rows() -> DataFrame:
        return spark.range(_ROWS, numPartitions=1)

    paths: dict[str, Callable[[], DataFrame]] = {
        "Python function": lambda: sparkawait.unordered_wait(rows(), double, timeout="60s"),
        "native function": lambda: sparkawait.ordered_wait(
            rows(), simulated("1ms"), timeout="60s"
        ).selectExpr("id", "2 * ordinal"),
        "column function": lambda: rows().select("id", sparkawait.async_udf(double)("id")),
    }
    for subject, make in paths.items():
        _try(report, _CALLS, subject, lambda make=make: within(lambda: make().collect()))
