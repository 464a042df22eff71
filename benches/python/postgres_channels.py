# SPDX-License-Identifier: Apache-2.0
"""One of ten tenants of a PostgreSQL server sleeps a second a row: what do the nine others notice?

Lookups by primary key, no Spark, the default of four connections. First without a pause: the
throughput. Then rows come in at a quarter of it for 30 s, the stalled tenant's at most 1 000 a
second of them, with a timeout of 5 s: once nothing sleeps and once that tenant does, beside one
another. Counted are the rows of the nine others that were found.
Goal: at least 0.95 of what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter, sleep

import pyarrow as pa
import pyarrow.compute as pc
from figures import Figure, Settings, alternate

import sparkawait as sa
import sparkawait.arrow
from tests.support.postgres_server import PostgresServer

TENANTS = 10
STALLED = 0
STALLED_RATE = 1_000
"""Most rows a second of the tenant that sleeps."""
KEYS = 100_000
STATEMENT = """
    select value, case when $2 then pg_sleep(1) is null else false end as slept
    from items where key = $1
"""
SECONDS_PER_BATCH = 0.02
OPTIONS = {"capacity": 4_000, "channel": "tenant", "timeout": "5s", "on_error": "null"}


class Tenants:
    """Makes rows of all tenants in turn.

    Args:
        sleeps: Whether the rows of one tenant sleep.
        rate: Rows a second; ``None``: as fast as they are taken.
    """

    def __init__(self, *, sleeps: bool, rate: float | None) -> None:
        per_batch = int((rate or 100_000) * SECONDS_PER_BATCH)
        of_stalled = per_batch // TENANTS
        if rate is not None:
            of_stalled = min(of_stalled, int(STALLED_RATE * SECONDS_PER_BATCH))
        others = [STALLED + 1 + row % (TENANTS - 1) for row in range(per_batch - of_stalled)]
        # Spread among the others, as they come in.
        every = max(len(others) // max(of_stalled, 1), 1)
        for row in range(of_stalled):
            others.insert(row * (every + 1), STALLED)
        self._tenants = pa.array(others, pa.int32())
        self._sleeps = pa.array([sleeps and it == STALLED for it in others])
        self._is_paced = rate is not None

    def batches(self, seconds: float) -> Iterator[pa.RecordBatch]:
        """Yields rows for `seconds` and a little more."""
        started, number, rows = perf_counter(), 0, len(self._tenants)
        names = ["key", "tenant", "sleeps"]
        while (now := perf_counter()) - started < seconds + 0.2:
            wait = started + number * SECONDS_PER_BATCH - now if self._is_paced else 0
            if wait > 0:
                sleep(wait)
            keys = pa.array([(number * rows + row) % KEYS for row in range(rows)], pa.int64())
            number += 1
            yield pa.RecordBatch.from_arrays([keys, self._tenants, self._sleeps], names)


def load(server: PostgresServer) -> None:
    """Fills the table."""
    server.run(f"""
        create table items (key bigint primary key, value text);
        insert into items select i, repeat('x', 100) from generate_series(0, {KEYS - 1}) as i;
        vacuum analyze items;
    """)  # noqa: S608 - a number


def run(dsn: str, seconds: float, *, sleeps: bool, rate: float | None) -> tuple[float, list[int]]:
    """Returns the rows a second that the nine others were found, and those of each second."""
    lookup = sa.postgres.lookup(dsn, STATEMENT, ["key", "sleeps"], schema="value string")
    source = Tenants(sleeps=sleeps, rate=rate).batches(seconds)
    in_second = [0] * int(seconds)
    out = sparkawait.arrow.unordered_wait(source, lookup, **OPTIONS)
    started = perf_counter()
    # Rows of the tenant that sleeps come out when they have timed out, so the loop looks at the
    # clock then at the latest.
    for batch in out:
        second = int(perf_counter() - started)
        if second >= len(in_second):
            break
        is_other = pc.not_equal(batch["tenant"], STALLED)
        found = pc.and_(is_other, pc.is_valid(batch["value"]))
        in_second[second] += pc.sum(found).as_py() or 0
    out.close()  # type: ignore[attr-defined]
    return sum(in_second) / seconds, in_second


def figures(settings: Settings) -> list[Figure]:
    """Measures the nine others, beside the same without a tenant that sleeps."""
    seconds, rounds = (8.0, 1) if settings.quick else (30.0, 3)
    with PostgresServer() as server:
        load(server)
        run(server.dsn, 2.0, sleeps=False, rate=None)
        throughput, _ = run(server.dsn, 5.0, sleeps=False, rate=None)
        rate = throughput * TENANTS / (TENANTS - 1) / 4
        before, after = alternate(
            rounds,
            lambda: run(server.dsn, seconds, sleeps=False, rate=rate),
            lambda: run(server.dsn, seconds, sleeps=True, rate=rate),
        )
    timelines = {"nothing sleeps": before[-1][1], "one tenant sleeps": after[-1][1]}
    return [
        Figure(
            "PostgreSQL, nine tenants beside one that sleeps a second a row",
            "rows/s",
            [found for found, _ in after],
            "nothing sleeps",
            [found for found, _ in before],
            goal=0.95,
            details={"throughput": throughput, "timelines": timelines},
        )
    ]
