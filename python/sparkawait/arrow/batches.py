# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What a wait function over Arrow returns: `Batches`, an iterator that is an Arrow stream, too.

Used by one thread at a time, the caller's or that of an asynchronous iteration.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, cast

import pyarrow as pa

from sparkawait._plan.chain import Chain
from sparkawait._worker.metrics import SumsOfTasks, TaskMetrics, by_call
from sparkawait.arrow.task import run
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["Batches", "Source"]


# -- what the wait functions over Arrow take as input: batches, and what is known of their schema.
#
# Read by one thread at a time: by the caller's until the task runs, and then by its feeder.


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
            ConfigurationError: If it is not an Arrow stream and cannot be iterated over.
        """
        if isinstance(batches, pa.RecordBatch):
            return Source(iter([batches]), batches.schema)
        # Those of PyArrow itself as they are: on the way through the C interface the lengths of
        # buffers are lost, and those tell of offsets that are missing.
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


_LOOK_SECONDS = 0.1
"""How long an asynchronous iteration that was cancelled goes on waiting for a batch at most."""


class Batches(Iterator[pa.RecordBatch]):
    """The output of a wait function of `sparkawait.arrow`: made while it is read, and read once.

    It is whatever its reader wants: an iterator of record batches, ``async for`` on any event loop,
    and an Arrow stream, so that ``polars.DataFrame(out)``, ``pyarrow.table(out)``,
    ``duckdb.from_arrow(out.to_reader())`` and ``pandas.DataFrame.from_arrow(out)`` read it. Nothing
    is called before the first batch is asked for, and calls go on while it is read.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait as sa
        >>> @sa.async_function("square long")
        ... async def square(row):
        ...     return {"square": row["id"] ** 2}
        >>> out = sa.arrow.ordered_wait(pa.table({"id": [3, 7]}), square)
        >>> out.schema.names
        ['id', 'square']
        >>> out.to_table().column("square").to_pylist()
        [9, 49]
    """

    def __init__(self, chain: Chain, source: Source, sums: Sequence[SumsOfTasks | None]) -> None:
        """Starts nothing before the first batch is asked for; each call has sums, or none."""
        self._totals: TaskMetrics = {}
        self._chain = chain
        self._source = source
        self._sums = tuple(sums)
        self._is_over = False
        self._output = self._run(None)

    def _run(self, heartbeat: float | None) -> Generator[pa.RecordBatch, None, None]:
        # Not `self`, which the generator would hold: one that nobody holds any more ends the task.
        return _counted(self._chain, self._source, heartbeat, self._totals, self._sums)

    @property
    def metrics(self) -> TaskMetrics:
        """The counters so far, by name: see ``docs/metrics.md``. Empty before the task runs."""
        return dict(self._totals)

    # --- as an iterator ---

    def __iter__(self) -> Batches:
        """Returns itself, as long as there may be batches.

        Raises:
            ConfigurationError: If all were read: a second look would find no row.
        """
        self._check_unread()
        return self

    def __next__(self) -> pa.RecordBatch:
        """Returns the next batch, which has rows."""
        try:
            return next(self._output)
        except BaseException:
            self._is_over = True
            raise

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """Reads the batches in a thread of its own, so that the caller's event loop goes on.

        Raises:
            ConfigurationError: If batches were read before.
        """
        self._check_unbegun("be iterated over asynchronously")
        self._is_over = True
        return self._each()

    async def _each(self) -> AsyncIterator[pa.RecordBatch]:
        # A wait for a batch cannot be cancelled, so it ends by itself now and then.
        output = self._run(_LOOK_SECONDS)
        loop = asyncio.get_running_loop()
        self._source.read_on(loop)
        thread = ThreadPoolExecutor(1, "sparkawait-batches")
        try:
            while (batch := await loop.run_in_executor(thread, next, output, None)) is not None:
                if batch.num_rows:
                    yield batch
        finally:
            self._source.close()
            # Behind a wait that still goes on. Nobody waits here: that could be cancelled, too.
            thread.submit(output.close)
            thread.shutdown(wait=False)

    # --- as an Arrow stream ---

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches. Reads the first input batch, if nothing else says its schema.

        Raises:
            ConfigurationError: If there is no input batch and nothing says what columns it would
                have, or an option does not go with the input.
        """
        schema = self._source.schema()
        if schema is None:
            if any(plan.options.output == "append" for plan in self._chain.plans):
                msg = (
                    "the input has no batch, so nobody knows its columns; give a table or a"
                    " `pyarrow.RecordBatchReader.from_batches(schema, batches)`"
                )
                raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
            schema = pa.schema([])
        for plan in self._chain.plans:
            schema = plan.output_schema(schema)
        return schema

    def to_table(self) -> pa.Table:
        """Reads all batches into a table; without a row, it has the columns all the same.

        Raises:
            ConfigurationError: As `schema`, or if batches were read before.
            AsyncIOError: As from the iterator.
        """
        self._check_unbegun("become a table")
        schema = self.schema
        return pa.Table.from_batches(list(self), schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns a reader of the batches, for libraries that take PyArrow's own.

        Raises:
            ConfigurationError: As `to_table`.
        """
        self._check_unbegun("become a stream")
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the batches as a stream of Arrow's C interface.

        Raises:
            ConfigurationError: As `to_table`.
        """
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Ends the task, if it runs; calls in flight are cancelled."""
        self._is_over = True
        self._output.close()

    # --- chains ---

    def take_over(self) -> tuple[Chain, Source, Sequence[SumsOfTasks | None]]:
        """Returns operators, input and sums, for a task that has further operators.

        Raises:
            ConfigurationError: If batches were asked for, or another task has taken them over.
        """
        if self._has_begun():
            msg = (
                "`chain` needs what a wait function returned before batches are taken from it;"
                " leave `chain` out for the rest of them"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        self._output = _taken_over()
        next(self._output, None)
        return self._chain, self._source, self._sums

    def _has_begun(self) -> bool:
        return self._is_over or inspect.getgeneratorstate(self._output) != inspect.GEN_CREATED

    def _check_unbegun(self, what: str) -> None:
        if self._has_begun():
            msg = (
                f"the output of a wait function is read once, and cannot {what} any more: batches"
                " were taken from it; call the wait function again, or keep a table of it"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)

    def _check_unread(self) -> None:
        if self._is_over:
            msg = (
                "the output of a wait function is read once, and all of it was read; call the wait"
                " function again, or keep it: `table = out.to_table()`"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _counted(
    chain: Chain,
    source: Source,
    heartbeat: float | None,
    totals: TaskMetrics,
    sums: Sequence[SumsOfTasks | None],
) -> Generator[pa.RecordBatch, None, None]:
    """Runs the task; `totals` gets what it has counted, and the sums get that of each call."""
    # One object may be the sums of several calls.
    adding = [(at, it, object()) for at, it in enumerate(sums) if it is not None]

    def report(counts: TaskMetrics) -> None:
        totals.update(counts)
        own = by_call(chain, totals) if adding else []
        for at, it, call in adding:
            it.report(call, own[at])

    has_failed = False
    try:
        yield from run(chain, source, heartbeat=heartbeat, on_metrics=report)
    except Exception:
        has_failed = True
        raise
    finally:
        own = by_call(chain, totals) if adding else []
        for at, it, call in adding:
            it.end(call, own[at], has_failed=has_failed)


def _taken_over() -> Generator[pa.RecordBatch, None, None]:
    """Is begun when it is made, and has no batch."""
    yield pa.RecordBatch.from_pylist([])
    msg = "these batches go to the operator that was chained to them; read its output instead"
    raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
