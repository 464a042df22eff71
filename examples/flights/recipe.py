# SPDX-License-Identifier: Apache-2.0
"""The usual recipe, as people write it today: ``mapInArrow``, and asyncio within each batch.

Each batch waits for its slowest call before the next one begins, and is in memory as Python objects
meanwhile. Runs in the executors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pyarrow as pa

_ATTEMPTS = 6
_BACKOFF_SECONDS = 0.05
_NOT_FOUND = 404


@dataclass(frozen=True)
class Recipe:
    """A function for ``mapInArrow``.

    Attributes:
        url: The service.
        schema: The columns that come out.
        concurrency: Rows in work at a time, each with two calls in flight.
    """

    url: str
    schema: pa.Schema
    concurrency: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields one enriched batch for each of `batches`."""
        for batch in batches:
            yield asyncio.run(self.enrich_batch(batch))

    async def enrich_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Enriches the rows of `batch`, up to `concurrency` at a time."""
        semaphore = asyncio.Semaphore(self.concurrency)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(f"{self.url}/", connector=connector) as session:
            rows = [self.enrich_row(session, semaphore, row) for row in batch.to_pylist()]
            return pa.RecordBatch.from_pylist(await asyncio.gather(*rows), schema=self.schema)

    async def enrich_row(
        self, session: aiohttp.ClientSession, semaphore: asyncio.Semaphore, row: dict[str, Any]
    ) -> dict[str, Any]:
        """Looks up both things at the same time."""
        async with semaphore:
            weather, aircraft = await asyncio.gather(
                get(session, "weather", f"{row['origin']}/{row['time_hour']}"),
                get(session, "aircraft", row["tailnum"]),
            )
        return {**row, **weather, **aircraft}


async def get(session: aiohttp.ClientSession, table: str, key: str | None) -> dict[str, Any]:
    """GETs a JSON object, a few times if need be; an unknown key gives nothing."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return await get_once(session, table, key)
        except aiohttp.ClientError:
            await asyncio.sleep(_BACKOFF_SECONDS * 2**attempt)
    return await get_once(session, table, key)


async def get_once(session: aiohttp.ClientSession, table: str, key: str | None) -> dict[str, Any]:
    """GETs a JSON object, or nothing."""
    if key is None:
        return {}
    async with session.get(f"{table}/{key}") as response:
        if response.status == _NOT_FOUND:
            return {}
        response.raise_for_status()
        return await response.json()
