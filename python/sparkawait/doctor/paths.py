# SPDX-License-Identifier: Apache-2.0
"""One call through each path that a row can take: Python, native, column; also without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import sparkawait
from sparkawait.doctor.report import Report, Status, one_line
from sparkawait.testing import simulated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["try_alone", "try_with_spark"]

_ROWS = 4
_EXPECTED = [(number, 2 * number) for number in range(_ROWS)]


@sparkawait.async_function("doubled bigint")
async def double(row: sparkawait.Row) -> dict[str, int]:
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


def try_with_spark(
    report: Report, spark: SparkSession, within: Callable[[Callable[[], Any]], Any]
) -> None:
    """Makes calls in the executors of a session."""

    def python_function() -> DataFrame:
        return sparkawait.unordered_wait(numbers(), double, timeout="60s")

    def native_function() -> DataFrame:
        waited = sparkawait.ordered_wait(numbers(), simulated("1ms"), timeout="60s")
        return waited.selectExpr("id", "2 * ordinal")

    def column_function() -> DataFrame:
        return numbers().select("id", sparkawait.async_udf(double)("id"))

    def numbers() -> DataFrame:
        return spark.range(_ROWS, numPartitions=1)

    paths = {
        "Python function": python_function,
        "native function": native_function,
        "column function": column_function,
    }
    for subject, make in paths.items():

        def collect(make: Callable[[], DataFrame] = make) -> list[tuple[Any, Any]]:
            return [(row[0], row[1]) for row in within(lambda: make().collect())]

        _try(report, "calls in executors", subject, collect)
