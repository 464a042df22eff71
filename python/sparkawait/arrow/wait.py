# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The wait functions over Arrow record batches."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, cast

import pyarrow as pa

from sparkawait._checks import warn_once
from sparkawait._option import documented
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker.event_loop import check_may_wait
from sparkawait._worker.feeder import KNOWN, RecordBatches, opened
from sparkawait._worker.metrics import SumsOfTasks, TaskMetrics, by_call
from sparkawait.arrow.task import run
from sparkawait.exceptions import AsyncIOError, ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunctionsLike
from sparkawait.metrics import Metrics, sums_of
from sparkawait.options import OPTIONS, WaitArguments, WaitOptions, of_call

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "ArrowInput",
    "ArrowStream",
    "Batches",
    "Source",
    "key_ordered_wait",
    "ordered_wait",
    "unordered_wait",
]

# -- what a wait function over Arrow returns: `Batches`, an iterator that is an Arrow stream, too
#
# Used by one thread at a time, the caller's or that of an asynchronous iteration.


# -- what the wait functions over Arrow take as input: batches, and what is known of their schema.
#
# Read by one thread at a time: by the caller's until the task runs, and then by its feeder.


class Source(RecordBatches):
    """What a wait function got as input."""

    def __init__(self, elements: Iterator[Any], schema: pa.Schema | None = None) -> None:
        """Reads nothing yet."""
        super().__init__(elements, schema)
        self._seen: list[pa.RecordBatch] = []

    @staticmethod
    def of(batches: object) -> Source:
        """Makes one of what the user gave as input.

        Raises:
            ConfigurationError: If it has no rows that are known, and cannot be iterated over.
        """
        if (found := opened(batches)) is not None:
            return Source(*found)
        if isinstance(batches, AsyncIterable):
            return Source(_AsyncBatches(cast("AsyncIterable[Any]", batches)))
        if isinstance(batches, Iterable):
            return Source(iter(cast("Iterable[Any]", batches)))
        msg = f"`batches` must hold {KNOWN}, got `{type(batches).__name__}`"
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)

    def __next__(self) -> pa.RecordBatch:
        """Returns the next batch."""
        return self._seen.pop() if self._seen else super().__next__()

    def schema(self) -> pa.Schema | None:
        """Returns the schema, of the first batch if nothing says it before; `None` without one."""
        if self._schema is None:
            first = next(self, None)
            if first is not None:
                self._seen.append(first)
        return self._schema

    def read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has asynchronous input read on the loop that it belongs to."""
        if isinstance(self._elements, _AsyncBatches):
            self._elements.loop = loop

    def close(self) -> None:
        """Gives up what is being waited for."""
        if isinstance(self._elements, _AsyncBatches):
            self._elements.close()


class _AsyncBatches(Iterator[Any]):
    """The batches of an asynchronous iterator, for a thread that may wait for them."""

    def __init__(self, batches: AsyncIterable[Any]) -> None:
        """Reads nothing yet."""
        self._batches: AsyncIterator[Any] = aiter(batches)
        self._next: Future[Any] | None = None
        self._is_closed = False
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
        self._is_closed = True
        if self._next is not None:
            self._next.cancel()


async def _next_of(batches: AsyncIterator[Any]) -> tuple[Any] | None:
    """Returns the next batch, or `None` behind the last: no future may have a StopIteration."""
    async for batch in batches:
        return (batch,)
    return None


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
        self._is_watched = False
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
        if not self._is_watched:
            self._is_watched = True
            _tell_of_a_loop(self._chain)
        try:
            return next(self._output)
        except BaseException:
            self._is_over = True
            raise

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """Reads the batches in a thread of its own, so that the caller's event loop goes on.

        Nothing is read, and it may be read in another way, before the first batch is asked for.

        Raises:
            ConfigurationError: From the iterator, if batches were read before.
        """
        return self._each()

    async def _each(self) -> AsyncIterator[pa.RecordBatch]:
        self._check_unbegun("be iterated over asynchronously")
        self._is_over = True
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
            msg = (
                "the input has no batch, so nobody knows its columns; give a table or a"
                " `pyarrow.RecordBatchReader.from_batches(schema, batches)`"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        return self._chain.output_schema(schema)

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


def _taken_over() -> Generator[pa.RecordBatch, None, None]:
    """Is begun when it is made, and has no batch."""
    yield pa.RecordBatch.from_pylist([])
    msg = "these batches go to the operator that was chained to them; read its output instead"
    raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


# -- the wait functions


class ArrowStream(Protocol):
    """What has ``__arrow_c_stream__``."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns the stream."""
        ...


Rows: TypeAlias = ArrowStream | pa.RecordBatch | Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""Things that have rows of named columns."""
ArrowInput: TypeAlias = Rows | Iterable[Rows] | AsyncIterable[Rows]
"""What the wait functions over Arrow take."""


@documented(OPTIONS, WaitArguments)
def ordered_wait(
    batches: ArrowInput,
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Batches:
    """Calls `function` for every row; the output has the order of the input.

    Args:
        batches: What has ``__arrow_c_stream__``, such as a PyArrow table or a polars DataFrame; a
            list of dicts, one for each row; or a dict with a list for each column. Or an iterable
            of these and of record batches, all of one schema, which is pulled lazily and ahead of
            need. An asynchronous one is for an ``async for`` over the output.
        function: An ``async def``, or a plain function, which is called in threads, decorated with
            `sparkawait.async_function` or with ``schema=`` given here; an `AsyncFunction` or a
            native function; or a list of several, which are called for a row side by side.
        chain: Whether this call joins the task of the call that returned `batches`: one thread
            drives both operators, and this one begins with the first row that the other completes.
        metrics: Adds up what this and other calls count, while they run and after they ended:
            `sparkawait.Metrics`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.

    Returns:
        An iterator of non-empty batches, whose row counts do not follow those of the input, and an
        Arrow stream: ``polars.DataFrame(out)``, ``out.to_table()`` and others, see `Batches`.

    Raises:
        ConfigurationError: At once if an argument is wrong; from the iterator if it does not go
            with the input.
        AsyncFunctionError: From the iterator, if a row failed on its last attempt and `on_error`
            is ``"fail"``. Rows that completed before it have been emitted.
        ResultError: The same, if what the function returned does not fit its schema.
        OperatorStateError: On the event loop that runs the functions, in a coroutine or `open`.
    """
    return _wait("ordered", batches, function, options, given, chain=chain, metrics=metrics)


@documented(OPTIONS, WaitArguments)
def unordered_wait(
    batches: ArrowInput,
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Batches:
    """Calls `function` for every row; rows are emitted as they complete.

    With ``watermark=`` rows between two watermarks may overtake one another, and no row crosses a
    watermark. Result and exceptions are those of `ordered_wait`.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        chain: As in `ordered_wait`.
        metrics: As in `ordered_wait`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait("unordered", batches, function, options, given, chain=chain, metrics=metrics)


@documented(OPTIONS, WaitArguments)
def key_ordered_wait(
    batches: ArrowInput,
    function: AsyncFunctionsLike,
    *,
    key: str | Sequence[str],
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Batches:
    """Calls `function` for every row, one at a time per key; each key keeps its order.

    Rows with a null key have no order among themselves. Result and exceptions are those of
    `ordered_wait`; `timeout` includes the wait for the key.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        key: Column, or columns, of the key.
        chain: As in `ordered_wait`.
        metrics: As in `ordered_wait`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait(
        "key_ordered", batches, function, options, given, chain=chain, metrics=metrics, key=key
    )


def _wait(
    mode: str,
    batches: object,
    function: object,
    options: WaitOptions | None,
    given: Mapping[str, Any],
    *,
    chain: bool,
    metrics: Metrics | None,
    key: object = None,
) -> Batches:
    check_may_wait()
    sums = sums_of(metrics)
    before, source, summed = _taken(batches) if chain else (None, Source.of(batches), ())
    plan = resolve_unpickled(
        mode,
        function,
        input_schema=None,
        key=key,
        # It takes other things by name, too, which are not options.
        options=of_call(options, given),
        taken=() if before is None else before.names,
    )
    if plan.options.carry_over is not None:
        msg = (
            "`carry_over` is for streaming DataFrames, whose input comes in micro-batches; an"
            " iterator ends when all rows have left, so leave it out"
        )
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    calls = Chain.of(plan) if before is None else before.then(plan)
    return Batches(calls, source, (*summed, sums))


def _taken(batches: object) -> tuple[Chain, Source, Sequence[SumsOfTasks | None]]:
    """Returns the operators that make `batches`, their input and what they add their counts to."""
    if not isinstance(batches, Batches):
        msg = (
            "`chain` needs what a wait function of sparkawait.arrow returned, untouched, got"
            f" `{type(batches).__name__}`; leave `chain` out"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    return batches.take_over()
