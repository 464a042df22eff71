# SPDX-License-Identifier: Apache-2.0
"""Cells as a function sees them, against a plain udf of Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import sparkawait as sa
from tests.types.cases import CASES, NOT_UTF8, Case, cases_of
from tests.types.paths import NO_MONTHS, Cell, Path, Refused, Rule
from tests.types.workers import VERSION, ZONES, classic_udf, zones

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

REFUSED = "refused"
TIMES = "timestamp|.*timestamp>.*|.*t: timestamp>.*"


def show(value: Any) -> str:  # noqa: PLR0911 - a table
    """Shows a value with all that tells it from others; runs in the workers."""
    if isinstance(value, dt.datetime):
        zone = "aware" if value.tzinfo else "naive"
        shown = value.astimezone(dt.timezone.utc) if value.tzinfo else value
        return f"{zone} {shown.replace(tzinfo=None).isoformat()} fold={shown.fold}"
    if hasattr(value, "asDict"):
        members = ", ".join(f"{name}={show(one)}" for name, one in value.asDict().items())
        kind = "Struct" if isinstance(value, dict) else "Row"
        return f"{kind}({members})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{show(key)}: {show(one)}' for key, one in value.items())})"
    if isinstance(value, list):
        return f"list({', '.join(map(show, value))})"
    if isinstance(value, str) and len(value) > 1000:
        return f"str of {len(value)}, {value[:5]}"
    if hasattr(value, "toPython"):
        return f"{type(value).__name__} {value.toPython()!r}"
    return f"{type(value).__name__} {value!r}"


def _is_instant(ours: str, oracle: str) -> bool:
    """Whether both are the same but for how they show instants, in the zone of this process."""
    return ours == _in_utc(oracle.replace("Row(", "Struct("))


def _in_utc(text: str) -> str:
    before, *naive = text.split("naive ")
    for one in naive:
        local, rest = one[: one.index(" fold=")], one[one.index(" fold=") + 6 :]
        moment = dt.datetime.fromisoformat(local).replace(fold=int(rest[0]))
        instant = moment.astimezone(dt.timezone.utc).replace(tzinfo=None)
        before += f"aware {instant.isoformat()} fold=0{rest[1:]}"
    return before


def _is_bytes(ours: str, oracle: str) -> bool:
    return ours == oracle.replace("bytearray bytearray(", "bytes ").removesuffix(")")


def _is_struct(ours: str, oracle: str) -> bool:
    return ours == oracle.replace("Row(", "Struct(")


PATHS = (
    Path(
        "Cell in a Python function",
        "`udf`",
        tuple((case.type, case.name) for case in (*CASES, NOT_UTF8)),
        (
            NO_MONTHS,
            Rule(
                "string",
                "not UTF-8",
                "refused",
                "by the row, where it is read; `udf` has U+FFFD instead of each wrong byte",
            ),
            Rule(
                TIMES,
                "(?!null$).*",
                "differs",
                "the same instant as an aware `datetime` in the session's time zone;"
                " `udf` has a naive one in the time zone of the worker",
                _is_instant,
            ),
            Rule(
                "binary",
                "bytes|empty",
                "differs",
                "`bytes`; `udf` has a `bytearray` before Spark 4.1",
                _is_bytes,
                versions=lambda version: version < (4, 1),
            ),
            Rule(
                "struct<.*",
                "(?!null$).*",
                "differs",
                "a `dict` with attributes, `row.s.x` and `row['s']['x']`; `udf` has a `Row`",
                _is_struct,
            ),
        ),
        "A row has its columns as attributes and by key: `row.id`, `row['id']`, `row.asDict()`. A"
        " column that is named like a method of a row (`get`, `keys`, `values`, `items`, `asDict`)"
        " is reached by key. Cells are Python's own values: arrays are lists, maps dicts, of two"
        " equal keys the last one counts, intervals `timedelta`. A value of a user-defined type,"
        " such as a vector, is the struct that Spark stores, where `udf` has the object: with"
        " `row.v['values']`, or `pyspark.ml.functions.vector_to_array` before the call. A"
        " `geometry` or `geography` has `row.g.wkb` and `row.g.srid`.",
    ),
)


@pytest.mark.parametrize(("session", "worker"), ZONES, ids=lambda zone: zone)
def test_cells_in_a_python_function(spark, session, worker):
    with zones(spark, session, worker):
        PATHS[0].check(_outcomes(spark), VERSION)


def _outcomes(spark: SparkSession) -> Iterator[tuple[Cell, tuple[Any, Any]]]:
    columns = (f"{case.sql} as c{i}" for i, case in enumerate(_cases()))
    # Else Spark calls the udf with literals, of which it takes 0.0 and -0.0 for one.
    frame = spark.range(1).selectExpr(*columns).localCheckpoint()

    @sa.async_function("name string, seen string")
    async def look(row):
        def seen(name):
            try:
                return show(row[name])
            except Exception as error:  # noqa: BLE001 - it is the outcome
                return f"{REFUSED} {error!r}"

        return [{"name": name, "seen": seen(name)} for name in row]

    sendable = [name for name in frame.columns if _is_sendable(frame.select(name), look)]
    seen = sa.ordered_wait(frame.select(sendable), look).select("name", "seen").collect()
    ours = {row.name: row.seen for row in seen}
    oracles = [name for name in frame.columns if name in ours]
    shown = frame.select(*(classic_udf(show, "string")(name).alias(name) for name in oracles))
    oracle = shown.first().asDict()
    for i, case in enumerate(_cases()):
        found = ours.get(f"c{i}", REFUSED)
        mine = Refused(found) if found.startswith(REFUSED) else found
        yield (case.type, case.name), (mine, oracle.get(f"c{i}", Refused()))


def _cases() -> list[Case]:
    return [*cases_of(VERSION), NOT_UTF8]


def _is_sendable(frame: Any, function: Any) -> bool:
    try:
        sa.ordered_wait(frame, function)
    except sa.ConfigurationError:
        return False
    return True
