# SPDX-License-Identifier: Apache-2.0
"""Cells as arguments of statements, against what psycopg sends."""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.postgres_server import PostgresServer
from tests.support.sql_conf import ZONE, sql_conf
from tests.types.cases import CASES, NOT_UTF8, Case
from tests.types.paths import Cell, Path, Refused, Rule

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

MORE = (
    Case("array<binary>", "bytes", "array(X'00FF', X'', null)"),
    Case("array<boolean>", "both", "array(true, false, null)"),
    Case("array<double>", "special", "array(0.1D, double('NaN'), -0.0D, double('-Infinity'))"),
    Case("array<decimal(10,2)>", "scale", "array(1.20BD)"),
    Case("array<bigint>", "large", "array(4294967296L)"),
    Case("array<date>", "dates", "array(date'0001-01-01', date'9999-12-31', null)"),
    Case("array<timestamp_ntz>", "skipped", "array(timestamp_ntz'2024-03-10 02:30:00.000001')"),
    Case("array<interval day to second>", "mixed", "array(interval '-1 02:03:04' day to second)"),
    Case("string", "number", "'42'"),
    Case("string", "date", "'2024-01-31'"),
    Case("string", "array", "'{1,2}'"),
    Case("string", "backslash", r"'\\\\x00'"),
)
# PyArrow has no year-month intervals; the nested ones are refused as the others are.
SENT = tuple(
    case
    for case in (*CASES, *MORE, NOT_UTF8)
    if case.type != "interval year to month" and "three" not in case.name
)
WHOLE = "tinyint|smallint|int|bigint"
NUMBERS = WHOLE + r"|float|double|decimal\(.*\)"
TEXTS = r"string|char\(5\)|varchar\(5\)|void"
# Which types of Spark are taken by each type of a placeholder, besides texts.
TAKEN: dict[str, str] = {
    "bool": "boolean",
    "int2": WHOLE + r"|decimal\(.*\)",
    "int4": WHOLE + r"|decimal\(.*\)",
    "int8": WHOLE + r"|decimal\(.*\)",
    "float4": NUMBERS,
    "float8": NUMBERS,
    "numeric": NUMBERS,
    "text": NUMBERS + "|boolean|date|timestamp|timestamp_ntz|interval day to second|time",
    "bytea": "binary",
    "date": "date",
    "timestamp": "date|timestamp_ntz",
    "timestamptz": "timestamp",
    "time": "time",
    "interval": "interval day to second",
    "uuid": "",
    "jsonb": "",
    "inet": "",
    "oid": WHOLE,
    "int4[]": r"array<(int|bigint|string|decimal\(10,2\))>",
    "float8[]": r"array<(int|bigint|double|string|decimal\(10,2\))>",
    "bool[]": "array<(boolean|string)>",
    "bytea[]": "array<binary>",
    "date[]": "array<(date|string)>",
    "timestamp[]": "array<(date|timestamp_ntz|string)>",
    "timestamptz[]": "array<(timestamp|string)>",
    "interval[]": "array<(interval day to second|string)>",
    "text[]": "array<(?!binary|array).*>",
}
ZONES = ("America/New_York", "Asia/Kolkata", "UTC")


@dataclass(frozen=True)
class Sent:
    """What psycopg sends.

    Attributes:
        text: What the server makes of it, as a text.
        value: The value itself.
    """

    text: str | None
    value: Any


def is_taken(data_type: str, parameter: str) -> bool:
    texts = "void" if parameter == "bytea" else TEXTS
    return re.fullmatch(f"{texts}|{TAKEN[parameter]}", data_type) is not None


def cell_of(case: Case, parameter: str) -> Cell:
    types = f"{case.type} for {parameter}"
    return (types, case.name) if is_taken(case.type, parameter) else (types, "any value")


def pairs_of(cases: Iterable[Case]) -> Iterator[tuple[Case, str]]:
    for case in cases:
        for parameter in TAKEN:
            # Ten megabytes are sent once.
            if case.name != "10 MB" or parameter == "text":
                yield case, parameter


def _is_same_float(ours: Any, oracle: Sent) -> bool:
    return float(ours) == oracle.value


def _is_same_float4(ours: Any, oracle: Sent) -> bool:
    return struct.unpack("f", struct.pack("f", float(ours)))[0] == oracle.value


def _is_day_to_second(ours: Any, _oracle: Sent) -> bool:
    return ours == "INTERVAL '0 00:00:00' DAY TO SECOND"


SHORTEST = "the shortest number that is the same floating one; psycopg's has 15 digits"
PATHS = (
    Path(
        title="To PostgreSQL",
        oracle="psycopg 3; for `text` Spark's cast to a string",
        cells=tuple(dict.fromkeys(cell_of(*pair) for pair in pairs_of(SENT))),
        rules=(
            Rule(".*", "any value", "refused", "cast the column, or the placeholder"),
            Rule("string for .*", NOT_UTF8.name, "refused", "cast it to binary, or repair it"),
            Rule("int for float4", "max", "refused", "it would be rounded"),
            Rule("bigint for float.", r"max|2\^53\+1", "refused", "it would be rounded"),
            Rule("double for float4", "0\\.1", "refused", "it would be rounded"),
            Rule(r"decimal\(10,2\) for int.", "scale|min", "refused", "it would be rounded"),
            Rule(r"decimal\(38,18\) for int.", "smallest", "refused", "it would be rounded"),
            Rule(r"decimal\(10,2\) for float4", "min", "refused", "it would be rounded"),
            Rule(r"decimal\(38,.*\) for float.", "largest", "refused", "it would be rounded"),
            Rule(r"array<decimal\(10,2\)> for int4\[\]", "scale", "refused", "likewise"),
            Rule(
                "float for numeric", r"0\.1|smallest|largest", "differs", SHORTEST, _is_same_float4
            ),
            Rule("double for numeric", "smallest|largest", "differs", SHORTEST, _is_same_float),
            Rule(
                "interval day to second for text",
                "zero",
                "differs",
                "an interval of days is written from day to second: Arrow has no other",
                _is_day_to_second,
            ),
        ),
        text=(
            "`int for float4` says that an int column takes the place of a placeholder of type"
            " `float4`. A string is read by the server, as a literal in a statement would be, for"
            " any type but `bytea`. Any other value is sent as it is, or refused. A type that does"
            " not fit that of the placeholder ends the task with a `ConfigurationError`; a value"
            " that would be rounded or is out of range fails its row. Use a `timestamp` for"
            " `timestamptz` and a `timestamp_ntz` for `timestamp` only: to convert between them, a"
            " time zone would be needed, and that of the server's session is arbitrary."
        ),
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


def version_of(spark: Any) -> tuple[int, int]:
    major, minor = spark.version.split(".")[:2]
    return int(major), int(minor)


@pytest.mark.nightly
def test_an_argument_is_what_psycopg_sends(spark, server):
    version = version_of(spark)
    outcomes: list[tuple[Cell, tuple[Any, Any]]] = []
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for zone in ZONES:
            is_first = zone == ZONES[0]
            cases = [it for it in SENT if it.since <= version]
            cases = [it for it in cases if is_first or "timestamp" in it.type]
            # Without ANSI, small decimals have an exponent as texts.
            with sql_conf(spark, {ZONE: zone, "spark.sql.ansi.enabled": "true"}):
                outcomes += outcomes_of(spark, server, connection, cases)
    PATHS[0].check(outcomes, version, same=same)


def outcomes_of(
    spark: Any, server: PostgresServer, connection: psycopg.Connection[Any], cases: list[Case]
) -> Iterator[tuple[Cell, tuple[Any, Any]]]:
    frame = spark.range(1).selectExpr(*(f"{case.sql} as c{i}" for i, case in enumerate(cases)))
    (batch,) = frame._collect_as_arrow()
    (row,) = frame.collect()
    (text,) = frame.selectExpr(*texts_of(cases)).collect()
    by_type = defaultdict(list)
    for index, case in enumerate(cases):
        by_type[case.type].append((case, batch.column(index), aware(row[index], case.type)))
    for data_type, those in by_type.items():
        for parameter in TAKEN:
            sent = [it for it in those if it[0].name != "10 MB" or parameter == "text"]
            if not is_taken(data_type, parameter):
                sent = sent[:1]
            ours = sent_by_us(server, parameter, [column for _, column, _ in sent])
            for (case, _, value), our in zip(sent, ours, strict=True):
                name = f"c{cases.index(case)}"
                is_text = parameter in ("text", "text[]") and name in text
                oracle = sent_by_psycopg(connection, parameter, text[name] if is_text else value)
                yield cell_of(case, parameter), (our, oracle)


def texts_of(cases: list[Case]) -> Iterator[str]:
    """Casts to a string, and of arrays to those of strings."""
    for index, case in enumerate(cases):
        for parameter, data_type in (("text", "string"), ("text[]", "array<string>")):
            is_nested = case.type.startswith("array")
            if is_taken(case.type, parameter) and is_nested == parameter.endswith("]"):
                yield f"cast(c{index} as {data_type}) as c{index}"


def aware(value: Any, data_type: str) -> Any:
    """PySpark has an instant as the local time of the machine."""
    if isinstance(value, list):
        return [aware(it, data_type.removeprefix("array<").removesuffix(">")) for it in value]
    if data_type == "timestamp" and value is not None:
        return value.astimezone(dt.timezone.utc)
    return value


def sent_by_psycopg(connection: psycopg.Connection[Any], parameter: str, value: Any) -> Any:
    try:
        found = connection.execute(f"select (%s::{parameter})::text", [value]).fetchone()
    except (psycopg.Error, ValueError) as error:
        return Refused(str(error))
    assert found is not None
    return Sent(found[0], value)


def sent_by_us(server: PostgresServer, parameter: str, columns: list[Any]) -> list[Any]:
    statement = f"select ($1::{parameter})::text as v"
    function = sa.postgres.lookup(
        server.dsn, statement, ["k"], schema="v string", null_args="call", connections=1
    )
    # A copy: Spark 3.5 leaves the offsets of nothing out.
    values, of = columns[0].take(pa.array([0])), columns[0].type
    if len(columns) > 1:
        # Some have elements that may be null, others have none.
        of = pa.list_(of.value_type) if pa.types.is_list(of) else of
        values = pa.concat_arrays([column.cast(of) for column in columns])
    batch = pa.RecordBatch.from_pydict({"k": values})
    try:
        batches = list(sa.arrow.ordered_wait([batch], function, on_error="capture"))
    except sa.ConfigurationError as error:
        assert error.kind is sa.exceptions.ErrorKind.TYPE_REFUSED  # noqa: PT017 - some are refused
        return [Refused(str(error))] * len(values)
    rows = pa.Table.from_batches(batches).select(["v", "error"]).to_pylist()
    return [Refused(row["error"]["message"]) if row["error"] else row["v"] for row in rows]


def same(ours: Any, oracle: Sent) -> bool:
    if isinstance(oracle.value, (int, float, Decimal)) and None not in (ours, oracle.text):
        try:
            return Decimal(ours) == Decimal(oracle.text) or ours == oracle.text
        except ArithmeticError:
            pass
    return ours == oracle.text


def test_arguments_of_a_frame_are_those_of_the_matrix(spark, server):
    """One row through Spark, in which each argument has its natural type."""
    columns = {
        "b": ("true", "bool", "true"),
        "i": ("9007199254740993L", "int8", "9007199254740993"),
        "d": ("0.1D", "float8", "0.1"),
        "n": ("1.20BD", "numeric", "1.20"),
        "s": ("'a'", "text", "a"),
        "y": ("X'00FF'", "bytea", "\\x00ff"),
        "t": ("timestamp'2024-11-03 06:30:00 UTC'", "timestamptz", "2024-11-03 06:30:00+00"),
        "w": ("timestamp_ntz'2024-03-10 02:30:00'", "timestamp", "2024-03-10 02:30:00"),
        "v": ("interval '1 02:03:04' day to second", "interval", "1 day 02:03:04"),
        "l": (
            "array(timestamp'2024-11-03 06:30:00 UTC')",
            "timestamptz[]",
            '{"2024-11-03 06:30:00+00"}',
        ),
        "o": ("array(X'00FF', null)", "bytea[]", '{"\\\\x00ff",NULL}'),
    }
    frame = spark.range(1).selectExpr(
        *(f"{sql} as {name}" for name, (sql, _, _) in columns.items())
    )
    found = ", ".join(
        f"(${index}::{parameter})::text as of_{name}"
        for index, (name, (_, parameter, _)) in enumerate(columns.items(), 1)
    )
    schema = ", ".join(f"of_{name} string" for name in columns)
    function = sa.postgres.lookup(server.dsn, f"select {found}", list(columns), schema=schema)

    (row,) = sa.ordered_wait(frame, function).collect()

    assert {name: row[f"of_{name}"] for name in columns} == {
        name: text for name, (_, _, text) in columns.items()
    }
