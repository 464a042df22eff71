# SPDX-License-Identifier: Apache-2.0
"""Texts of Redis become what Spark's `cast` makes of them with ANSI rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import sparkawait as sa
from tests.support.redis_server import RedisServer
from tests.support.sql_conf import ZONE, sql_conf
from tests.types.paths import Path, Refused, Rule
from tests.types.redis_texts import TEXTS
from tests.types.workers import SESSION_ZONES

pytestmark = pytest.mark.spark

CELLS = tuple((data_type, text) for data_type, texts in TEXTS.items() for text in texts)
TYPES = tuple(TEXTS)
PATHS = (
    Path(
        "Texts of Redis",
        "Spark's `cast` with ANSI rules",
        CELLS,
        (
            Rule("float|double", "0x1p3", "refused", "hexadecimal; Spark reads it as Java does"),
            Rule(
                "timestamp",
                "12:34:56|T12:34:56",
                "refused",
                "Spark takes the day on which it is read",
            ),
        ),
        "`binary` takes the bytes as they are; arrays, maps and structs are read as JSON. The same"
        " goes for texts of PostgreSQL that a `schema=` gives another type.",
    ),
)


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        cells = [(f"h{i}", f"c{TYPES.index(kind)}", it) for i, (kind, it) in enumerate(CELLS)]
        running.load([["HSET", *cell] for cell in cells])
        yield running


@pytest.fixture(params=SESSION_ZONES)
def zone(spark, request) -> Iterator[str]:
    with sql_conf(spark, {ZONE: request.param}):
        yield request.param


def _shown(value: str, data_type: str) -> str:
    return f"hex({value})" if data_type == "binary" else f"cast({value} as string)"


@pytest.mark.usefixtures("zone")
def test_texts_of_redis_are_read_as_cast_does(spark, redis):
    kinds = [(i, TYPES.index(kind), text) for i, (kind, text) in enumerate(CELLS)]
    frame = spark.createDataFrame(kinds, "i int, kind int, text string").repartition(2)
    schema = ", ".join(f"c{index} {data_type}" for index, data_type in enumerate(TYPES))
    function = sa.redis.hash(redis.url, "h{i}", schema=schema)
    found = sa.unordered_wait(frame, function, on_error="capture")
    # A text of another type is not cast.
    casts = [
        _shown(f"try_cast(if(kind = {index}, text, null) as {data_type})", data_type)
        for index, data_type in enumerate(TYPES)
    ]
    ours = [_shown(f"c{index}", data_type) for index, data_type in enumerate(TYPES)]
    found = found.selectExpr(
        "i",
        "error.message as message",
        f"coalesce({', '.join(casts)}) as oracle",
        f"coalesce({', '.join(ours)}) as ours",
    )

    outcomes = []
    for row in found.collect():
        value = Refused(row.message) if row.message is not None else row.ours
        assert value is not None, CELLS[row.i]
        outcomes.append((CELLS[row.i], (value, Refused() if row.oracle is None else row.oracle)))

    major, minor = spark.version.split(".")[:2]
    PATHS[0].check(outcomes, (int(major), int(minor)))
    messages = [value.message for _, (value, _) in outcomes if isinstance(value, Refused)]
    texts = {re.escape(text) for _, text in CELLS if len(text) > 5}
    assert not [it for it in messages if any(re.search(text, it) for text in texts)]
