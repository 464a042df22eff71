# SPDX-License-Identifier: Apache-2.0
"""Values that PostgreSQL returns, against what psycopg makes of them."""

from __future__ import annotations

import datetime as dt
import functools
import ipaddress
import math
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import psycopg.sql
import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.postgres_server import PostgresServer
from tests.support.sql_conf import ZONE, sql_conf
from tests.types.paths import Cell, Path, Refused, Rule

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

SETUP = """
create type mood as enum ('sad', 'happy');
create type pair as (x int, y text);
create domain price as numeric(10, 2);
"""


@dataclass(frozen=True)
class Found:
    """What psycopg has of a value.

    Attributes:
        value: As its own type, or `Refused`.
        text: As the text that the server makes of it.
        texts: The same for the elements of an array.
    """

    value: Any
    text: str | None = None
    texts: list[str | None] | None = None


# The values of each type of the server, as texts that it reads.
VALUES: dict[str, list[str]] = {
    "bool": ["true", "false"],
    "int2": ["-32768", "32767", "300"],
    "int4": ["-2147483648", "2147483647", "16777217"],
    "int8": ["-9223372036854775808", "9223372036854775807", "9007199254740993", "1704067200"],
    "float4": ["0.1", "1e7", "1e-45", "3.4028235e38", "NaN", "Infinity", "-Infinity", "-0"],
    "float8": ["0.1", "1.99", "2", "1e300", "5e-324", "NaN", "Infinity", "-Infinity", "-0"],
    "numeric": [
        "0",
        "-1.99",
        "1.000000000000000001",
        "1.0000000000000000001",
        "99999999999999999999.999999999999999999",
        "100000000000000000000",
        "1e400",
        "NaN",
        "Infinity",
    ],
    "numeric(10,2)": ["-99999999.99", "1.20", "NaN"],
    "price": ["1.20"],
    "text": ["", "naïve 日本 👩‍👩‍👧", '"\\\n/<&'],
    "varchar(5)": ["ab"],
    "char(5)": ["ab"],
    "bytea": ["\\x00ff41", ""],
    "date": ["0001-01-01", "1582-10-04", "1970-01-01", "9999-12-31"],
    "timestamp": [
        "0001-01-01 00:00:00",
        "1969-12-31 23:59:59.999999",
        "2024-03-10 02:30:00",
        "2024-11-03 01:30:00.000001",
        "9999-12-31 23:59:59.999999",
    ],
    "timestamptz": [
        "1883-11-18 00:00:00+00",
        "2024-03-10 07:30:00+00",
        "2024-11-03 05:30:00.000001+00",
        "2024-11-03 06:30:00+00",
        "9998-12-31 12:00:00+00",
    ],
    "time": ["12:34:56.000001", "00:00:00", "24:00:00"],
    "timetz": ["12:34:56+02"],
    "interval": ["1 day 02:03:04.000005", "-1 days -02:03:04.000005", "00:00:00"],
    "uuid": ["00112233-4455-6677-8899-aabbccddeeff"],
    "json": ['{"x": 1, "y": "a"}', "5", "[1, null]"],
    "jsonb": ['{"x": 1, "y": "a"}', "5", "[1, null]"],
    "mood": ["happy"],
    "inet": ["10.0.0.1/8"],
    "int4range": ["[1,5)"],
    "oid": ["4294967295"],
    "money": ["1.20"],
    "bit(3)": ["101"],
    "pair": ['(1,"a b")'],
    "int4[]": ["{1,NULL,3}", "{}", "[0:1]={4,5}", "{{1,2},{3,4}}"],
    "text[]": ['{a,"b,\\"c",NULL,""}'],
    "float8[]": ["{0.1,NaN,-0,Infinity}"],
    "numeric(10,2)[]": ["{1.20,NULL}", "{NaN}"],
    "bytea[]": ['{"\\\\x00ff",NULL}'],
    "date[]": ["{2024-01-31,NULL}", "{infinity}"],
    "timestamp[]": ['{"2024-03-10 02:30:00"}'],
    "timestamptz[]": ['{"2024-11-03 05:30:00+00","2024-11-03 06:30:00+00"}'],
    "uuid[]": ["{00112233-4455-6677-8899-aabbccddeeff}"],
    "jsonb[]": ['{"{\\"x\\": 1}",NULL}'],
    "mood[]": ["{sad,NULL}"],
    "interval[]": ["{1 day,1 mon}"],
}
OUT_OF_RANGE: dict[str, list[str]] = {
    "date": ["infinity", "-infinity", "0001-12-31 BC", "10000-01-01"],
    "timestamp": ["infinity", "0001-12-31 BC", "10000-01-01 00:00:00"],
    "timestamptz": [
        "infinity",
        "-infinity",
        "0001-12-31 12:00:00+00 BC",
        "10000-01-02 00:00:00+00",
    ],
}
MONTHS = {"interval": ["1 year", "1 mon -30 days"]}
# What is declared for a type, besides nothing.
DECLARED: dict[str, list[str]] = {
    "bool": ["string", "int"],
    "int2": ["tinyint", "int", "double"],
    "int4": ["smallint", "bigint", "float", "decimal(10,0)", "string"],
    "int8": ["int", "double", "decimal(20,1)", "timestamp", "date"],
    "float4": ["double"],
    "float8": ["float", "int", "decimal(10,2)"],
    "numeric": ["bigint", "decimal(10,2)", "double"],
    "numeric(10,2)": ["decimal(12,3)", "decimal(10,1)", "bigint", "string"],
    "bytea": ["string", "int"],
    "date": ["timestamp_ntz", "timestamp", "string"],
    "timestamp": ["timestamp", "date", "string"],
    "timestamptz": ["timestamp_ntz", "date", "string"],
    "time": ["timestamp"],
    "timetz": ["timestamp"],
    "interval": ["interval day to second"],
    "uuid": ["binary"],
    "jsonb": ["string"],
    "int4[]": ["array<bigint>", "array<tinyint>", "string"],
    "float8[]": ["array<int>"],
    "timestamptz[]": ["array<timestamp_ntz>"],
    "interval[]": ["array<interval day to second>"],
}
ALL = {
    name: [*texts, *OUT_OF_RANGE.get(name, []), *MONTHS.get(name, [])]
    for name, texts in VALUES.items()
}
ZONES = {"America/New_York": None, "Asia/Kolkata": "timestamp", "UTC": "timestamp"}
"""Time zones of the session, and which types are tried in them."""
GROUPS = [(name, schema) for name in ALL for schema in [None, *DECLARED.get(name, [])]]
"""A type of the server, and what is declared for it."""


# Values that are none of the declared type, or of the type that a column has without one.
LONG = ["1.0000000000000000001", "100000000000000000000", "1e400", "NaN", "Infinity"]
MISFITS: dict[str, list[str]] = {
    "int2 as tinyint": ["-32768", "32767", "300"],
    "int4 as smallint": ["-2147483648", "2147483647", "16777217"],
    "int4 as float": ["2147483647", "16777217"],
    "int8 as int": ["-9223372036854775808", "9223372036854775807", "9007199254740993"],
    "int8 as double": ["9223372036854775807", "9007199254740993"],
    "float8 as float": ["0.1", "1.99", "1e300", "5e-324"],
    "numeric": LONG,
    "numeric as bigint": [
        *LONG,
        "-1.99",
        "1.000000000000000001",
        "99999999999999999999.999999999999999999",
    ],
    "numeric as decimal(10,2)": [
        *LONG,
        "1.000000000000000001",
        "99999999999999999999.999999999999999999",
    ],
    "numeric as double": ["1e400"],
    "numeric(10,2)": ["NaN"],
    "numeric(10,2) as decimal(12,3)": ["NaN"],
    "numeric(10,2) as decimal(10,1)": ["-99999999.99", "NaN"],
    "numeric(10,2) as bigint": ["-99999999.99", "1.20", "NaN"],
    "interval as interval day to second": MONTHS["interval"],
    "interval[] as array<interval day to second>": ["{1 day,1 mon}"],
    "int4[]": ["{{1,2},{3,4}}"],
    "int4[] as array<bigint>": ["{{1,2},{3,4}}"],
    "int4[] as array<tinyint>": ["{{1,2},{3,4}}"],
    "numeric(10,2)[]": ["{NaN}"],
}


def cell_of(name: str, schema: str | None, text: str | None) -> Cell:
    types = name if schema is None else f"{name} as {schema}"
    if text is None:
        return types, "null"
    return types, ("no " if text in MISFITS.get(types, []) else "= ") + text


def _is_text(ours: object, oracle: Found) -> bool:
    return ours == oracle.text


def _are_texts(ours: object, oracle: Found) -> bool:
    return ours == oracle.texts


def _is_near(ours: object, oracle: Found) -> bool:
    return ours == float(oracle.value)


def _is_midnight(ours: object, oracle: Found) -> bool:
    return ours == dt.datetime.combine(oracle.value, dt.time())


YEARS = "= -?infinity|= .* BC|= 10000.*"
# What cannot become the declared type without loss, or has another meaning there.
REFUSED_TYPES = (
    "bool as int|int8 as timestamp|int8 as date|float8 as int|float8 as decimal\\(10,2\\)"
    "|bytea as int|date as timestamp|timestamp as timestamp|timestamp as date"
    "|timestamptz as timestamp_ntz|timestamptz as date|time as timestamp|timetz as timestamp"
    "|uuid as binary|float8\\[\\] as array<int>|timestamptz\\[\\] as array<timestamp_ntz>"
)
PATHS = (
    Path(
        title="From PostgreSQL",
        oracle="psycopg 3",
        cells=tuple(
            cell_of(name, schema, text) for name, schema in GROUPS for text in [None, *ALL[name]]
        ),
        rules=(
            Rule(REFUSED_TYPES, ".*", "refused", "cast it in the statement, or declare its type"),
            Rule(
                ".*",
                "no .*",
                "refused",
                "out of range, of more digits, NaN or infinite, an interval with months, an array"
                " of several dimensions",
            ),
            Rule("date as timestamp_ntz", YEARS, "refused", "years 1 to 9999 are dates of Spark"),
            Rule("date as timestamp_ntz", "= .*", "differs", "its midnight", _is_midnight),
            Rule(
                "numeric as double",
                "= .*\\.\\d+",
                "differs",
                "the nearest floating number, as Spark's cast of a decimal",
                _is_near,
            ),
            Rule(
                "time|timetz|interval|json|jsonb|int4range|.* as string",
                "= .*",
                "differs",
                "the text that the server makes of it",
                _is_text,
            ),
            Rule(
                "interval\\[\\]|jsonb\\[\\]|mood\\[\\]",
                "= .*",
                "differs",
                "the texts that the server makes of its elements",
                _are_texts,
            ),
        ),
        text=(
            "Without `schema=` a column has the type of the server; with it, `int8 as int` says"
            " that an `int8` was declared `int`, `= 1` is a value and `no 1` one that the type does"
            " not have. Times of the day are texts, because not every"
            " Spark has a type for them, and so are intervals, because no type has months and days."
            " A type that cannot become the declared one without loss ends the task with a"
            " `ConfigurationError`; a value that cannot, fails its row."
        ),
    ),
)


def _is_refused(name: str, schema: str | None) -> bool:
    return re.fullmatch(REFUSED_TYPES, cell_of(name, schema, None)[0]) is not None


def _plain(value: Any) -> Any:
    """A value in a form in which both sides can be compared."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        since = value - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
        return since // dt.timedelta(microseconds=1)
    if isinstance(value, (float, Decimal)) and (math.isnan(value) or str(value) == "-0.0"):
        return f"the number {value}".lower()
    if isinstance(value, (uuid.UUID, ipaddress.IPv4Interface)):
        return str(value)
    if isinstance(value, list):
        return [_plain(it) for it in value]
    return bytes(value) if isinstance(value, bytearray) else value


def same(ours: object, oracle: Found) -> bool:
    return _plain(ours) == _plain(oracle.value)


def found_by_psycopg(connection: psycopg.Connection[Any], name: str, text: str | None) -> Found:
    literal = "null" if text is None else psycopg.sql.Literal(text).as_string(connection)
    value = f"{literal}::{name}"
    row = connection.execute(f"select ({value})::text").fetchone()
    assert row is not None
    texts = None
    if name.endswith("[]") and not (text or "").startswith("{{"):
        texts = connection.execute(f"select ({value})::text[]").fetchone()[0]
    try:
        # As text, a float4 is the shortest number, which is another one.
        is_binary = name.startswith("float")
        found = connection.execute(f"select {value}", binary=is_binary).fetchone()[0]
    except psycopg.DataError as error:
        found = Refused(str(error))
    return Found(found, row[0], texts)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        running.run(SETUP)
        yield running


@pytest.fixture(scope="module")
def oracle(server: PostgresServer) -> Iterator[Callable[[str, str | None], Found]]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        yield functools.cache(functools.partial(found_by_psycopg, connection))


def lookup_of(server: PostgresServer, name: str, schema: str | None) -> Any:
    texts = ["null", *("'" + text.replace("'", "''") + "'" for text in ALL[name])]
    values = ", ".join(f"({row}, {text}::{name})" for row, text in enumerate(texts))
    statement = f"select v::{name} as v from (values {values}) as t(k, v) where k = $1"  # noqa: S608
    return sa.postgres.lookup(
        server.dsn, statement, ["k"], schema=schema and f"v {schema}", connections=2
    )


def values_in_spark(spark: Any, server: PostgresServer, groups: Any) -> dict[Cell, Any]:
    """Returns the value of each cell, all out of one job."""
    from pyspark.sql import functions

    frames, columns = [], {}
    for index, (name, schema) in enumerate(groups):
        keys = spark.range(0, len(ALL[name]) + 1, numPartitions=1).selectExpr("cast(id as int) k")
        frame = sa.ordered_wait(keys, lookup_of(server, name, schema), on_error="capture")
        (data_type,) = [it.dataType.simpleString() for it in frame.schema if it.name == "v"]
        column = columns.setdefault(data_type, f"c{len(columns)}")
        shown = {"timestamp": "unix_micros(v)"}.get(data_type, "v")
        if data_type == "array<timestamp>":
            shown = "transform(v, it -> unix_micros(it))"
        frames.append(
            frame.select(
                functions.lit(index).alias("g"),
                "k",
                "error.message",
                functions.expr(shown).alias(column),
            )
        )
    union = functools.partial(type(frames[0]).unionByName, allowMissingColumns=True)
    outcomes: dict[Cell, Any] = {}
    for row in functools.reduce(union, frames).collect():
        name, schema = groups[row.g]
        text = None if row.k == 0 else ALL[name][row.k - 1]
        value = next((row[column] for column in columns.values() if row[column] is not None), None)
        outcomes[cell_of(name, schema, text)] = Refused(row.message) if row.message else value
    return outcomes


def test_what_is_found_is_what_psycopg_finds(spark, server, oracle):
    accepted = [group for group in GROUPS if not _is_refused(*group)]
    zoned = [group for group in accepted if "timestamp" in " ".join(map(str, group))]
    outcomes = []
    for zone, groups in ZONES.items():
        with sql_conf(spark, {ZONE: zone}):
            ours = values_in_spark(spark, server, accepted if groups is None else zoned)
        outcomes += ours.items()
    refused = [group for group in GROUPS if group not in accepted]
    for name, schema in refused:
        message = Refused(refused_type(server, name, schema))
        outcomes += [(cell_of(name, schema, text), message) for text in [None, *ALL[name]]]

    def pair(cell: Cell, ours: Any) -> tuple[Any, Any]:
        text = None if cell[1] == "null" else cell[1][2:] if cell[1][:2] == "= " else cell[1][3:]
        found = oracle(cell[0].split(" as ")[0], text)
        both_refuse = isinstance(ours, Refused) and isinstance(found.value, Refused)
        return ours, found.value if both_refuse else found

    pairs = [(cell, pair(cell, ours)) for cell, ours in outcomes]
    assert {cell for cell, _ in pairs} == set(PATHS[0].cells)
    PATHS[0].check(pairs, version_of(spark), same=same)


def refused_type(server: PostgresServer, name: str, schema: str | None) -> str:
    """Returns what is said, once for all rows, of a type that cannot be had."""
    keys = pa.RecordBatch.from_pydict({"k": pa.array([0], pa.int32())})
    with pytest.raises(sa.ConfigurationError) as caught:
        list(sa.arrow.ordered_wait([keys], lookup_of(server, name, schema), on_error="null"))
    assert caught.value.kind is sa.exceptions.ErrorKind.TYPE_REFUSED
    return str(caught.value)


def version_of(spark: Any) -> tuple[int, int]:
    major, minor = spark.version.split(".")[:2]
    return int(major), int(minor)
