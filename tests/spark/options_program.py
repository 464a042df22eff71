# SPDX-License-Identifier: Apache-2.0
"""Gives each option of a function in each way, calls it in each place, and counts its calls.

Over Connect a program of its own, because classic sessions and those of Connect do not mix in a
process. It writes what came out, as JSON, into a file.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

import sparkawait as sa
from sparkawait.options import OF_FUNCTION
from tests.spark.calls import CallLog
from tests.spark.connect_program import connect
from tests.spark.sessions_seen import another, in_thread

ROWS = 13
LONG = 20
"""Seconds that a call takes which an option is to end."""
IDS = list(range(ROWS))
COLUMNS = ["id", "fifth", "one"]


def hangs(log: CallLog) -> Callable[[Any], Any]:
    async def hangs(row):
        log.add("call")
        await asyncio.sleep(LONG)
        log.add("ended")
        return row.id

    return hangs


def hangs_at_first(log: CallLog) -> Callable[[Any], Any]:
    seen: set[int] = set()

    async def hangs_at_first(row):
        if row.id % 5:
            return row.id
        log.add("call")
        if row.id not in seen:
            seen.add(row.id)
            await asyncio.sleep(LONG)
            log.add("ended")
        return row.id

    return hangs_at_first


def fails(log: CallLog) -> Callable[[Any], Any]:
    async def fails(row):
        log.add("call")
        raise ConnectionError

    return fails


def answers(log: CallLog) -> Callable[[Any], Any]:
    async def answers(row):
        log.add("call")
        return row.fifth

    return answers


def answers_many(log: CallLog) -> Callable[[Any], Any]:
    async def answers_many(rows):
        log.add(f"call of {len(rows)}")
        return [row.id for row in rows]

    return answers_many


def tells_how_many(log: CallLog) -> Callable[[Any], Any]:
    running = [0]

    async def tells_how_many(row):
        running[0] += 1
        log.add(f"{running[0]} at a time")
        await asyncio.sleep(0.003)
        running[0] -= 1
        return row.id

    return tells_how_many


class Running:
    """How many threads are in a call. Its lock is made where it is called."""

    def __init__(self) -> None:
        self.count = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"count": 0}

    def add(self, change: int) -> int:
        lock: threading.Lock = self.__dict__.setdefault("lock", threading.Lock())
        with lock:
            self.count += change
            return self.count


def tells_how_many_threads(log: CallLog) -> Callable[[Any], Any]:
    running = Running()

    def tells_how_many_threads(row):
        log.add(f"{running.add(1)} at a time")
        time.sleep(0.013)
        running.add(-1)
        return row.id

    return tells_how_many_threads


@dataclass(frozen=True)
class Case:
    """An option whose value shows in the calls that are made.

    Attributes:
        value: The value of the option; or makes it of a folder, if it `has_folder`.
        deed: Makes the function.
        seen: What the calls have noted, by count; ``most`` is the most at a time.
        results: The results of the rows, in order.
        beside: The options that are given beside it.
        more_than: More calls than these are as good as those of `seen`: where a worker is late,
            a call may be over before it is made.
        has_folder: Whether the value has a folder, which no other function may use.
        runs: How often it is called.
    """

    value: Any
    deed: Callable[[CallLog], Callable[[Any], Any]]
    seen: dict[str, int]
    results: list[Any]
    beside: dict[str, Any] = field(default_factory=dict)
    more_than: int | None = None
    has_folder: bool = False
    runs: int = 1


NONE: list[Any] = [None] * ROWS
AGAIN = sa.retry.fixed_delay(2, 0, budget=None)  # which would take two seconds for 26 retries
BRIEF, NULL = {"timeout": "9s", "on_error": "null"}, {"on_error": "null"}
HEDGE = sa.Hedge(after="613ms", max_extra=1)
OPENS = {"max_concurrency": 1, "retry": AGAIN}
PATIENT = sa.CircuitBreaker(after_failures=1, initial="20s", maximum="20s")
BREAKER = sa.CircuitBreaker(after_failures=1, initial="20s", maximum="20s", when_open="fail")
LIMIT = sa.RateLimit("997/s", cost=lambda row: -1 if row.id % 2 else 1)
"""Refuses rows that cost less than nothing."""
CASES = {
    "timeout": Case("300ms", hangs, {"call": ROWS}, NONE, NULL, 0),
    "attempt_timeout": Case(
        "300ms", hangs, {"call": 3 * ROWS}, NONE, {"retry": AGAIN, **BRIEF}, ROWS
    ),
    "max_wait": Case(
        "300ms", fails, {"call": 1}, NONE, {**OPENS, "circuit_breaker": PATIENT, **NULL}
    ),
    "max_concurrency": Case(2, tells_how_many, {"most": 2}, IDS),
    "retry": Case(AGAIN, fails, {"call": 3 * ROWS}, NONE, NULL),
    "hedge": Case(HEDGE, hangs_at_first, {"call": 6}, IDS, {"idempotent": True}),
    "on_error": Case("null", fails, {"call": ROWS}, NONE),
    "on_timeout": Case({"y": -1}, hangs, {"call": ROWS}, [-1] * ROWS, {"timeout": "300ms"}, 0),
    "info": Case("info", answers, {"call": ROWS}, [[i % 5, 1] for i in IDS]),
    "cache": Case(sa.Cache(key="fifth"), answers, {"call": 5}, [i % 5 for i in IDS]),
    "journal": Case(
        lambda folder: sa.Journal(folder, version=7),
        answers,
        {"call": ROWS},
        [i % 5 for i in IDS],
        has_folder=True,
        runs=2,
    ),
    "channel": Case(
        sa.Channel("one", count=4), tells_how_many, {"most": 5}, IDS, {"max_concurrency": 20}
    ),
    "rate_limit": Case(LIMIT, answers, {"call": 7}, [None if i % 2 else i % 5 for i in IDS], NULL),
    "circuit_breaker": Case(BREAKER, fails, {"call": 1}, NONE, {**OPENS, **NULL}),
    "batch": Case(
        sa.Batch(max_rows=5, linger="1s"), answers_many, {"call of 5": 2, "call of 3": 1}, IDS
    ),
    "idempotent": Case(
        *(False, hangs, {"call": ROWS}, NONE),
        *({"attempt_timeout": "300ms", "retry": AGAIN, **BRIEF}, 0),
    ),
    "threads": Case(2, tells_how_many_threads, {"most": 2}, IDS),
}
"""Without its option each has made other calls."""


def as_decorated(case: Case, deed: Any, said: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return sa.async_function("y int", **said)(deed), {}


def as_a_class(case: Case, deed: Any, said: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    method = "async_invoke_batch" if "batch" in said else "async_invoke"
    made = staticmethod(deed)
    return type("Asks", (sa.AsyncFunction,), {"schema": "y int", method: made, **said})(), {}


def with_options(case: Case, deed: Any, said: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return sa.async_function("y int")(deed).with_options(**said), {}


def in_the_call(case: Case, deed: Any, said: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    facts = {name: said.pop(name) for name in OF_FUNCTION if name in said}
    return sa.async_function("y int", **facts)(deed), said


WAYS = {
    "decorator": as_decorated,
    "class": as_a_class,
    "with_options": with_options,
    "call": in_the_call,
}


def of_column(function: Any, given: dict[str, Any], *columns: Column) -> Column:
    """Calls a function with columns: by itself where it takes them, and has all of its options."""
    if given or (isinstance(function, sa.AsyncFunction) and not callable(function)):
        function = sa.async_udf(function, **given)
    return function(*columns)


def rows_of(spark: SparkSession) -> DataFrame:
    columns = ["id", "id % 5 as fifth", "'one' as one"]
    return spark.range(ROWS, numPartitions=1).selectExpr(*columns)


def by_wait(spark: SparkSession, function: Any, given: dict[str, Any]) -> DataFrame:
    out = sa.ordered_wait(rows_of(spark), function, tuning=sa.Tuning(warm_up=False), **given)
    return out.select([name for name in out.columns if name not in COLUMNS])


def by_column(spark: SparkSession, function: Any, given: dict[str, Any]) -> DataFrame:
    columns = [F.col(name) for name in COLUMNS]
    return spread(rows_of(spark).select(of_column(function, given, *columns).alias("y")))


def by_sql(spark: SparkSession, function: Any, given: dict[str, Any]) -> DataFrame:
    if given or not hasattr(function, "asNondeterministic"):
        function = sa.async_udf(function, **given)
    spark.udf.register("called", function)
    members = ", ".join(f"'{name}', {name}" for name in COLUMNS)
    rows_of(spark).createOrReplaceTempView("inputs")
    return spread(spark.sql(f"SELECT called(named_struct({members})) AS y FROM inputs"))  # noqa: S608 - our own texts


def spread(df: DataFrame) -> DataFrame:
    is_struct = isinstance(df.schema["y"].dataType, StructType)
    return df.select("y.*") if is_struct else df


def results_of(df: DataFrame) -> list[Any]:
    found = [row.asDict(recursive=True) for row in df.collect()]
    return [[row["y"], row["info"]["attempts"]] if "info" in row else row["y"] for row in found]


Run = Callable[[SparkSession, Any, dict[str, Any]], DataFrame]
PLACES: dict[str, tuple[Run, bool, bool]] = {
    "wait": (by_wait, False, False),
    "column": (by_column, False, False),
    "thread": (by_column, True, False),
    "second session": (by_column, False, True),
    "sql": (by_sql, False, False),
}
"""How it is called, whether in a thread, and whether in a second session."""


def cells() -> Iterator[tuple[str, str]]:
    """Yields each option with each way to give it. What belongs to a function is in no call."""
    for name in CASES:
        yield from ((name, way) for way in WAYS if not (way == "call" and name in OF_FUNCTION))


def chosen(place: str, *, is_full: bool) -> list[tuple[str, str]]:
    """Returns the cells of a place: all, or every fifth option in one way.

    The next place has the options behind those, so that each option is tried somewhere.
    """
    if is_full:
        return list(cells())
    ways: dict[str, list[str]] = {}
    for name, way in cells():
        ways.setdefault(name, []).append(way)
    shift, count = list(PLACES).index(place), len(PLACES)
    own = [it for it in enumerate(ways.items()) if it[0] % count == shift]
    return [(name, it[(i // count + shift) % len(it)]) for i, (name, it) in own]


def run(
    folder: Path, sessions: tuple[SparkSession, SparkSession], place: str, name: str, way: str
) -> list[Any]:
    """Returns what the calls have noted, and the results."""
    path = folder / f"{place} {name} {way}"
    path.touch()
    log, case = CallLog(path), CASES[name]
    value = case.value(f"{path} folder") if case.has_folder else case.value
    function, given = WAYS[way](case, case.deed(log), {**case.beside, name: value})
    query, is_in_thread, is_second = PLACES[place]

    def call() -> list[Any]:
        return results_of(query(sessions[is_second], function, given))

    for _ in range(case.runs):
        results = in_thread(call) if is_in_thread else call()
    noted = log.counts()
    if any(line.endswith("at a time") for line in noted):
        noted = Counter(most=max(int(line.split()[0]) for line in noted))
    if case.more_than is not None and case.more_than < noted["call"] < case.seen["call"]:
        noted["call"] = case.seen["call"]
    return [dict(noted), results]


def results(spark: SparkSession, folder: Path, *, is_full: bool) -> dict[str, Any]:
    sessions = (spark, another(spark))
    return {
        f"{place}, {name}, {way}": run(folder, sessions, place, name, way)
        for place in PLACES
        for name, way in chosen(place, is_full=is_full)
    }


def main() -> None:
    out = Path(sys.argv[1])
    spark = connect(out.parent)
    out.write_text(json.dumps(results(spark, out.parent, is_full=sys.argv[2] == "full")))
    spark.stop()


if __name__ == "__main__":
    main()
