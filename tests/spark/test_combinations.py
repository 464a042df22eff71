# SPDX-License-Identifier: Apache-2.0
"""Options in combination through Spark; each seed is a case, and a server counts the calls.

`tests/properties/test_combinations.py` draws far more of them without Spark.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.support.scripted_server import Answer, ScriptedServer

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

WAITS = {
    "ordered": sa.ordered_wait,
    "unordered": sa.unordered_wait,
    "key_ordered": sa.key_ordered_wait,
}
RETRIES = 2


class Counting:
    """A service of which some calls are to be tried again, and some rows fail for good."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.lock = threading.Lock()

    def __call__(self, target: str, _before: int) -> Answer:
        with self.lock:
            self.calls[target] += 1
            number = self.calls[target]
        row = int(target.rpartition("/")[2])
        if row % 11 == 3:
            return 400, {}, b"never"
        if number <= row % 5 - 2:
            return 503, {}, b"later"
        if row % 7 == 5:
            return 404, {}, b""
        return 200, {}, json.dumps({"y": f"y{row}"}).encode()


def attempts_of(row: int) -> int:
    """How often a row is called for, with `RETRIES` retries that are not for misses."""
    return 1 if row % 11 == 3 else max(row % 5 - 2, 0) + 1


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Counting, str]]:
    counting = Counting()
    with ScriptedServer(counting) as server:
        yield counting, server.url


@sa.async_function("z string", batch=sa.Batch(max_rows=7, linger="3ms", split_on_error=True))
async def second(rows: list[sa.Row]) -> list[Any]:
    return [[{"z": f"z{row.id}.{place}"} for place in range(row.id % 3)] for row in rows]


def options_of(chance: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"max_concurrency": chance.choice((1, 3, 17))}
    options["retry"] = sa.retry.fixed_delay(RETRIES, chance.choice((0, "3ms")))
    drawn = {
        "channel": "key",
        "rate_limit": sa.RateLimit(chance.choice(("333/130ms", "1009/s")), burst=11),
        "retry_budget": sa.RetryBudget(ratio=0.5, min_per_second=1009),
        "max_rows_per_batch": chance.choice((1, 13)),
        "max_bytes_per_batch": chance.choice((1, 1013)),
        "buffer_timeout": chance.choice((0, "3ms", None)),
        "capacity": chance.choice((61, "2 KB")),
        "cache": sa.Cache(max_rows=3, key="id"),
    }
    return options | {name: it for name, it in drawn.items() if chance.random() < 0.4}


@pytest.mark.parametrize("seed", range(5))
def test_options_together_keep_what_each_of_them_promises(spark, service, seed):
    chance = random.Random(seed)  # noqa: S311 - no secret
    counting, url = service
    mode, count = chance.choice(list(WAITS)), chance.choice((13, 61, 127))
    key = {"key": "key"} if mode == "key_ordered" else {}
    how, on_error = chance.choice(("left", "inner")), chance.choice(("null", "drop", "capture"))
    ids = spark.range(count, numPartitions=chance.choice((1, 2, 3)))
    df = ids.withColumn("key", F.col("id") % 5)
    get = sa.http.get(f"{url}/{seed}/{{id}}", "y string", proxy=False, missing=404, how=how)

    looked_up = WAITS[mode](df, get, on_error=on_error, **key, **options_of(chance))
    chained = WAITS[mode](looked_up, second, chain=chance.random() < 0.7, **key)
    rows = chained.collect()

    found = {row: None if row % 11 == 3 or row % 7 == 5 else f"y{row}" for row in range(count)}
    left = {
        row: y
        for row, y in found.items()
        if y is not None or (on_error != "drop" if row % 11 == 3 else how == "left")
    }
    expected = [(row, y, f"z{row}.{it}") for row, y in left.items() for it in range(row % 3)]
    assert sorted((row.id, row.y, row.z) for row in rows) == sorted(expected, key=lambda it: it[0])
    calls = {row: counting.calls[f"/{seed}/{row}"] for row in range(count)}
    assert calls == {row: attempts_of(row) for row in range(count)}
    if on_error == "capture":
        assert {row.id for row in rows if row.error} == {it for it, *_ in expected if it % 11 == 3}


@pytest.mark.parametrize("seed", range(100, 103))
def test_a_column_function_calls_each_row_as_often_as_its_options_say(spark, service, seed):
    chance = random.Random(seed)  # noqa: S311 - no secret
    counting, url = service
    count = chance.choice((13, 61))
    get = sa.http.get(f"{url}/{seed}/{{id}}", "y string", proxy=False, missing=404)
    retry = sa.retry.fixed_delay(RETRIES, "3ms")
    calls = chance.choice((1, 3, 17))
    look_up = sa.async_udf(get, on_error="null", retry=retry, max_concurrency=calls)

    rows = spark.range(count, numPartitions=2).select("id", look_up("id").alias("y")).collect()

    expected = {row: None if row % 11 == 3 or row % 7 == 5 else f"y{row}" for row in range(count)}
    assert {row.id: getattr(row.y, "y", row.y) for row in rows} == expected
    made = {row: counting.calls[f"/{seed}/{row}"] for row in range(count)}
    assert made == {row: attempts_of(row) for row in range(count)}


@pytest.mark.parametrize("seed", range(200, 202))
def test_a_limit_has_as_many_rows_as_it_asks_for_and_none_twice(spark, service, seed):
    chance = random.Random(seed)  # noqa: S311 - no secret
    _, url = service
    get = sa.http.get(f"{url}/{seed}/{{id}}", "y string", proxy=False, missing=404)
    df = spark.range(127, numPartitions=3).withColumn("key", F.col("id") % 5)
    options = options_of(chance)

    rows = sa.unordered_wait(df, get, on_error="null", **options).limit(17).collect()

    assert len({row.id for row in rows}) == len(rows) == 17
    assert all(row.y in (None, f"y{row.id}") for row in rows)
