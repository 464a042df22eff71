# SPDX-License-Identifier: Apache-2.0
"""Columns as texts in addresses, headers and keys, against Spark's `cast(.. as string)`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import pyspark
import pytest

import sparkawait as sa
from tests.support.resp_server import RespServer, bulk
from tests.support.scripted_server import ScriptedServer
from tests.support.sql_conf import ZONE, sql_conf
from tests.types.cases import CASES, NOT_UTF8, Case, with_units
from tests.types.paths import NO_MONTHS, Cell, Path, Refused, Rule, without_units
from tests.types.workers import SESSION_ZONES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VERSION = (int(pyspark.__version__.split(".")[0]), int(pyspark.__version__.split(".")[1]))


# What only matters where values become parts of a text.
MORE = (
    Case("boolean", "not", "not true"),
    Case("double", "1e-3", "cast('1e-3' as double)"),
    Case("double", "9.99e-4", "cast('9.99e-4' as double)"),
    Case("double", "9999999", "cast('9999999' as double)"),
    Case("double", "2^53", "cast(9007199254740992L as double)"),
    Case("float", "16777216", "cast(16777216 as float)"),
    Case("string", "one dot", "'.'"),
    Case("string", "two dots", "'..'"),
    Case("string", "three dots", "'...'"),
    Case("string", "spaces around", "' a b '"),
    Case("string", "delimiters", "'100%&?#/+;=:@{}'"),
    Case("date", "year 10000", "date_from_unix_date(2932897)"),
    Case("date", "year -1", "date_from_unix_date(-719529)"),
    Case("timestamp", "year 10001", "timestamp_seconds(253435000000L)"),
    Case("timestamp", "tenths", "timestamp'2024-07-01 12:00:00.5 UTC'"),
    Case("interval day to second", "longest", "make_dt_interval(-106751990, 0, 0, 0.5)"),
    Case("interval day", "days", "interval '5' day"),
    Case("interval hour to second", "half a day", "interval '12:00:00' hour to second"),
    Case("interval minute", "minutes", "interval '-7' minute"),
)
# An address has a bound.
TEXTS = tuple(with_units(case for case in (*CASES, *MORE, NOT_UTF8) if case.name != "10 MB"))
CELLS = tuple((case.type, case.name) for case in TEXTS)
NESTED = r"array<.*|map<.*|struct<.*|variant"
NARROW = "interval (day|minute|hour to second)"
AT_CALL = f"{NESTED}|{NO_MONTHS.types}|{NARROW}"
NO_TEXT = (
    Rule(NESTED, ".*", "refused", "at the call: only plain values; in a JSON body all are taken"),
    NO_MONTHS,
    without_units(NARROW),
    Rule("string", NOT_UTF8.name, "refused", "another text would be looked up; cast it to binary"),
)
TEXT = """
A null makes no call: the row is a miss. A timestamp is written in the session's time zone, by the
rules that Spark has for it; a zone that a text names has those of the wheel.
Floating-point numbers have the shortest digits that are read as the same number, as Java writes
them since version 19; Spark on an older Java writes more of them for a few, such as 2.0E23. Spark
with `spark.sql.ansi.enabled=false` writes small decimals with an exponent; here they have none.
"""


def _path(title: str, text: str = "", *rules: Rule) -> Path:
    return Path(title, "`cast(.. as string)`", CELLS, (*NO_TEXT, *rules), text)


PATHS = (
    _path(
        "Column in the path of a URL",
        TEXT + "\nBytes that are not text are percent-encoded like all others.",
        Rule("string", "one dot|two dots", "refused", "it would lead to another place"),
        Rule("string|binary", "empty", "refused", "a part of the path would be missing"),
    ),
    _path("Column in the query of a URL"),
    _path(
        "Column in a header",
        "A header takes bytes as they are.",
        Rule("string", "NUL|quotes", "refused", "no header may have control characters"),
        Rule("binary", "bytes", "refused", "likewise"),
        Rule("string", "spaces around", "refused", "a server would leave them out"),
    ),
    _path("Column in a Redis key", "A key takes bytes as they are."),
)
IN_PATH, IN_QUERY, IN_HEADER, IN_KEY = PATHS


@dataclass(frozen=True)
class Column:
    """A column that has one case in all rows, or, for what makes no call, in a row of its own."""

    name: str
    path: Path
    case: Case
    row: int

    @property
    def cell(self) -> Cell:
        return self.case.type, self.case.name


def _is_alone(column: Column) -> bool:
    return column.path is IN_HEADER and column.row > 0


def columns_of(version: tuple[int, int]) -> Iterator[Column]:
    rows = 0
    for path, prefix in zip(PATHS, "pqhk", strict=True):
        for index, case in enumerate(TEXTS):
            # A column of type void has no other value to make a call with.
            if case.since > version or re.fullmatch(f"{AT_CALL}|void", case.type):
                continue
            rule = path.rule((case.type, case.name), version)
            is_special = case.name == "null" or rule is not None
            rows += is_special
            yield Column(f"{prefix}{index}", path, case, rows if is_special else 0)


def expression(column: Column, version: tuple[int, int]) -> str:
    if not column.row:
        return f"{column.case.sql} as {column.name}"
    plain = next(
        case.sql
        for case in TEXTS
        if case.type == column.case.type
        and case.name != "null"
        and column.path.rule((case.type, case.name), version) is None
    )
    return f"if(id = {column.row}, {column.case.sql}, {plain}) as {column.name}"


def sent(spark: SparkSession, columns: list[Column]) -> dict[Column, object]:
    """Returns what a server saw of each column: bytes, `Refused`, or nothing for no call."""
    version = VERSION
    names = {path: [it.name for it in columns if it.path is path] for path in PATHS}
    frame = spark.range(0, max(it.row for it in columns) + 1, 1, 1)
    frame = frame.selectExpr("id", *(expression(it, version) for it in columns))
    keys: dict[int, list[str]] = {}

    def reply(_connection: int, command: list[str]) -> bytes:
        if command[0] == "MGET":
            keys[int(command[1])] = command[2:]
        return bulk("x")

    with ScriptedServer(lambda *_: (200, {}, b'{"n": 7}')) as http, RespServer(reply) as redis:
        # A server takes a hundred headers; what fails a row has one of its own.
        headers = {f"X-{it.name}": f"{{{it.name}}}" for it in columns if _is_alone(it)}
        plain = [it.name for it in columns if it.path is IN_HEADER and not it.row]
        headers["X-Plain"] = "|".join(f"{{{name}}}" for name in plain)
        path = "/".join(f"{{{name}}}" for name in names[IN_PATH])
        function = sa.http.get(
            f"{http.url}/{{id}}/{path}",
            "n int",
            query={name: f"{{{name}}}" for name in names[IN_QUERY]},
            headers=headers,
            client=sa.http.Client(proxy=False),
        )
        called = sa.ordered_wait(frame, function, on_error="capture")
        called = called.selectExpr("id", "error.message as message", *names[IN_KEY])
        arguments = ["MGET", "{id}", *(f"{{{name}}}" for name in names[IN_KEY])]
        read = sa.redis.command(redis.url, *arguments, schema="x string")
        rows = sa.ordered_wait(called, read, on_error="capture")
        rows = rows.selectExpr("id", "message", "error.message as of_key").collect()
    messages = {row.id: row.message for row in rows}
    of_keys = {row.id: row.of_key for row in rows}
    requests = {int(it.target.split("/")[1]): it for it in http.requests}
    target = requests[0].target
    segments, _, query = target.partition("?")
    values = {
        IN_PATH: [unquote_to_bytes(it) for it in segments.split("/")[2:]],
        IN_QUERY: [unquote_to_bytes(it.partition("=")[2]) for it in query.split("&")],
        IN_HEADER: requests[0].headers["x-plain"].encode("latin-1").split(b"|"),
        IN_KEY: [it.encode("utf-8", "surrogateescape") for it in keys[0]],
    }

    names[IN_HEADER] = plain

    def of(column: Column) -> object:
        called = keys if column.path is IN_KEY else requests
        if not column.row:
            return values[column.path][names[column.path].index(column.name)]
        assert column.row not in called, f"{column.cell} made a call"
        message = (of_keys if column.path is IN_KEY else messages)[column.row]
        return message and Refused(message)

    return {column: of(column) for column in columns}


@pytest.mark.parametrize("zone", SESSION_ZONES)
def test_columns_are_written_as_spark_casts_them(spark, zone):
    columns = list(columns_of(VERSION))
    cases = {it.cell: it.case for it in columns}
    with sql_conf(spark, {ZONE: zone, "spark.sql.ansi.enabled": "true"}):
        casts = (f"cast(cast({case.sql} as string) as binary)" for case in cases.values())
        (row,) = spark.range(1).selectExpr(*casts).collect()
        found = sent(spark, columns)
        refused = dict(refusals(spark))
    oracle = dict(zip(cases, row, strict=True))
    for path in PATHS:
        outcomes = [(it.cell, (found[it], oracle[it.cell])) for it in columns if it.path is path]
        outcomes = [
            (cell, (ours, None if theirs is None else bytes(theirs)))
            for cell, (ours, theirs) in outcomes
        ]
        outcomes += [
            (cell, (ours, "a text"))
            for (title, cell), ours in refused.items()
            if title == path.title
        ]
        path.check([*outcomes, (("void", "null"), (nothing(spark), None))], VERSION)


def refusals(spark: SparkSession) -> Iterator[tuple[tuple[str, Cell], object]]:
    """Yields what happens at the call for types that have no text."""
    functions: dict[str, Any] = {
        IN_PATH.title: sa.http.get("http://host/{v}", "n int"),
        IN_QUERY.title: sa.http.get("http://host/", "n int", query={"v": "{v}"}),
        IN_HEADER.title: sa.http.get("http://host/", "n int", headers={"V": "{v}"}),
        IN_KEY.title: sa.redis.get("redis://host", "{v}", schema="x string"),
    }
    for case in TEXTS:
        if case.since <= VERSION and re.fullmatch(AT_CALL, case.type):
            frame = spark.range(1).selectExpr(f"{case.sql} as v")
            for title, function in functions.items():
                yield (title, (case.type, case.name)), refusal(frame, function)


def refusal(frame: Any, function: Any) -> object:
    try:
        sa.ordered_wait(frame, function)
    except sa.ConfigurationError as error:
        return Refused(str(error))
    return "not refused at the call"


def nothing(spark: SparkSession) -> object:
    """Returns whether a column without a type makes a call; it does not."""
    with ScriptedServer(lambda *_: (200, {}, b'{"n": 7}')) as http:
        function = sa.http.get(f"{http.url}/{{v}}", "n int", client=sa.http.Client(proxy=False))
        rows = sa.ordered_wait(spark.sql("select null as v"), function).collect()
    assert [row.n for row in rows] == [None]
    return http.targets or None


def test_numbers_have_the_shortest_digits_on_any_java(spark):
    values = [2e23, 1.1e22, 4.9e-324, 9.9e-324, 2.2250738585072014e-308]
    frame = spark.createDataFrame([(value,) for value in values], "v double").coalesce(1)
    with ScriptedServer(lambda *_: (200, {}, b'{"n": 7}')) as http:
        function = sa.http.get(f"{http.url}/{{v}}", "n int", client=sa.http.Client(proxy=False))
        sa.ordered_wait(frame, function).collect()
    assert sorted(target[1:] for target in http.targets) == [
        "1.1E22",
        "2.0E23",
        "2.2250738585072014E-308",
        "4.9E-324",
        "9.9E-324",
    ]
    theirs = [float(row[0]) for row in frame.selectExpr("cast(v as string)").collect()]
    assert all(map(math.isclose, theirs, values))
    assert theirs == values
