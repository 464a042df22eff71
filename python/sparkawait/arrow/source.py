# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What the wait functions over Arrow take as input: batches, and what is known of their schema.

Read by one thread at a time: by the caller's until the task runs, and then by its feeder.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, cast

import pyarrow as pa

from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["Source"]


class Source(Iterator[Any]):
    """Batches of one schema.

    Args:
        batches: The batches.
        schema: Their schema, if it is known before there are any.
    """

    def __init__(self, batches: Iterator[Any], schema: pa.Schema | None = None) -> None:
        """Reads nothing yet."""
        self._batches = batches
        self._schema = schema
        self._seen: list[Any] = []

    @staticmethod
    def of(batches: object) -> Source:
        """Makes one of what the user gave as input.

        Raises:
            ConfigurationError: If it is no Arrow stream and cannot be iterated over.
        """
        if isinstance(batches, pa.RecordBatch):
            return Source(iter([batches]), batches.schema)
        # Those of PyArrow itself as they are: on the way through the C interface the lengths of
        # buffers are lost, by which offsets that are missing are found.
        if isinstance(batches, pa.RecordBatchReader):
            return Source(iter(batches), batches.schema)
        if isinstance(batches, pa.Table):
            return Source(iter(batches.to_batches()), batches.schema)
        if hasattr(batches, "__arrow_c_stream__"):
            reader = _reader(batches)
            return Source(iter(reader), reader.schema)
        if isinstance(batches, AsyncIterable):
            return Source(_AsyncBatches(cast("AsyncIterable[Any]", batches)))
        if isinstance(batches, Iterable):
            return Source(iter(cast("Iterable[Any]", batches)))
        msg = (
            "`batches` must be an iterable of record batches or an Arrow stream,"
            f" got `{type(batches).__name__}`"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)

    def __next__(self) -> Any:
        if self._seen:
            return self._seen.pop()
        batch = next(self._batches)
        if self._schema is None:
            self._schema = getattr(batch, "schema", None)
        return batch

    def schema(self) -> pa.Schema | None:
        """Returns the schema, of the first batch if nothing says it before; `None` without one."""
        if self._schema is None:
            first = next(self, None)
            if first is not None:
                self._seen.append(first)
        return self._schema

    def read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has asynchronous input read on the loop that it belongs to."""
        if isinstance(self._batches, _AsyncBatches):
            self._batches.loop = loop

    def close(self) -> None:
        """Gives up what is being waited for."""
        if isinstance(self._batches, _AsyncBatches):
            self._batches.close()


class _AsyncBatches(Iterator[Any]):
    """The batches of an asynchronous iterator, for a thread that may wait for them."""

    def __init__(self, batches: AsyncIterable[Any]) -> None:
        """Reads nothing yet."""
        self._batches: AsyncIterator[Any] = aiter(batches)
        self._next: Future[Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def __next__(self) -> Any:
        if self.loop is None:
            msg = (
                "`batches` is an asynchronous iterator, which is read on your event loop; take the"
                " output there, too: `async for batch in sparkawait.arrow.ordered_wait(..)`"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        self._next = asyncio.run_coroutine_threadsafe(_next_of(self._batches), self.loop)
        try:
            found = self._next.result()
        except CancelledError:  # nobody takes the output any more
            found = None
        if found is None:
            raise StopIteration
        return found[0]

    def close(self) -> None:
        if self._next is not None:
            self._next.cancel()


async def _next_of(batches: AsyncIterator[Any]) -> tuple[Any] | None:
    """Returns the next batch, or `None` behind the last: no future may have a StopIteration."""
    async for batch in batches:
        return (batch,)
    return None


def _reader(stream: Any) -> pa.RecordBatchReader:
    if not hasattr(pa.RecordBatchReader, "from_stream"):  # PyArrow 14
        return pa.RecordBatchReader._import_from_c_capsule(stream.__arrow_c_stream__())  # noqa: SLF001
    return pa.RecordBatchReader.from_stream(stream)
