# SPDX-License-Identifier: Apache-2.0
"""JSON that comes in becomes what Spark's `from_json` makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

import sparkawait as sa
from sparkawait.exceptions import ConfigurationError
from tests.support.redis_server import RedisServer
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.sql_conf import ZONE, sql_conf
from tests.types.json_texts import JSON
from tests.types.paths import Path, Refused, Rule
from tests.types.workers import SESSION_ZONES

pytestmark = pytest.mark.spark

CELLS = tuple((data_type, text) for data_type, texts in JSON.items() for text in texts)


def _any_of(*texts: str) -> str:
    return "|".join(map(re.escape, texts))


def _is_raw(ours: object, oracle: object) -> bool:
    """Whether ours is what the service wrote, where Spark wrote the same value again."""
    return isinstance(ours, str) and isinstance(oracle, str)


RULES = (
    Rule(
        "tinyint",
        _any_of("128", "200"),
        "refused",
        "out of range; Spark takes it for a negative number",
    ),
    Rule(
        "string",
        _any_of('{"a" : 1}', "[1, 2]", "1.10", "1e2", '{"a":"\\u00e9"}'),
        "differs",
        "the text as the service wrote it; Spark writes the value again",
        holds=_is_raw,
    ),
    Rule("string", _any_of('"\\ud800"'), "refused", "half a character; Spark makes it `?`"),
    Rule(
        "decimal.*",
        _any_of('"1,234.5"', '"1,5"'),
        "refused",
        "Spark leaves commas out, also the decimal ones of other languages",
    ),
    Rule(
        "date",
        _any_of('"20240131"', '"100"', '"-5"'),
        "refused",
        "Spark takes it for a number of days",
    ),
    Rule(
        "timestamp",
        _any_of('"12:34:56"', '"T12:34:56"'),
        "refused",
        "Spark takes the day on which it is read",
    ),
    Rule("timestamp", _any_of('"2024-01-31T23:00GMT"'), "refused", "Spark leaves the zone out"),
    Rule("timestamp", _any_of("9223372036855"), "refused", "out of range; Spark wraps around"),
    Rule(".*", _any_of("1 2"), "refused", "more than one value; Spark leaves the second out"),
)
TEXT = """
A value is read by its declared type, whatever is beside it and however it is found: `paths=` and
`rows=` change where a value is, not what it may be. The documents of `sa.redis.json` and nested
types in texts of Redis and PostgreSQL are read alike. `timestamp` is in the session's time zone
where the text names none; a number is seconds since 1970. `timestamp_ntz` refuses a zone. `binary`
is base64. A `string` takes any value, as it is written. A column that is a struct, an array or a
map takes the JSON in a text, too. Of equal members of a struct the last one
counts, and a map keeps all of them. A column or member that is declared as `NOT NULL` refuses
documents that lack it, with every `on_error=`; a miss has nulls. Maps must have strings as keys.
Values are nested up to 200 deep where no column reads them.
"""
PATHS = (
    Path("JSON of HTTP services", "Spark's `from_json`", CELLS, RULES, TEXT),
    Path("JSON in Redis", "Spark's `from_json`", CELLS, RULES),
)

TYPES = tuple(JSON)
SCHEMA = ", ".join(f"c{index} {data_type}" for index, data_type in enumerate(TYPES))


def _documents() -> list[bytes]:
    return [f'{{"c{TYPES.index(kind)}": {text}}}'.encode() for kind, text in CELLS]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    documents = _documents()

    def answer(target: str, _before: int) -> Answer:
        return 200, {"Content-Type": "application/json"}, documents[int(target[1:])]

    with ScriptedServer(answer) as running:
        yield running


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        running.load([["SET", f"d{i}", it.decode()] for i, it in enumerate(_documents())])
        yield running


@pytest.fixture
def zone(spark, request) -> Iterator[str]:
    # Until Spark 4 a date that other versions read in another way fails the job.
    policy = {"spark.sql.legacy.timeParserPolicy": "CORRECTED"}
    with sql_conf(spark, {ZONE: request.param, **policy}):
        yield request.param


def _shown(prefix: str) -> str:
    """Shows the one column that a row has a value in."""

    def shown(column: str, data_type: str) -> str:
        return f"hex({column})" if data_type == "binary" else f"cast({column} as string)"

    columns = [shown(f"{prefix}c{index}", kind) for index, kind in enumerate(TYPES)]
    return f"coalesce({', '.join(columns)})"


def _outcomes(spark, function, prefix=""):
    """Compares each cell, whose column may be in another one, with `from_json`, in one job."""
    from pyspark.sql import functions

    frame = spark.createDataFrame(
        [(index, it.decode()) for index, it in enumerate(_documents())], "i int, document string"
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt"}
    read = functions.from_json("document", f"{SCHEMA}, corrupt string", options)
    frame = frame.withColumn("r", read)
    oracle = [f"{_shown('r.')} as oracle", "r.corrupt is not null as is_refused"]
    frame = frame.selectExpr("i", *oracle).repartition(2)
    found = sa.unordered_wait(frame, function, on_error="capture", timeout="60s")
    ours = f"{_shown(prefix)} as ours"
    found = found.selectExpr("i", "oracle", "is_refused", ours, "error.message")
    for row in found.collect():
        ours = row.ours if row.message is None else Refused(row.message)
        yield CELLS[row.i], (ours, Refused() if row.is_refused else row.oracle)


@pytest.mark.parametrize("zone", SESSION_ZONES, indirect=True)
def test_json_of_http_is_read_as_from_json_does(spark, server, zone):
    function = sa.http.get(
        server.url + "/{i}", SCHEMA, client=sa.http.Client(proxy=False), max_requests=4
    )
    PATHS[0].check(_outcomes(spark, function), _version(spark))


@pytest.mark.parametrize("zone", SESSION_ZONES[1:2], indirect=True)
def test_json_in_a_text_is_read_as_from_json_does(spark, zone):
    """What a model answers in: a member of the document is a text that is JSON."""
    documents = _documents()

    def answer(target: str, _before: int) -> Answer:
        content = documents[int(target[1:])].decode()
        return 200, {}, json.dumps({"message": {"content": content}}).encode()

    with ScriptedServer(answer) as running:
        function = sa.http.get(
            running.url + "/{i}",
            f"answer struct<{SCHEMA}>",
            paths={"answer": "$.message.content"},
            client=sa.http.Client(proxy=False),
            max_requests=4,
        )
        PATHS[0].check(_outcomes(spark, function, "answer."), _version(spark))


@pytest.mark.parametrize("zone", SESSION_ZONES, indirect=True)
def test_json_in_redis_is_read_as_from_json_does(spark, redis, zone):
    function = sa.redis.json(redis.url, "d{i}", schema=SCHEMA)
    PATHS[1].check(_outcomes(spark, function), _version(spark))


def _version(spark) -> tuple[int, int]:
    major, minor = spark.version.split(".")[:2]
    return int(major), int(minor)


@pytest.mark.newest_spark
def test_failfast_refuses_what_permissive_marks_and_reads_the_rest_alike(spark):
    documents = [it.decode() for it in _documents()]
    permissive = _read(spark, documents, "PERMISSIVE")
    whole = [it for it, read in zip(documents, permissive, strict=True) if not read.is_marked]
    assert _read(spark, whole, "FAILFAST") == [it for it in permissive if not it.is_marked]
    # A query for one of each type, because the first that is refused ends it. Spark's optimiser
    # evaluates them, so that no job fails.
    marked = [index for index, read in enumerate(permissive) if read.is_marked]
    for kind, index in {CELLS[index][0]: index for index in marked}.items():
        column = f"c{TYPES.index(kind)} {kind}"
        read = f"from_json(d, '{column}', map('mode', 'FAILFAST')) from values (:d) as t(d)"
        query = spark.sql(f"select {read}", args={"d": documents[index]})
        with pytest.raises(Exception, match="MALFORMED_RECORD"):
            query.collect()
    assert len(marked) > len(documents) // 4


def _read(spark, documents: list[str], mode: str):
    """Returns what `from_json` makes of documents, and whether it marks them."""
    from pyspark.sql import functions

    options = {"mode": mode, "columnNameOfCorruptRecord": "corrupt"}
    read = functions.from_json("document", f"{SCHEMA}, corrupt string", options)
    frame = spark.createDataFrame([(it,) for it in documents], "document string").coalesce(1)
    frame = frame.select(read.alias("r"))
    return frame.selectExpr(
        f"{_shown('r.')} as value", "r.corrupt is not null as is_marked"
    ).collect()


@pytest.mark.parametrize("on_error", ["null", "capture", "drop"])
def test_what_is_not_null_fails_its_row_where_it_lacks(spark, on_error):
    bodies = {"/0": b'{"v": 1, "s": {"x": 1}}', "/1": b"{}", "/2": b'{"v": null}'}
    bodies |= {"/3": b'{"v": 1, "s": {}}', "/4": b'{"v": 1, "l": [1, null]}'}

    def answer(target: str, _before: int) -> Answer:
        return (200, {}, bodies[target]) if target in bodies else (404, {}, b"")

    schema = _schema()
    with ScriptedServer(answer) as running:
        function = sa.http.get(running.url + "/{id}", schema, client=sa.http.Client(proxy=False))
        out = sa.ordered_wait(spark.range(6).coalesce(1), function, on_error=on_error)
        rows = out.collect()
    values = {row.id: row.v for row in rows}
    if on_error == "drop":
        # The last one is a miss.
        assert values == {0: 1, 5: None}
        return
    assert values == {0: 1, 1: None, 2: None, 3: None, 4: None, 5: None}
    if on_error == "capture":
        messages = {row.id: row.error.message for row in rows if row.error}
        assert sorted(messages) == [1, 2, 3, 4]
        assert all("declared as not null" in message for message in messages.values()), messages
        assert "`s.x`" in messages[3]


def _schema():
    from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

    inner = StructType([StructField("x", IntegerType(), nullable=False)])
    return StructType(
        [
            StructField("v", IntegerType(), nullable=False),
            StructField("s", inner),
            StructField("l", ArrayType(IntegerType(), containsNull=False)),
        ]
    )


@pytest.mark.parametrize("data_type", ["map<int,string>", "array<map<date,int>>"])
def test_types_that_no_json_has_are_refused_at_the_call(data_type):
    with pytest.raises(ConfigurationError, match="`v` cannot be read from JSON"):
        sa.http.get("http://localhost/{i}", f"v {data_type}")
    with pytest.raises(ConfigurationError, match="`v` cannot be read from JSON"):
        sa.redis.json("redis://localhost", "{i}", schema=f"v {data_type}")
    with pytest.raises(ConfigurationError, match="`v` cannot be read from text"):
        sa.redis.get("redis://localhost", "{i}", schema=f"v {data_type}")
