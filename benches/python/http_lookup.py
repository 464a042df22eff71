# SPDX-License-Identifier: Apache-2.0
"""How fast are HTTP lookups, against aiohttp in the usual recipe and against ``wrk``?

nginx on the loopback interface hands out 1 KB of JSON over kept connections; one task, as many
connections for all three. Goals: 4 times the recipe, and half of what ``wrk`` gets out of nginx.
``tools/install-servers --benches`` installs ``wrk``.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
from cpu import CpuMeter
from figures import Figure, Settings, alternate
from session import local_spark, map_in_arrow

import sparkawait as sa
from tests.support.nginx import Nginx
from tests.support.servers import find_program

CONNECTIONS = 64
CAPACITY = 1_000
KEYS = 100
DOCUMENT = {"name": "Ann", "age": 7, "note": "x" * 970}
SCHEMA = "name string, age bigint"


def aiohttp_recipe(url: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow``: one session, `asyncio.gather` within a batch."""
    columns = pa.schema([("id", pa.int64()), ("name", pa.string()), ("age", pa.int64())])

    async def open_session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS))

    async def call(session: aiohttp.ClientSession, row: dict[str, Any]) -> dict[str, Any]:
        async with session.get(f"{url}/{row['id'] % KEYS}") as response:
            found = await response.json()
        return {**row, "name": found["name"], "age": found["age"]}

    async def enrich_batch(session: aiohttp.ClientSession, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = await asyncio.gather(*(call(session, row) for row in batch.to_pylist()))
        return pa.RecordBatch.from_pylist(rows, schema=columns)

    def enrich(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loop = asyncio.new_event_loop()
        session = loop.run_until_complete(open_session())
        for batch in batches:
            yield loop.run_until_complete(enrich_batch(session, batch))
        loop.run_until_complete(session.close())
        loop.close()

    return enrich


def figures(settings: Settings) -> list[Figure]:
    """Measures rows a second, and prints the CPU time that they cost."""
    rows = settings.rows(200_000)
    with tempfile.TemporaryDirectory() as directory, Nginx(Path(directory)) as nginx:
        for number in range(KEYS):
            (nginx.files / str(number)).write_text(json.dumps(DOCUMENT))
        wrk = _wrk_rate(nginx, settings)
        with local_spark() as spark:
            frame = spark.range(rows, numPartitions=1)
            keyed = frame.selectExpr("id", f"id % {KEYS} key")
            lookup = sa.http.get(
                nginx.url + "/{key}",
                SCHEMA,
                max_requests=CONNECTIONS,
                client=sa.http.Client(proxy=False),
            )
            ours = sa.unordered_wait(keyed, lookup, max_concurrency=CAPACITY)
            usual = map_in_arrow(frame, aiohttp_recipe(nginx.url), f"id bigint, {SCHEMA}")
            cpu = CpuMeter(nginx)
            usual_rates, our_rates = alternate(
                min(settings.rounds, 3),
                cpu.taking("aiohttp", usual, rows),
                cpu.taking("sparkawait", ours, rows),
            )
    name = f"HTTP GET of 1 KB of JSON, {CONNECTIONS} connections"
    details = cpu.details(name)
    return [
        Figure(name, "rows/s", our_rates, "aiohttp", usual_rates, goal=4.0, details=details),
        Figure(name, "rows/s", our_rates, "wrk", [wrk], goal=0.5, details=details),
    ]


def _wrk_rate(nginx: Nginx, settings: Settings) -> float:
    """Returns the requests per second that ``wrk`` makes with one thread."""
    seconds = 1 if settings.quick else 5
    arguments = ["-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", nginx.url + "/1"]
    command = [find_program("wrk"), *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    found = re.search(r"Requests/sec:\s+([0-9.]+)", output)
    if found is None:
        msg = f"`wrk` printed no rate:\n{output}"
        raise RuntimeError(msg)
    return float(found.group(1))
