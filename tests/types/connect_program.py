# SPDX-License-Identifier: Apache-2.0
"""The paths of the type matrix whose values cross Spark Connect, in one session of it.

A program of its own, because classic sessions and those of Connect do not mix in a process. Writes
the number of cells of each path into the given file; fails with those that are not as the tables of
the tests say. The workers have another time zone than the session.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path as File
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sparkawait as sa
from tests.spark.connect_program import connect
from tests.types import test_async_udf, test_bodies, test_cells, test_pass_through, test_results
from tests.types.cases import CASES, NOT_UTF8, Case, cases_of
from tests.types.paths import Cell, Path, Refused
from tests.types.workers import VERSION, classic_udf

ZONE = "America/New_York"
Outcomes = Iterable[tuple[Cell, tuple[Any, Any]]]


def one_row(spark: SparkSession, cases: list[Case]) -> DataFrame:
    """A row with a column for each case, none of which Spark evaluates beforehand."""
    columns = (f"if(id = 0, {it.sql}, null) as c{at}" for at, it in enumerate(cases))
    # Behind a shuffle functions get columns, and not expressions: 0.0 and -0.0 are equal ones.
    return spark.range(0, 1, 1, 1).selectExpr(*columns).repartition(1)


def usable(path: Path) -> list[Case]:
    """The cases that are not refused before a query runs."""
    rules = ((case, path.rule((case.type, case.name), VERSION)) for case in cases_of(VERSION))
    return [case for case, rule in rules if rule is None or rule.verdict != "refused"]


def refused(path: Path) -> list[Case]:
    return [case for case in CASES if case.since <= VERSION and case not in usable(path)]


def outcomes(cases: list[Case], ours: Iterable[Any], oracle: Iterable[Any]) -> Outcomes:
    cells = ((case.type, case.name) for case in cases)
    return zip(cells, zip(ours, oracle, strict=True), strict=True)


def passing(spark: SparkSession, path: Path) -> Iterator[tuple[Cell, tuple[Any, Any]]]:
    cases = usable(path)
    df = one_row(spark, cases)
    out = sa.unordered_wait(df, test_pass_through.accept)
    assert out.drop("ok").schema == df.schema
    yield from outcomes(cases, out.drop("ok").first(), df.first())
    for case in refused(path):
        with_one = spark.range(1).selectExpr(f"{case.sql} as c")
        ours = refusal(lambda df=with_one: sa.ordered_wait(df, test_pass_through.accept))
        yield (case.type, case.name), (ours, "a value")
    for kind, (sql, place) in test_pass_through.NOT_UTF8.items():
        df = spark.range(0, 1, 1, 1).selectExpr(f"if(id = 0, {sql}, null) as v")
        bytes_of = f"cast({place} as binary)"
        out = sa.ordered_wait(df, test_pass_through.accept)
        found = [frame.selectExpr(bytes_of).first()[0] for frame in (out, df)]
        yield (kind, "not UTF-8"), (found[0], found[1])


def cells(spark: SparkSession, path: Path) -> Iterator[tuple[Cell, tuple[Any, Any]]]:
    cases = usable(path)
    df = one_row(spark, cases)
    show = test_cells.show

    @sa.async_function("seen array<string>")
    async def look(row):
        return {"seen": [show(row[name]) for name in row]}

    ours = sa.ordered_wait(df, look).select("seen").first().seen
    oracle = df.select(*(classic_udf(show, "string")(name) for name in df.columns)).first()
    yield from outcomes(cases, ours, oracle)
    for case in [*refused(path), NOT_UTF8]:
        df = spark.range(1).selectExpr(f"{case.sql} as c")
        ours = refusal(lambda df=df: sa.ordered_wait(df, look).collect())
        yield (case.type, case.name), (ours, "a value")


def refusal(call: Any) -> object:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - it is the outcome
        return Refused(str(error))


def columns(spark: SparkSession, path: Path) -> Outcomes:
    cases = usable(path)
    df = one_row(spark, cases)
    echo = test_async_udf.echo_of(test_async_udf.declared(df), os.environ["TZ"])
    ours = df.select(echo(*df.columns).alias("r")).select("r.*").first()
    return [
        *outcomes(cases, ours, df.first()),
        *test_async_udf.refusals(spark, path, test_async_udf.call_on_columns, ".*"),
    ]


def in_sql(spark: SparkSession, path: Path) -> Outcomes:
    cases = usable(path)
    df = one_row(spark, cases)
    df.createOrReplaceTempView("cases")
    echo = test_async_udf.echo_of(test_async_udf.declared(df), os.environ["TZ"])
    spark.udf.register("echo_all", echo)
    members = ", ".join(f"'{name}', {name}" for name in df.columns)
    (ours,) = spark.table("cases").selectExpr(f"echo_all(named_struct({members}))").first()
    return [
        *outcomes(cases, ours, df.first()),
        *test_async_udf.refusals(spark, path, test_async_udf.call_in_sql, ".*"),
    ]


def results(spark: SparkSession, _path: Path) -> Outcomes:
    return test_results._outcomes(spark, test_results.VALUES, arrow=False)


def bodies(spark: SparkSession, _path: Path) -> Outcomes:
    cases = [case for case in test_bodies.VALUES if test_bodies.in_body(case)]
    ours = test_bodies.bodies(spark, cases)
    oracle = test_bodies.oracles(spark, cases)
    yield from ((cell, (ours[cell], oracle[cell])) for cell in ours)
    yield from ((cell, (it, "JSON")) for cell, it in test_bodies.refusals(spark))


# Those of columns come last: their functions set the clock of the worker.
PATHS = {
    test_pass_through.PATHS[0]: passing,
    test_cells.PATHS[0]: cells,
    test_results.PATHS[0]: results,
    test_bodies.PATH: bodies,
    test_async_udf.PATHS[0]: columns,
    test_async_udf.PATHS[1]: in_sql,
}


def main() -> None:
    out = File(sys.argv[1])
    spark = connect(out.parent)
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    tried, wrong = {}, []
    for path, outcomes_of in PATHS.items():
        found = list(outcomes_of(spark, path))
        tried[path.title] = len(found)
        try:
            path.check(found, VERSION)
        except AssertionError as error:
            wrong.append(f"{path.title}: {error}")
    assert not wrong, "\n".join(wrong)
    out.write_text(json.dumps(tried))
    spark.stop()


if __name__ == "__main__":
    main()
