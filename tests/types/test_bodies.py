# SPDX-License-Identifier: Apache-2.0
"""Columns as values in JSON bodies, against Spark's `to_json`."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import sparkawait as sa
from tests.support.scripted_server import ScriptedServer
from tests.support.sql_conf import ZONE, sql_conf
from tests.types.cases import CASES, NOT_UTF8, Case, with_units
from tests.types.paths import NO_MONTHS, Cell, Path, Refused, Rule, without_units
from tests.types.test_templates import VERSION, refusal
from tests.types.workers import SESSION_ZONES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

OFFSETS = "offset with seconds"
INSTANT = "instant outside of UTC"
ELSEWHERE = {("timestamp", OFFSETS): "1870-06-01T00:00:00.000Z"} | (
    {("variant", INSTANT): "2024-07-01 12:00:00.5+00:00"} if VERSION >= (4, 0) else {}
)
"""What differs in zones that are not UTC, and how it is written in all."""
MORE = (
    Case("date", "year 10000", "date_from_unix_date(2932897)"),
    Case("timestamp", "milliseconds", "timestamp'2024-07-01 12:00:00.12 UTC'"),
    # That of New York and Calcutta then.
    Case("timestamp", OFFSETS, "timestamp'1870-06-01 00:00:00 UTC'"),
    Case("timestamp_ntz", "milliseconds", "timestamp_ntz'2024-07-01 12:00:00.12'"),
    Case("interval day to second", "longest", "make_dt_interval(-106751990, 0, 0, 0.5)"),
    Case("interval day", "days", "interval '5' day"),
    Case("array<interval minute>", "minutes", "array(interval '-7' minute)"),
    *(
        Case("variant", name, sql, (4, 0))
        for name, sql in {
            "number": "parse_json('1')",
            "null of JSON": "parse_json('null')",
            "decimals": "parse_json('[1.20, 0.000000000000000001, 1e30, 12345678901234567890]')",
            "long text": "parse_json(concat('\"', repeat('é', 100), '\"'))",
            "many members": "to_variant_object(transform(sequence(1, 300), i -> struct(i as a)))",
            "large": "parse_json(concat('[', repeat('\"abcdefgh\",', 9000), 'true]'))",
            "date": "cast(date'2024-02-29' as variant)",
            "wall clock": "cast(timestamp_ntz'2024-07-01 12:00:00.5' as variant)",
            "bytes": "cast(X'00FF41' as variant)",
            "NaN": "cast(cast('NaN' as double) as variant)",
            "float": "cast(cast(0.1 as float) as variant)",
            INSTANT: "cast(timestamp'2024-07-01 12:00:00.5 UTC' as variant)",
        }.items()
    ),
    Case("array<variant>", "nulls inside", "array(parse_json('{\"a\": 1}'), null)", (4, 0)),
    Case("map<date,int>", "day as key", "map(date'2024-02-29', 1)"),
    Case("map<timestamp,int>", "instant as key", "map(timestamp'2024-07-01 12:00:00 UTC', 1)"),
    Case(
        "map<timestamp,int>",
        "both hours as key",
        "map(timestamp'2024-11-03 05:30:00 UTC', 1, timestamp'2024-11-03 06:30:00 UTC', 1)",
    ),
    Case("map<timestamp_ntz,int>", "clock as key", "map(timestamp_ntz'2024-07-01 12:00:00', 1)"),
    Case("map<boolean,int>", "truth as key", "map(true, 1)"),
    Case("map<double,int>", "number as key", "map(cast(1e7 as double), 1)"),
    Case("map<decimal(10,2),int>", "number as key", "map(cast(1.20 as decimal(10,2)), 1)"),
    Case("map<binary,int>", "bytes as key", "map(X'00FF41', 1)"),
    Case("array<binary>", "bytes", "array(X'00FF41', X'', null)"),
    Case("array<double>", "no numbers", "array(cast('NaN' as double), null)"),
    Case("array<void>", "nulls", "array(null, null)"),
    Case('struct<`a"b`: int>', "quotes in a name", "named_struct('a\"b', 1)"),
)
# What is far past is as in the zone of the cell before, in another year.
VALUES = tuple(with_units(case for case in (*CASES, *MORE) if case.name != "far past"))
CELLS = tuple((case.type, case.name) for case in (*VALUES, NOT_UTF8))
NARROW = "interval day|array<interval minute>"
AT_CALL = f"interval year to month|{NARROW}"


def _keeps_microseconds(ours: str, oracle: str) -> bool:
    return re.sub(r"(\.\d{3})\d{3}", r"\1", ours) == oracle


def has_no_time(version: tuple[int, int]) -> bool:
    return version < (4, 2)


def _is_time(ours: str, oracle: object) -> bool:
    return isinstance(oracle, Refused) and ours == "12:34:56.000001"


def _is_in_utc(ours: str, _oracle: str) -> bool:
    return ours in ELSEWHERE.values()


def _has_nulls(ours: dict[str, Any], oracle: dict[str, Any]) -> bool:
    return {name: value for name, value in ours.items() if value is not None} == oracle


def _is_day(ours: dict[str, int], oracle: dict[str, int]) -> bool:
    epoch = dt.date(1970, 1, 1)
    return {str((dt.date.fromisoformat(key) - epoch).days): 1 for key in ours} == oracle


def _is_instant(ours: dict[str, int], oracle: dict[str, int]) -> bool:
    """Whether the keys name the instants, each once: a clock without offset is one of UTC."""
    # Before Python 3.11 there is no Z.
    moments = (dt.datetime.fromisoformat(key.replace("Z", "+00:00")) for key in ours)
    instants = (it if it.tzinfo else it.replace(tzinfo=dt.timezone.utc) for it in moments)
    micros = {str(int(it.timestamp()) * 1_000_000): 1 for it in instants}
    return len(micros) == len(ours) and micros == oracle


def _is_base64(ours: dict[str, int], _oracle: object) -> bool:
    return ours == {"AP9B": 1}


PATHS = (
    Path(
        "Column in a JSON body",
        "`to_json`",
        CELLS,
        (
            NO_MONTHS,
            without_units(NARROW),
            Rule(
                "string",
                NOT_UTF8.name,
                "refused",
                "`to_json` has U+FFFD instead of each wrong byte",
            ),
            Rule(
                "timestamp|timestamp_ntz",
                "microsecond|before 1970|year 9999",
                "differs",
                "all digits; `to_json` cuts microseconds off",
                _keeps_microseconds,
            ),
            Rule(
                "timestamp",
                OFFSETS,
                "differs",
                "in UTC; `to_json` leaves the seconds of the offset out",
                _is_in_utc,
            ),
            Rule(
                "variant",
                INSTANT,
                "differs",
                "in UTC; `to_json` has it in the session's time zone",
                _is_in_utc,
                lambda version: version >= (4, 0),
            ),
            Rule(
                "time",
                "microsecond",
                "differs",
                "the text of a cast; `to_json` of Spark 4.1 refuses the type",
                _is_time,
                lambda version: version >= (4, 1) and has_no_time(version),
            ),
            Rule(
                "struct<x: int, y: string>",
                "nulls inside",
                "differs",
                "members that are null are there; `to_json` leaves them out",
                _has_nulls,
            ),
            Rule(
                "map<date,int>",
                ".* key",
                "differs",
                "the date; `to_json` has a number of days",
                _is_day,
            ),
            Rule(
                "map<timestamp,int>|map<timestamp_ntz,int>",
                ".* key",
                "differs",
                "as a value is, with its offset; `to_json` has a number of microseconds",
                _is_instant,
            ),
            Rule(
                "map<binary,int>",
                ".* key",
                "differs",
                "Base64; `to_json` has an address in memory",
                _is_base64,
            ),
        ),
        'What `json="{column}"` sends, and `json={"name": "{column}"}` as a member. A null column'
        " is `null` as a member, and makes no call alone. Numbers keep all their digits.",
    ),
)
(PATH,) = PATHS


def read(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Decimal)


def in_body(case: Case) -> bool:
    return case.since <= VERSION and not re.fullmatch(AT_CALL, case.type)


def bodies(spark: SparkSession, cases: list[Case]) -> dict[Cell, Any]:
    columns = [f"{case.sql} as c{index}" for index, case in enumerate(cases)]
    frame = spark.range(0, 1, 1, 1).selectExpr(*columns)
    with ScriptedServer(lambda *_: (200, {}, b'{"n": 7}')) as server:
        json_body = {f"c{index}": f"{{c{index}}}" for index in range(len(cases))}
        function = sa.http.post(
            server.url, "n int", json=json_body, client=sa.http.Client(proxy=False)
        )
        (row,) = sa.ordered_wait(frame, function).select("n").collect()
    assert row.n == 7
    found = read(server.requests[0].body)
    return {(case.type, case.name): found[f"c{index}"] for index, case in enumerate(cases)}


def oracles(spark: SparkSession, cases: list[Case]) -> dict[Cell, Any]:
    def query(cases: list[Case]) -> dict[Cell, Any]:
        columns = [f"to_json(named_struct('v', {case.sql}))" for case in cases]
        (row,) = spark.range(0, 1, 1, 1).selectExpr(*columns).collect()
        found = zip(cases, row, strict=True)
        return {(case.type, case.name): read(text).get("v") for case, text in found}

    # One value that is refused fails a whole query.
    times = [case for case in cases if has_no_time(VERSION) and case.type == "time"]
    found = query([case for case in cases if case not in times])
    for case in times:
        try:
            found |= query([case])
        except PySparkException as error:
            found[case.type, case.name] = Refused(str(error))
    return found


@pytest.mark.parametrize("zone", SESSION_ZONES)
def test_columns_are_written_as_to_json_writes_them(spark, zone):
    cases = [case for case in VALUES if in_body(case)]
    if zone == "UTC":
        cases = [case for case in cases if (case.type, case.name) not in ELSEWHERE]
    with sql_conf(spark, {ZONE: zone}):
        ours, theirs = bodies(spark, cases), oracles(spark, cases)
        refused = dict(refusals(spark))
    outcomes = [(cell, (ours[cell], theirs[cell])) for cell in ours]
    outcomes += [(cell, (it, "JSON")) for cell, it in refused.items()]
    if zone == "UTC":
        # Told by the other zones.
        outcomes += [(cell, (ours, "")) for cell, ours in ELSEWHERE.items()]
    PATH.check(outcomes, VERSION)


def refusals(spark: SparkSession) -> Iterator[tuple[Cell, object]]:
    function = sa.http.post("http://host/", "n int", json="{v}")
    for case in VALUES:
        if case.since <= VERSION and not in_body(case):
            frame = spark.range(1).selectExpr(f"{case.sql} as v")
            yield (case.type, case.name), refusal(frame, function)
    frame = spark.range(1).selectExpr(f"{NOT_UTF8.sql} as v")
    (row,) = sa.ordered_wait(frame, function, on_error="capture").select("error.*").collect()
    assert row.kind == "text-invalid"
    yield (NOT_UTF8.type, NOT_UTF8.name), Refused(row.message)
