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
from tests.spark.carried import OFTEN
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
        self.held: set[str] = set()
        self.gate = threading.Event()
        """What calls for those that are held wait for."""

    def __call__(self, target: str, _before: int) -> Answer:
        with self.lock:
            self.calls[target] += 1
            number = self.calls[target]
        if target in self.held:
            self.gate.wait(60)
        row = int(target.rpartition("/")[2])
        if row % 11 == 3:
            return 400, {}, b"never"
        if number <= row % 5 - 2:
            return 503, {}, b"later"
        if row % 7 == 5:
            return 404, {}, b""
        return 200, {}, json.dumps({"y": f"y{row}", "doubled": 2 * row}).encode()


def has_result(row: int) -> bool:
    return row % 11 != 3 and row % 7 != 5


def leaves(row: int, on_error: str, how: str) -> bool:
    """Whether a row is in the output."""
    return has_result(row) or (on_error != "drop" if row % 11 == 3 else how == "left")


def attempts_of(row: int) -> int:
    """How often a row is called for, with `RETRIES` retries that are not for misses."""
    return 1 if row % 11 == 3 else max(row % 5 - 2, 0) + 1


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Counting, str]]:
    counting = Counting()
    with ScriptedServer(counting) as server:
        yield counting, server.url


@sa.async_function("z string", batch=sa.Batch(max_rows=7, linger="3ms", split_on_error=True))
async def second(rows: list[sa.typing.Row]) -> list[Any]:
    return [[{"z": f"z{row.id}.{place}"} for place in range(row.id % 3)] for row in rows]


def options_of(chance: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"max_concurrency": chance.choice((1, 3, 17))}
    budget = chance.choice((None, sa.retry.Budget(ratio=0.5, min_per_second=1009)))
    options["retry"] = sa.retry.fixed_delay(RETRIES, chance.choice((0, "3ms")), budget=budget)
    drawn = {
        "channel": "key",
        "rate_limit": sa.RateLimit(chance.choice(("333/130ms", "1009/s")), burst=11),
        "tuning": sa.Tuning(
            buffer_timeout=chance.choice((0, "3ms", "auto", None)),
            max_rows=chance.choice((1, 13, 8192)),
            max_bytes=chance.choice((1, 1013, "64 MB")),
        ),
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
    get = sa.http.get(
        f"{url}/{seed}/{{id}}", "y string", client=sa.http.Client(proxy=False), missing=404, how=how
    )

    looked_up = WAITS[mode](df, get, on_error=on_error, **key, **options_of(chance))
    chained = WAITS[mode](looked_up, second, chain=chance.random() < 0.7, **key)
    rows = chained.collect()

    left = [row for row in range(count) if leaves(row, on_error, how)]
    found = {row: f"y{row}" if has_result(row) else None for row in left}
    expected = [(row, y, f"z{row}.{it}") for row, y in found.items() for it in range(row % 3)]
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
    get = sa.http.get(
        f"{url}/{seed}/{{id}}", "y string", client=sa.http.Client(proxy=False), missing=404
    )
    retry = sa.retry.fixed_delay(RETRIES, "3ms", budget=None)
    calls = chance.choice((1, 3, 17))
    look_up = sa.async_udf(get, on_error="null", retry=retry, max_concurrency=calls)

    rows = spark.range(count, numPartitions=2).select("id", look_up("id").alias("y")).collect()

    expected = {row: f"y{row}" if has_result(row) else None for row in range(count)}
    assert {row.id: getattr(row.y, "y", row.y) for row in rows} == expected
    made = {row: counting.calls[f"/{seed}/{row}"] for row in range(count)}
    assert made == {row: attempts_of(row) for row in range(count)}


@pytest.mark.parametrize("seed", range(200, 202))
def test_a_limit_has_as_many_rows_as_it_asks_for_and_none_twice(spark, service, seed):
    chance = random.Random(seed)  # noqa: S311 - no secret
    _, url = service
    get = sa.http.get(
        f"{url}/{seed}/{{id}}", "y string", client=sa.http.Client(proxy=False), missing=404
    )
    df = spark.range(127, numPartitions=3).withColumn("key", F.col("id") % 5)
    options = options_of(chance)

    rows = sa.unordered_wait(df, get, on_error="null", **options).limit(17).collect()

    assert len({row.id for row in rows}) == len(rows) == 17
    assert all(row.y in (None, f"y{row.id}") for row in rows)


def carried_options_of(chance: random.Random, mode: str, vehicle: str | None) -> dict[str, Any]:
    """Options with which a micro-batch admits all of its rows beside one that does not leave."""
    options = options_of(chance) | {
        "max_concurrency": chance.choice((5, 17)),
        "capacity": chance.choice((61, "1 MB")),
        "tuning": sa.Tuning(max_bytes=chance.choice((1013, 5003))),
    }
    if mode == "key_ordered":
        options["key"] = "key"
    linger, order_by = chance.choice((0, "7ms", "53ms")), "key" if mode == "ordered" else None
    options["carry_over"] = sa.CarryOver(linger=linger, order_by=order_by, vehicle=vehicle)
    return options


@pytest.mark.parametrize(
    ("stream", "mode", "seed"),
    [
        pytest.param(None, "unordered", 300, marks=pytest.mark.nightly),
        pytest.param(None, "ordered", 302, marks=pytest.mark.nightly),
        pytest.param(OFTEN, "key_ordered", 303, marks=pytest.mark.nightly),
    ],
    indirect=["stream"],
)
def test_rows_that_outlive_batches_and_a_restart_come_out_once(stream, service, mode, seed):
    """What waits for the call for row 7 waits until after the restart; nothing else does."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    counting, url = service
    first, second, last = sorted(chance.sample(range(11, 83), 3))
    how, on_error = chance.choice(("left", "inner")), chance.choice(("null", "drop", "capture"))
    wanted = [row for row in range(last) if leaves(row, on_error, how)]
    # A shard has one order, and keys 0 and 1 are of the same one.
    free = [row for row in wanted if row % 3 == 2 or (row % 3 == 0 and mode != "ordered")]
    stream.failing = frozenset(row for row in wanted if not has_result(row))
    get = sa.http.get(
        f"{url}/{seed}/{{id}}",
        "doubled bigint",
        client=sa.http.Client(proxy=False),
        missing=404,
        how=how,
    )
    options = carried_options_of(chance, mode, stream.vehicle)
    out = WAITS[mode](stream.source, get, on_error=on_error, **options)

    counting.held, counting.gate = {f"/{seed}/7"}, threading.Event()
    stream.put(range(first))
    stream.start(out)
    stream.until_out(row for row in free if row < first)
    stream.put(range(first, second))
    stream.until_out(row for row in free if row < second)
    stream.stop()
    before = set(stream.rows)
    counting.gate.set()
    stream.put(range(second, last))
    stream.start(out)
    stream.until_out(wanted)

    assert sorted(stream.rows) == wanted
    for kept in range(3):
        of_key = [row for row in stream.rows if row % 3 == kept]
        assert mode == "unordered" or of_key == sorted(of_key)
    again = {row: counting.calls[f"/{seed}/{row}"] - attempts_of(row) for row in range(last)}
    # What the first run had in flight, the second one calls for again.
    assert {row for row, more in again.items() if more not in (0, 1)} == set()
    assert {row for row in before if again[row]} == set()
    assert 7 not in before
