# SPDX-License-Identifier: Apache-2.0
"""How fast are lookups in Redis through Spark, against redis-py and against redis-benchmark?

One task, keys of 16 bytes, values of 100 bytes, one server on the same machine, capacity 1 000.
redis-py has one event loop and one client for the whole task. Its calls go over 64 connections,
with which it is twice as fast as with one for each of 1 000 calls. Being slow, it gets fewer rows.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from itertools import chain

import pyarrow as pa
import redis
import redis.asyncio
import uvloop
from cpu import CpuMeter
from figures import Figure, Settings, alternate
from session import local_spark, map_in_arrow

import sparkawait as sa
from tests.support.redis_server import RedisServer
from tests.support.servers import find_program

CALLS = 1_000
CONNECTIONS = 64
KEYS_AT_ONCE = 10_000
SCHEMA = "id bigint, key string, value string"

MapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def load(url: str, keys: int) -> None:
    """Fills the server."""
    with redis.Redis.from_url(url) as client:
        for start in range(0, keys, KEYS_AT_ONCE):
            numbers = range(start, start + KEYS_AT_ONCE)
            client.mset({f"key:{number:012}": "x" * 100 for number in numbers})


def gathered(url: str) -> MapInArrow:
    """Returns a function that looks up with redis-py's asyncio client, 1 000 rows at once."""

    async def open_client() -> redis.asyncio.Redis:
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS)
        return redis.asyncio.Redis.from_pool(pool)

    async def look_up(client: redis.asyncio.Redis, keys: list[str]) -> list[bytes]:
        starts = range(0, len(keys), CALLS)
        parts = [keys[start : start + CALLS] for start in starts]
        found = [await asyncio.gather(*map(client.get, part)) for part in parts]
        return list(chain.from_iterable(found))

    def enrich(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loop = uvloop.new_event_loop()
        client = loop.run_until_complete(open_client())
        for batch in batches:
            keys = batch["key"].to_pylist()
            yield with_values(batch, loop.run_until_complete(look_up(client, keys)))
        loop.run_until_complete(client.aclose())
        loop.close()

    return enrich


def in_batches(url: str) -> MapInArrow:
    """Returns a function that looks up with redis-py, one MGET a batch."""

    def enrich(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with redis.Redis.from_url(url) as client:
            for batch in batches:
                yield with_values(batch, client.mget(batch["key"].to_pylist()))

    return enrich


def with_values(batch: pa.RecordBatch, values: list[bytes]) -> pa.RecordBatch:
    """Returns the batch with one more column."""
    texts = pa.array([value.decode() for value in values])
    return pa.RecordBatch.from_arrays([*batch.columns, texts], ["id", "key", "value"])


def server_rate(server: RedisServer, requests: int) -> float:
    """Requests per second of redis-benchmark."""
    command = [find_program("redis-benchmark"), "-p", str(server.port), "-P", "100", "-c", "4"]
    command += ["-t", "get", "-d", "100", "-n", str(requests), "-r", str(requests), "-q", "--csv"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - all fixed
    return float(printed.splitlines()[-1].split(",")[1].strip('"'))


def figures(settings: Settings) -> list[Figure]:
    """Measures lookups against redis-py twice, and against the server alone."""
    rows, fewer = settings.rows(1_000_000), settings.rows(50_000)
    with RedisServer() as server, local_spark() as spark:
        url, cpu = server.url, CpuMeter(server)
        load(url, rows)
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        key = "format_string('key:%012d', id) as key"
        frame = spark.range(rows, numPartitions=1).selectExpr("id", key)
        short = spark.range(fewer, numPartitions=1).selectExpr("id", key)
        lookup = sa.redis.get(url, "{key}", schema="value string")
        ours = sa.unordered_wait(frame, lookup, max_concurrency=CALLS)
        subject, gather, mget, benchmark = alternate(
            settings.rounds,
            cpu.taking("sparkawait", ours, rows),
            cpu.taking("redis-py gather", map_in_arrow(short, gathered(url), SCHEMA), fewer),
            cpu.taking("redis-py MGET", map_in_arrow(frame, in_batches(url), SCHEMA), rows),
            lambda: server_rate(server, rows),
        )
    name = "Spark, Redis GET"
    details = cpu.details(name)
    return [
        Figure(name, "rows/s", subject, "redis-py gather", gather, 20.0, details=details),
        Figure(name, "rows/s", subject, "redis-py MGET", mget, 1.5, details=details),
        Figure(name, "rows/s", subject, "redis-benchmark", benchmark, 0.3, details=details),
    ]
