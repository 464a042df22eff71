# SPDX-License-Identifier: Apache-2.0
"""The usual recipe, as people write it today: ``mapInArrow``, and `asyncio.gather` within a batch.

Each batch waits for its slowest call before the next one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa

__all__ = ["recipe"]


def recipe(
    function: Callable[[Any], Awaitable[dict[str, Any]]], schema: pa.Schema, concurrency: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow`` that adds what `function` returns to each row.

    Args:
        function: Called for each row.
        schema: The columns that come out.
        concurrency: Calls in flight.
    """

    async def enrich_row(semaphore: asyncio.Semaphore, row: dict[str, Any]) -> dict[str, Any]:
        async with semaphore:
            result = await function(row)
        return {**row, **result}

    async def enrich_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        semaphore = asyncio.Semaphore(concurrency)
        rows = await asyncio.gather(*(enrich_row(semaphore, row) for row in batch.to_pylist()))
        return pa.RecordBatch.from_pylist(rows, schema=schema)

    def enrich(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield asyncio.run(enrich_batch(batch))

    return enrich
