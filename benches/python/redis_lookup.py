# SPDX-License-Identifier: Apache-2.0
"""How fast are lookups in Redis through Spark, against redis-py and against redis-benchmark?

One task, keys of 16 bytes, values of 100 bytes, one server on the same machine, capacity 1 000.
The CPU seconds are those of Spark, its Python worker and the server together, per million rows.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import redis
import redis.asyncio
from figures import Figure, Settings, alternate
from pyspark.sql import DataFrame
from session import local_spark, map_in_arrow, write_rate

import sparkawait as sa

PORT = 16399
URL = f"redis://127.0.0.1:{PORT}"
CALLS = 1_000
SCHEMA = "id bigint, key string, value string"


@contextmanager
def server(keys: int) -> Iterator[None]:
    """A server with that many keys."""
    program = shutil.which("redis-server")
    if program is None:
        msg = "`redis-server` is not installed; run `tools/install-servers`"
        raise RuntimeError(msg)
    with tempfile.TemporaryDirectory() as directory:
        command = [program, "--port", str(PORT), "--save", "", "--dir", directory]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - all fixed
        try:
            _load(keys)
            yield
        finally:
            process.kill()
            process.wait()


def _load(keys: int) -> None:
    client = redis.Redis(port=PORT, retry_on_timeout=True)
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            time.sleep(0.05)
    for start in range(0, keys, 10_000):
        client.mset({f"key:{i:012}": "x" * 100 for i in range(start, start + 10_000)})


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Looks up with redis-py's asyncio client, 1 000 rows at once."""

    async def look_up(batch: pa.RecordBatch) -> pa.RecordBatch:
        client = redis.asyncio.Redis.from_url(URL, max_connections=CALLS)
        limit = asyncio.Semaphore(CALLS)

        async def get(key: str) -> bytes:
            async with limit:
                return await client.get(key)

        values = await asyncio.gather(*(get(key) for key in batch["key"].to_pylist()))
        await client.aclose()
        return _with_values(batch, values)

    for batch in batches:
        yield asyncio.run(look_up(batch))


def in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Looks up with redis-py, one MGET a batch."""
    client = redis.Redis(port=PORT)
    for batch in batches:
        yield _with_values(batch, client.mget(batch["key"].to_pylist()))


def _with_values(batch: pa.RecordBatch, values: list[bytes]) -> pa.RecordBatch:
    texts = pa.array([value.decode() for value in values])
    return pa.RecordBatch.from_arrays([*batch.columns, texts], ["id", "key", "value"])


def server_rate(requests: int) -> float:
    """Requests per second of redis-benchmark."""
    command = ["redis-benchmark", "-p", str(PORT), "-P", "100", "-c", "4", "-t", "get", "-d", "100"]
    command += ["-n", str(requests), "-r", str(requests), "-q", "--csv"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - all fixed
    return float(printed.splitlines()[-1].split(",")[1].strip('"'))


def cpu_seconds() -> float:
    """CPU time of this process and all that it started, Spark and the server included."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(stat.parent.name)
        parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))

    def is_own(process: int) -> bool:
        while process > 1 and process != os.getpid():
            process = parents.get(process, 0)
        return process > 1

    own = sum(spent for process, spent in ticks.items() if is_own(process))
    return own / os.sysconf("SC_CLK_TCK")


def figures(settings: Settings) -> list[Figure]:
    """Measures lookups against redis-py twice, and against the server alone."""
    rows, fewer = settings.rows(1_000_000), settings.rows(100_000)
    cpu: dict[str, list[float]] = {}

    def taking(name: str, frame: DataFrame, count: int) -> Callable[[], float]:
        def run() -> float:
            before = cpu_seconds()
            measured = write_rate(frame, count)
            cpu.setdefault(name, []).append((cpu_seconds() - before) / count * 1e6)
            return measured

        return run

    with server(max(rows, fewer)), local_spark() as spark:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        key = "format_string('key:%012d', id) as key"
        frame = spark.range(rows, numPartitions=1).selectExpr("id", key)
        short = spark.range(fewer, numPartitions=1).selectExpr("id", key)
        lookup = sa.redis.get(URL, "{key}", schema="value string")
        mine = sa.unordered_wait(frame, lookup, capacity=CALLS)
        samples = alternate(
            settings.rounds,
            taking("sparkawait", mine, rows),
            taking("gather", map_in_arrow(short, gathered, SCHEMA), fewer),
            taking("mget", map_in_arrow(frame, in_batches, SCHEMA), rows),
            lambda: server_rate(rows),
        )
    details = {"cpu_seconds_per_million_rows": cpu}
    subject = samples[0]
    name = "Spark, Redis GET"
    return [
        Figure(name, "rows/s", subject, "redis-py gather", samples[1], 20.0, details=details),
        Figure(name, "rows/s", subject, "redis-py MGET", samples[2], 1.5, details=details),
        Figure(name, "rows/s", subject, "redis-benchmark", samples[3], 0.3, details=details),
    ]
