# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What a wait function over Arrow reads, and what it returns: an input, a task and its one reader.

`Batches` is what users have. An `_Output` is the task behind it, however it is read; a `Source` is
its input, which the feeder's thread reads from the first element to the last.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pyarrow as pa

from sparkawait._checks import warn_once
from sparkawait._plan.plan import Chain
from sparkawait._worker.feeder import KNOWN, Feeder, RecordBatches, opened
from sparkawait._worker.instances import own_instances
from sparkawait._worker.metrics import SumsOfTasks, TaskMetrics, by_call
from sparkawait.arrow.task import run
from sparkawait.exceptions import (
    AsyncIOError,
    ConfigurationError,
    ErrorKind,
    OperatorStateError,
)

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Batches", "Source"]


class Source:
    """What a wait function got as input, and the feeder that reads it: nothing before it is asked.

    Args:
        elements: What has rows, see `sparkawait._worker.feeder.opened`; all of one schema.
        schema: Returns the schema, if it is known before there is an element.
    """

    def __init__(
        self, elements: Iterator[Any], schema: Callable[[], pa.Schema | None] = lambda: None
    ) -> None:
        """Reads nothing yet."""
        self._elements = elements
        self._schema = schema
        self._batches = RecordBatches(elements)
        self.feeder = Feeder(self._batches)

    @staticmethod
    def of(batches: object) -> Source:
        """Makes one of what the user gave as input.

        Raises:
            ConfigurationError: If it has no rows that are known, and cannot be iterated over; or if
                it is the output of a wait function that is read already.
        """
        if isinstance(batches, Batches):
            return batches.as_source()
        if (found := opened(batches)) is not None:
            elements, schema = found
            return Source(elements, lambda: schema)
        if isinstance(batches, AsyncIterable):
            return Source(_AsyncBatches(cast("AsyncIterable[Any]", batches)))
        if isinstance(batches, Iterable):
            return Source(iter(cast("Iterable[Any]", batches)))
        msg = f"`batches` must hold {KNOWN}, got `{type(batches).__name__}`"
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)

    def schema(self) -> pa.Schema | None:
        """Returns the schema, of the first batch if nothing says it before; `None` without one."""
        known = self._batches.schema or self._schema()
        if known is None:
            self.check_loop()
            self.feeder.first()
        return known or self._batches.schema

    def read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has asynchronous input read on the loop that it belongs to, in the caller's context."""
        if isinstance(self._elements, (_AsyncBatches, _Output)):
            self._elements.read_on(loop)

    def check_loop(self) -> None:
        """Refuses asynchronous input that nobody reads on its loop.

        Raises:
            ConfigurationError: As said.
        """
        if isinstance(self._elements, (_AsyncBatches, _Output)):
            self._elements.check_loop()

    def close(self) -> None:
        """Gives up what is being waited for, and what makes the input, as far as it is ours."""
        self.feeder.close()
        if isinstance(self._elements, (_AsyncBatches, _Output)):
            self._elements.close()

    def __del__(self) -> None:
        self.close()


class _AsyncBatches(Iterator[Any]):
    """The batches of an asynchronous iterator, for a thread that may wait for them.

    One task of the reader's loop runs its ``async for`` from the first batch to the last, so that
    time limits, task groups and context variables hold in it. Were each step a task of its own, a
    scope would be left in another task than the one that entered it.
    """

    def __init__(self, batches: AsyncIterable[Any]) -> None:
        """Reads nothing yet."""
        self._batches = batches
        self._asked: asyncio.Queue[Future[tuple[Any] | None]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = copy_context()

    def read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has it read on `loop`, in the caller's context."""
        self._loop = loop
        self._context = copy_context()

    def check_loop(self) -> None:
        """Refuses to be read without a loop."""
        if self._loop is None:
            msg = (
                "`batches` is an asynchronous iterator, which is read on your event loop; take the"
                " output there, too: `async for batch in sparkawait.arrow.ordered_wait(..)`"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)

    def __next__(self) -> Any:
        self.check_loop()
        loop = cast("asyncio.AbstractEventLoop", self._loop)
        asked: Future[tuple[Any] | None] = Future()
        loop.call_soon_threadsafe(self._ask, asked)
        try:
            found = asked.result()
        except CancelledError as error:
            if not self._is_closed:
                # Not the end of the input: rows would be missing, and nobody would know.
                msg = (
                    "`batches` let a cancellation out, so its further rows are not known; catch"
                    " `asyncio.CancelledError` where it awaits what others may cancel"
                )
                raise AsyncIOError(msg, ErrorKind.INPUT_INVALID) from error
            found = None
        if found is None:
            raise StopIteration
        return found[0]

    def close(self) -> None:
        """Gives up: nobody takes the output any more."""
        # A second cancellation would end what the input does as it is closed.
        if self._is_closed:
            return
        self._is_closed = True
        if self._loop is not None:
            # Of a loop that is closed, nothing runs any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ask(self, asked: Future[tuple[Any] | None]) -> None:
        if self._is_closed or (self._task is not None and self._task.done()):
            asked.cancel()
            return
        if self._asked is None:
            self._asked = asyncio.Queue()
            loop = cast("asyncio.AbstractEventLoop", self._loop)
            self._task = self._context.run(loop.create_task, self._read(self._asked))
        self._asked.put_nowait(asked)

    async def _read(self, asked: asyncio.Queue[Future[tuple[Any] | None]]) -> None:
        waiting: Future[tuple[Any] | None] | None = await asked.get()
        batches = aiter(self._batches)
        try:
            async for batch in batches:
                waiting, answered = None, waiting
                answered.set_result((batch,))
                waiting = await asked.get()
            waiting.set_result(None)
            waiting = None
        except Exception as error:
            if waiting is None:
                raise
            waiting.set_exception(error)
            waiting = None
        finally:
            while waiting is not None or not asked.empty():
                (waiting or asked.get_nowait()).cancel()
                waiting = None
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()


_LOOK_SECONDS = 0.1
"""How long a look for a batch takes at most: nothing else can end the wait of another thread."""
_NOTHING = pa.RecordBatch.from_pylist([])

_WAYS = {
    "iterator": "batches were taken from it",
    "table": "it became a table",
    "stream": "a reader of it was made",
    "async": "an `async for` reads it",
    "input": "it is the input of another wait function",
    "chain": "these batches go to the operator that was chained to them; read its output instead",
}
"""How an output is read, and what is said to who would read it in another way, too."""
_ENDS = {
    "read": "all of it was read",
    "failed": "it has failed",
    "closed": "it was closed",
}
"""How an output has ended, which is said first."""


class _Output(Iterator[pa.RecordBatch]):
    """The one task behind a `Batches`, in whatever way it is read.

    One thread at a time takes batches. Any may close it.
    """

    def __init__(
        self,
        chain: Chain,
        source: Source,
        totals: TaskMetrics,
        sums: Sequence[SumsOfTasks | None],
    ) -> None:
        """Starts nothing."""
        self.chain = chain
        self.source = source
        self.sums = tuple(sums)
        self.way = ""
        self._totals = totals
        self._task: Generator[pa.RecordBatch, None, None] | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._end = ""

    def begin(self, way: str, what: str) -> None:
        """Lets one of `_WAYS` read it; `what` is what an output that is read already cannot do.

        Raises:
            ConfigurationError: If it is read in a way, or has ended.
        """
        if self.way or self._end:
            self.refuse(f"cannot {what} any more")
        self.way = way

    def refuse(self, what: str) -> NoReturn:
        """Raises what a second reader is told."""
        why = _ENDS.get(self._end) or _WAYS[self.way]
        msg = (
            f"the output of a wait function is read once, and {what}: {why}; call the wait function"
            " again, or keep it: `table = out.to_table()`"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)

    @property
    def end(self) -> str:
        """One of `_ENDS`, or nothing as long as there may be batches."""
        return self._end

    def read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """As that of `Source`."""
        self.source.read_on(loop)

    def check_loop(self) -> None:
        """As that of `Source`."""
        self.source.check_loop()

    def __next__(self) -> pa.RecordBatch:
        while (batch := self.look()) is not None:
            if batch.num_rows:
                return batch
        raise StopIteration

    def look(self) -> pa.RecordBatch | None:
        """Returns a batch, one without rows if there was none for a while, `None` behind the last.

        Raises:
            OperatorStateError: If it was closed, so that nobody takes a part for all of it; or if
                another thread takes a batch at this moment.
        """
        if self._is_closed and self._end in ("", "closed"):
            msg = "the output was closed before all of its batches were taken; stop reading it"
            raise OperatorStateError(msg, ErrorKind.OPERATOR_CLOSED)
        if not self._lock.acquire(blocking=False):
            msg = "another thread waits for a batch of this output; let one at a time take them"
            raise OperatorStateError(msg, ErrorKind.INPUT_INVALID)
        try:
            return None if self._end else self._taken()
        finally:
            self._lock.release()
            if self._is_closed:
                self._close_task()

    def _taken(self) -> pa.RecordBatch | None:
        try:
            if self._task is None:
                self.source.check_loop()
                if not self.source.feeder.begin(_LOOK_SECONDS):
                    return _NOTHING
                self._task = _counted(self.chain, self.source, self._totals, self.sums)
            batch = next(self._task, None)
        except BaseException:
            self._end = "failed"
            raise
        if batch is None:
            self._end = "read"
        return batch

    def close(self) -> None:
        """Ends the task, at once or, where another thread waits for a batch, at its next look."""
        if self.way == "chain":  # Its input is that of another one now.
            return
        self._is_closed = True
        self.source.close()
        self._close_task()

    def _close_task(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._end = self._end or "closed"
                if self._task is not None:
                    self._task.close()
            finally:
                self._lock.release()


class _Reading(AsyncIterator[pa.RecordBatch]):
    """An ``async for`` over an output, which a thread of its own waits for.

    A wait that is cancelled ends the calls: nobody knows whether another one follows, and they may
    be paid for. No asynchronous generator, whose next batch would then be the end of the output.
    """

    def __init__(self, output: _Output) -> None:
        """Starts nothing."""
        self._output = output
        self._thread: ThreadPoolExecutor | None = None
        self._is_waited_for = False
        self._has_ended = False
        self._was_cancelled = False

    def __aiter__(self) -> Self:
        """Returns itself."""
        return self

    async def __anext__(self) -> pa.RecordBatch:
        """Returns the next batch, which has rows."""
        if self._was_cancelled:
            msg = (
                "a wait for a batch of this output was cancelled, which has ended its calls; wait"
                " by `asyncio.wait({task}, timeout=..)`, which leaves the task to go on"
            )
            raise OperatorStateError(msg, ErrorKind.OPERATOR_CLOSED)
        if self._has_ended:
            raise StopAsyncIteration
        if self._is_waited_for:
            msg = "another task waits for a batch of this output; let one at a time take them"
            raise OperatorStateError(msg, ErrorKind.INPUT_INVALID)
        if self._thread is None:
            self._output.begin("async", "be iterated over asynchronously")
            self._output.read_on(asyncio.get_running_loop())
            self._thread = ThreadPoolExecutor(1, "sparkawait-batches")
        self._is_waited_for = True
        batch = None
        try:
            batch = await self._next(self._thread)
        except asyncio.CancelledError:
            self._was_cancelled = True
            raise
        finally:
            self._is_waited_for = False
            if batch is None:
                self._end()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def _next(self, thread: ThreadPoolExecutor) -> pa.RecordBatch | None:
        loop = asyncio.get_running_loop()
        # A look of the thread cannot be cancelled, so it ends by itself now and then.
        while (batch := await loop.run_in_executor(thread, self._output.look)) is not None:
            if batch.num_rows:
                return batch
        return None

    async def aclose(self) -> None:
        """Ends the task; calls in flight are cancelled."""
        self._end()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None or self._has_ended:
            return
        self._has_ended = True
        self._output.source.close()
        # Behind a look that still goes on. Nobody waits here: it is the thread of an event loop.
        try:
            thread.submit(self._output.close)
        except RuntimeError:  # The interpreter is about to end.
            self._output.close()
        thread.shutdown(wait=False)

    def __del__(self) -> None:
        self._end()


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
        self._output = _Output(chain, source, self._totals, sums)

    @property
    def metrics(self) -> TaskMetrics:
        """The counters so far, by name: see ``docs/metrics.md``. Empty before the task runs."""
        return dict(self._totals)

    # --- as an iterator ---

    def __iter__(self) -> Batches:
        """Returns itself, as long as there may be batches.

        Raises:
            ConfigurationError: If all were read, or it is read in another way: a second look would
                find no row.
        """
        if self._output.end or self._output.way not in ("", "iterator"):
            self._output.refuse("cannot be iterated over any more")
        return self

    def __next__(self) -> pa.RecordBatch:
        """Returns the next batch, which has rows.

        Raises:
            ConfigurationError: If it is read in another way.
            OperatorStateError: If it was closed, or another thread waits for a batch.
        """
        if not self._output.way and not self._output.end:
            self._output.begin("iterator", "be iterated over")
            _tell_of_a_loop(self._output.chain)
        elif self._output.way not in ("", "iterator") and self._output.end != "read":
            self._output.refuse("cannot be iterated over any more")
        return next(self._output)

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """Reads the batches in a thread of its own, so that the caller's event loop goes on.

        Nothing is read, and it may be read in another way, before the first batch is asked for. A
        wait for a batch that is cancelled, as by ``asyncio.wait_for``, ends the calls, and who asks
        for the next one is told so; ``asyncio.wait`` leaves it alone.

        Raises:
            ConfigurationError: From the iterator, if it was read before.
        """
        return _Reading(self._output)

    # --- as an Arrow stream ---

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches. Reads the first input batch, if nothing else says its schema.

        Raises:
            ConfigurationError: If there is no input batch and nothing says what columns it would
                have, or an option does not go with the input.
        """
        schema = self._output.source.schema()
        if schema is None:
            msg = (
                "the input has no batch, so nobody knows its columns; give a table or a"
                " `pyarrow.RecordBatchReader.from_batches(schema, batches)`"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        return self._output.chain.output_schema(schema)

    def to_table(self) -> pa.Table:
        """Reads all batches into a table; without a row, it has the columns all the same.

        Raises:
            ConfigurationError: As `schema`, or if batches were read before.
            AsyncIOError: As from the iterator.
        """
        self._output.begin("table", "become a table")
        _tell_of_a_loop(self._output.chain)
        schema = self.schema
        return pa.Table.from_batches(list(self._output), schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns a reader of the batches, for libraries that take PyArrow's own.

        Raises:
            ConfigurationError: As `to_table`.
        """
        self._output.begin("stream", "become a stream")
        return pa.RecordBatchReader.from_batches(self.schema, self._output)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Refuses to be an array, which NumPy and pandas' ``DataFrame(..)`` would make one cell of.

        Raises:
            ConfigurationError: Always.
        """
        msg = "results do not become an array; for pandas write `out.to_table().to_pandas()`"
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the batches as a stream of Arrow's C interface.

        Raises:
            ConfigurationError: As `to_table`.
        """
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Ends the task, if it runs; calls in flight are cancelled. From any thread.

        Who goes on reading gets an `OperatorStateError`, so that nobody takes a part for all of it.
        """
        self._output.close()

    # --- as what another call reads ---

    def as_source(self) -> Source:
        """Returns the output as the input of a task of its own.

        Raises:
            ConfigurationError: If it is read already.
        """
        self._output.begin("input", "be the input of a wait function")
        return Source(self._output, lambda: self.schema)

    def take_over(self) -> tuple[Chain, Source, Sequence[SumsOfTasks | None]]:
        """Returns operators, input and sums, for a task that has further operators.

        Raises:
            ConfigurationError: If batches were asked for, or another task has taken them over.
        """
        if self._output.way or self._output.end:
            msg = (
                "`chain` needs what a wait function returned before batches are taken from it;"
                " leave `chain` out for the rest of them"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        self._output.begin("chain", "be chained to")
        return self._output.chain, self._output.source, self._output.sums


def _counted(
    chain: Chain,
    source: Source,
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
        with own_instances(chain) as own_chain:
            yield from run(own_chain, source.feeder, heartbeat=_LOOK_SECONDS, on_metrics=report)
    except Exception:
        has_failed = True
        raise
    finally:
        source.close()
        own = by_call(chain, totals) if adding else []
        for at, it, call in adding:
            it.end(call, own[at], has_failed=has_failed)


def _tell_of_a_loop(chain: Chain) -> None:
    """Warns of a read that an event loop waits for; Jupyter's own has nothing else to do."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    kernel: Any = getattr(sys.modules.get("ipykernel.kernelapp"), "IPKernelApp", None)
    if kernel is not None and kernel.initialized():
        shell = kernel.instance().kernel
        if getattr(getattr(shell, "io_loop", None), "asyncio_loop", None) is loop:
            return
    warn_once(
        "the output of `%s` is read by a coroutine, and nothing else runs on its event loop"
        " meanwhile; write `async for batch in out`, or read it in a thread:"
        " `await asyncio.to_thread(out.to_table)`",
        chain.name,
    )
