# SPDX-License-Identifier: Apache-2.0
"""The wait functions over Arrow record batches, and the task that they and Spark run.

Four threads take part: a feeder pulls the input ahead of need, a thread of the task drives its
operators, the caller's thread takes the batches that they put out, and the process-wide event loop
thread runs the functions. When the output generator ends,
in whatever way, calls in flight are cancelled and the function is closed before control returns.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkawait._plan.chain import Chain
from sparkawait._plan.option import documented
from sparkawait._plan.options import resolve_unpickled
from sparkawait._plan.plan import Plan
from sparkawait._worker import address_space, retried, warm_up
from sparkawait._worker.collector import collecting_less_often
from sparkawait._worker.event_loop import check_may_wait
from sparkawait._worker.feeder import Feeder, record_batches
from sparkawait._worker.invalid_texts import with_texts
from sparkawait._worker.life_cycle import Functions
from sparkawait._worker.metrics import Metrics, metrics_of_call, metrics_of_chain
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.function_context import FunctionContext
from sparkawait.functions import AsyncFunctionsLike
from sparkawait.types import timestamps_of
from sparkawait.wait_options import OPTIONS, WaitArguments, WaitOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["key_ordered_wait", "ordered_wait", "run", "unordered_wait"]

_logger = logging.getLogger("sparkawait")

METRICS_SECONDS = 1.0
"""How often metrics are reported while a task runs."""


@documented(OPTIONS, WaitArguments)
def ordered_wait(
    batches: Iterable[pa.RecordBatch],
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Iterator[pa.RecordBatch]:
    """Calls `function` for every row; the output has the order of the input.

    Args:
        batches: Record batches of one schema, of any length, pulled lazily and ahead of need;
            or any object with ``__arrow_c_stream__``, such as a table.
        function: An ``async def``, decorated with `sparkawait.async_function` or with ``schema=``
            given here, an `AsyncFunction` or a native function; or a list of several, which are
            called for a row side by side.
        chain: Whether this call joins the task of the call that returned `batches`: one thread
            drives both operators, and this one begins with the first row that the other completes.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.

    Returns:
        An iterator of non-empty batches, whose row counts do not follow those of the input.

    Raises:
        ConfigurationError: At once if an argument is wrong; from the iterator if it does not go
            with the input.
        AsyncFunctionError: From the iterator, if a row failed on its last attempt and `on_error`
            is ``"fail"``. Rows that completed before it have been emitted.
        ResultError: The same, if what the function returned does not fit its schema.
        OperatorStateError: On the event loop that runs the functions, in a coroutine or `open`.
    """
    return _wait("ordered", batches, function, options, given, chain=chain)


@documented(OPTIONS, WaitArguments)
def unordered_wait(
    batches: Iterable[pa.RecordBatch],
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Iterator[pa.RecordBatch]:
    """Calls `function` for every row; rows are emitted as they complete.

    With ``watermark=`` rows between two watermarks may overtake one another, and no row crosses a
    watermark. Result and exceptions are those of `ordered_wait`.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        chain: As in `ordered_wait`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait("unordered", batches, function, options, given, chain=chain)


@documented(OPTIONS, WaitArguments)
def key_ordered_wait(
    batches: Iterable[pa.RecordBatch],
    function: AsyncFunctionsLike,
    *,
    key: str | Sequence[str],
    chain: bool = False,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Iterator[pa.RecordBatch]:
    """Calls `function` for every row, one at a time per key; each key keeps its order.

    Rows with a null key have no order among themselves. Result and exceptions are those of
    `ordered_wait`; `timeout` includes the wait for the key.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        chain: As in `ordered_wait`.
        key: Column, or columns, of the key.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait("key_ordered", batches, function, options, given, chain=chain, key=key)


def _wait(
    mode: str,
    batches: object,
    function: object,
    options: WaitOptions | None,
    given: Mapping[str, Any],
    *,
    chain: bool,
    key: object = None,
) -> Iterator[pa.RecordBatch]:
    check_may_wait()
    before, source = _taken(batches) if chain else (None, record_batches(batches))
    plan = resolve_unpickled(mode, function, input_schema=None, key=key, options=options, **given)
    # Here there is no session, whose settings could say otherwise.
    plan = plan.declaring(lambda one: timestamps_of(one.declared_schema))
    if plan.options.carry_over is not None:
        msg = (
            "`carry_over` is for streaming DataFrames, whose input comes in micro-batches; an"
            " iterator ends when all rows have left, so leave it out"
        )
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    return _Output(Chain.of(plan) if before is None else before.then(plan), source)


def _taken(batches: object) -> tuple[Chain, Iterator[pa.RecordBatch]]:
    """Returns the operators that make `batches`, and their input, which they are not to read."""
    if not isinstance(batches, _Output):
        msg = (
            "`chain` needs what a wait function of sparkawait.arrow returned, untouched, got"
            f" `{type(batches).__name__}`; leave `chain` out"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    return batches.take_over()


class _Output(Iterator[pa.RecordBatch]):
    """What a wait function returns: batches, as long as no further operator takes them over."""

    def __init__(self, chain: Chain, source: Iterator[pa.RecordBatch]) -> None:
        """Starts nothing before the first batch is asked for."""
        self._chain = chain
        self._source = source
        self._batches = run(chain, source)

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Ends the task, if it runs."""
        self._batches.close()

    def take_over(self) -> tuple[Chain, Iterator[pa.RecordBatch]]:
        """Returns the operators and their input, for a task that has further operators.

        Raises:
            ConfigurationError: If batches were asked for, or another task has taken them over.
        """
        if inspect.getgeneratorstate(self._batches) != inspect.GEN_CREATED:
            msg = (
                "`chain` needs what a wait function returned before batches are taken from it;"
                " leave `chain` out for the rest of them"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        self._batches = _taken_over()
        next(self._batches, None)
        return self._chain, self._source


def _taken_over() -> Generator[pa.RecordBatch, None, None]:
    """Is begun when it is made, and has nothing for whoever asks further."""
    yield pa.RecordBatch.from_pylist([])
    msg = "these batches go to the operator that was chained to them; read its output instead"
    raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def run(
    plan: Plan | Chain,
    batches: Iterator[pa.RecordBatch],
    *,
    partition: int = 0,
    heartbeat: float | None = None,
    consumer_seconds: float = 0.0,
    on_metrics: Callable[[Metrics], None] | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Carries calls out over `batches`, as one task.

    Args:
        plan: The checked call, or several after one another.
        batches: Record batches of one schema; objects with ``__arrow_c_array__`` are converted.
            None at all gives no output, and no function is opened.
        partition: Number of the partition, for messages and `FunctionContext`.
        heartbeat: Seconds without output after which a batch without rows is yielded, for a
            consumer that has to look after something else now and then; ``None`` for never.
        consumer_seconds: What a batch costs its consumer beside the time until it asks for the next
            one, which counts for ``buffer_timeout="auto"`` of `OutputBatches`.
        on_metrics: Called with the totals so far, now and then and when the task ends: those of the
            operator, or of all with the numbers of each one under ``operators``.

    Yields:
        Batches of ``plan.output_schema(input_schema)`` of the last call, not empty but for
        `heartbeat`.
    """
    from sparkawait._core import Task

    check_may_wait()
    with address_space.fitted():
        feeder = Feeder(batches)
        first = feeder.pull_first()
        if first is None:
            return
        chain = plan if isinstance(plan, Chain) else Chain.of(plan)
        arguments = chain.task_arguments(
            first.schema,
            partition,
            consumer_seconds=consumer_seconds,
            are_wanted=all(map(warm_up.is_known, chain.operators)),
            result_bytes=[warm_up.result_bytes(known) for known in chain.operators],
        )
        task = Task(**arguments)
        functions = Functions(chain, task, partition)
        passed = chain.passed_schema(first.schema)
        metrics = _MetricsReport(chain, task.metrics, functions.contexts, on_metrics)
        finished = False
        with collecting_less_often(functions.python_calls):
            try:
                functions.open()
                feeder.start(task)
                driver = threading.Thread(target=task.drive, name="sparkawait-task", daemon=True)
                address_space.start(driver)
                while (batch := task.next(heartbeat)) is not None:
                    yield with_texts(batch, passed) if feeder.has_bytes_for_texts else batch
                    metrics.report_now_and_then()
                    # Whoever takes the next batch may be another.
                    check_may_wait()
                finished = True
            finally:
                if finished or task.is_open:
                    brought = task.result_bytes or [None] * len(chain.operators)
                    for known, result_bytes in zip(chain.operators, brought, strict=True):
                        warm_up.remember(known, result_bytes)
                if not finished:
                    task.close()
                error = functions.close(finished=finished)
                task.close()
                feeder.join()
                metrics.report()
                retried.tell(chain.operators, task.metrics())
                if error is not None:
                    if finished:
                        raise error
                    _logger.warning("after the task had ended: %s", error, exc_info=error.__cause__)


class _MetricsReport:
    """Hands the metrics of the operators and of the functions to whoever wants them."""

    def __init__(
        self,
        chain: Chain,
        metrics: Callable[[], list[Metrics]],
        contexts: Sequence[FunctionContext],
        on_metrics: Callable[[Metrics], None] | None,
    ) -> None:
        self._chain = chain
        self._names = [plan.function_name for plan in chain.operators]
        self._metrics = metrics
        self._contexts = contexts
        self._on_metrics = on_metrics
        self._next = monotonic() + METRICS_SECONDS

    def report_now_and_then(self) -> None:
        if self._on_metrics is not None and monotonic() >= self._next:
            self._next = monotonic() + METRICS_SECONDS
            self.report()

    def report(self) -> None:
        if self._on_metrics is None:
            return
        operators = self._metrics() or [{} for _ in self._names]
        own = [
            {**metrics, **_metrics_of_function(context)}
            for metrics, context in zip(operators, self._contexts, strict=True)
        ]
        if len(own) == 1:
            self._on_metrics(own[0])
        else:
            named = dict(zip(self._names, own, strict=True))
            calls: list[Metrics] = []
            for plan in self._chain.plans:
                counts = [named[it.function_name] for it in plan.operators]
                calls.append(metrics_of_call(counts))
            self._on_metrics({**metrics_of_chain(calls), "operators": named})


def _metrics_of_function(context: FunctionContext) -> Metrics:
    return {f"function.{name}": value for name, value in dict(context.metrics).items()}
