# SPDX-License-Identifier: Apache-2.0
"""Clients that tasks and micro-batches share, counted by their connections at a server."""

import json
import os
from http.client import HTTPConnection
from urllib.parse import urlsplit

import aiohttp
import pytest

import sparkawait as sa
from tests.support.scripted_server import ScriptedServer

# What it is about is in the worker, which is the same on each Spark.
pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

FILES, ROWS = 10, 7


class WithSession(sa.AsyncFunction):
    schema = "doubled long, pid long"

    def __init__(self, url, *, is_shared):
        self.url, self.is_shared = url, is_shared

    async def open(self, context):
        def make():
            return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1))

        self.session = context.shared(("api", self.url), make) if self.is_shared else make()

    async def async_invoke(self, row):
        async with self.session.get(f"{self.url}/{row.id}") as response:
            return {"doubled": 2 * int(await response.text()), "pid": os.getpid()}

    async def close(self):
        if not self.is_shared:
            await self.session.close()


class WithBlockingSession(sa.AsyncFunction):
    schema = "doubled long, pid long"
    threads = 1

    def __init__(self, url, *, is_shared):
        self.url, self.is_shared = url, is_shared

    def open(self, context):
        def make():
            return HTTPConnection(urlsplit(self.url).netloc, timeout=20)

        self.session = context.shared(("api", self.url), make) if self.is_shared else make()

    def async_invoke(self, row):
        self.session.request("GET", f"/{row.id}")
        return {"doubled": 2 * int(self.session.getresponse().read()), "pid": os.getpid()}

    def close(self):
        if not self.is_shared:
            self.session.close()


@pytest.fixture
def server():
    with ScriptedServer(lambda target, _before: (200, {}, target[1:].encode())) as server:
        yield server


def micro_batches(spark, folder, function):
    """Runs a stream of ten micro-batches with one task each; returns their rows."""
    source = folder / "source"
    source.mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        (source / f"{number}.json").write_text("\n".join(json.dumps({"id": i}) for i in ids))
    batches = []
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
    query = (
        sa.unordered_wait(stream.coalesce(1), function)
        .writeStream.foreachBatch(lambda batch, _number: batches.append(batch.collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


@pytest.mark.parametrize(
    "kind", [WithSession, pytest.param(WithBlockingSession, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("is_shared", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_ten_micro_batches_connect_as_often_as_one(spark, tmp_path, server, kind, is_shared):
    batches = micro_batches(spark, tmp_path, kind(server.url, is_shared=is_shared))

    rows = sorted((row.id, row.doubled) for batch in batches for row in batch)
    assert rows == [(i, 2 * i) for i in range(FILES * ROWS)]
    assert len(batches) == FILES
    workers = {row.pid for batch in batches for row in batch}
    assert server.connections == (len(workers) if is_shared else FILES)
