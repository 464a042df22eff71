# SPDX-License-Identifier: Apache-2.0
"""How fast are lookups in PostgreSQL by primary key through Spark, against asyncpg?

One task, keys of 16 bytes, values of 100 bytes, one server on the same machine, as many connections
for both. asyncpg has one event loop and one pool for the whole task; each connection is held, with
its prepared statement, and takes one key after another, which spares it a round trip that giving
it back would cost. Being slow, it gets fewer rows. Goal: 3 times asyncpg.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import asyncpg
import pyarrow as pa
import uvloop
from cpu import CpuMeter
from figures import Figure, Settings, alternate
from session import local_spark, map_in_arrow

import sparkawait as sa
from tests.support.postgres_server import PostgresServer

CALLS = 1_000
CONNECTIONS = 4
STATEMENT = "select value from items where key = $1"
SCHEMA = "id bigint, key string, value string"


def load(server: PostgresServer, keys: int) -> None:
    """Fills the table."""
    server.run(f"""
        create table items (key text primary key, value text);
        insert into items select 'key:' || lpad(i::text, 12, '0'), repeat('x', 100)
          from generate_series(0, {keys - 1}) as i;
        vacuum analyze items;
    """)  # noqa: S608 - a number


def with_asyncpg(dsn: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow``: one loop, one pool, `asyncio.gather` in a batch."""

    async def open_statements(pool: asyncpg.Pool) -> list[asyncpg.prepared_stmt.PreparedStatement]:
        held = [await pool.acquire() for _ in range(CONNECTIONS)]
        return [await connection.prepare(STATEMENT) for connection in held]

    async def look_up(
        statements: list[asyncpg.prepared_stmt.PreparedStatement], keys: list[str]
    ) -> list[str | None]:
        values: list[str | None] = [None] * len(keys)
        waiting = iter(enumerate(keys))

        async def work(statement: asyncpg.prepared_stmt.PreparedStatement) -> None:
            for place, key in waiting:
                values[place] = await statement.fetchval(key)

        await asyncio.gather(*map(work, statements))
        return values

    async def open_pool() -> asyncpg.Pool:
        return await asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS)

    def enrich(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loop = uvloop.new_event_loop()
        pool = loop.run_until_complete(open_pool())
        statements = loop.run_until_complete(open_statements(pool))
        for batch in batches:
            keys = batch["key"].to_pylist()
            values = pa.array(loop.run_until_complete(look_up(statements, keys)))
            yield pa.RecordBatch.from_arrays([*batch.columns, values], ["id", "key", "value"])
        pool.terminate()
        loop.close()

    return enrich


def figures(settings: Settings) -> list[Figure]:
    """Measures lookups against asyncpg."""
    rows, fewer = settings.rows(400_000), settings.rows(50_000)
    with PostgresServer() as server, local_spark() as spark:
        load(server, rows)
        cpu = CpuMeter(server)
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        key = "format_string('key:%012d', id) as key"
        frame = spark.range(rows, numPartitions=1).selectExpr("id", key)
        short = spark.range(fewer, numPartitions=1).selectExpr("id", key)
        lookup = sa.postgres.lookup(
            server.dsn, STATEMENT, ["key"], schema="value string", connections=CONNECTIONS
        )
        ours = sa.unordered_wait(frame, lookup, max_concurrency=CALLS * CONNECTIONS)
        usual = map_in_arrow(short, with_asyncpg(server.dsn), SCHEMA)
        subject, baseline = alternate(
            settings.rounds,
            cpu.taking("sparkawait", ours, rows),
            cpu.taking("asyncpg", usual, fewer),
        )
    name = f"Spark, PostgreSQL by primary key, {CONNECTIONS} connections"
    details = cpu.details(name)
    return [Figure(name, "rows/s", subject, "asyncpg", baseline, 3.0, details=details)]
