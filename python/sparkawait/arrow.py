# SPDX-License-Identifier: Apache-2.0
"""The operator over any iterator of Arrow record batches; no Spark needed.

Three threads take part: a feeder pulls the input ahead of need, the caller's thread runs the
operator, and the process-wide event loop thread runs the functions. When the output generator ends,
in whatever way, calls in flight are cancelled and the function is closed before control returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkawait._plan.option import documented
from sparkawait._plan.options import resolve_unpickled
from sparkawait._plan.plan import Plan
from sparkawait._worker import address_space, warm_up
from sparkawait._worker.collector import collecting_less_often
from sparkawait._worker.event_loop import check_may_wait
from sparkawait._worker.feeder import Feeder, record_batches
from sparkawait._worker.life_cycle import LifeCycle
from sparkawait.functions import AsyncFunctionLike, FunctionContext
from sparkawait.native_function import NativeFunction
from sparkawait.wait_options import OPTIONS, WaitArguments, WaitOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["key_ordered_wait", "ordered_wait", "run", "unordered_wait"]

_logger = logging.getLogger("sparkawait")
Metrics = dict[str, Any]

METRICS_SECONDS = 1.0
"""How often metrics are reported while a task runs."""


@documented(OPTIONS, WaitArguments)
def ordered_wait(
    batches: Iterable[pa.RecordBatch],
    function: AsyncFunctionLike,
    *,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Iterator[pa.RecordBatch]:
    """Calls `function` for every row; the output has the order of the input.

    Args:
        batches: Record batches of one schema, of any length, pulled lazily and ahead of need;
            or any object with ``__arrow_c_stream__``, such as a table.
        function: An ``async def``, decorated with `sparkawait.async_function` or with ``schema=``
            given here, an `AsyncFunction` or a native function.
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
    return _wait("ordered", batches, function, options, given)


@documented(OPTIONS, WaitArguments)
def unordered_wait(
    batches: Iterable[pa.RecordBatch],
    function: AsyncFunctionLike,
    *,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Iterator[pa.RecordBatch]:
    """Calls `function` for every row; rows are emitted as they complete.

    With ``watermark=`` rows between two watermarks may overtake one another, and no row crosses a
    watermark. Result and exceptions are those of `ordered_wait`.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait("unordered", batches, function, options, given)


@documented(OPTIONS, WaitArguments)
def key_ordered_wait(
    batches: Iterable[pa.RecordBatch],
    function: AsyncFunctionLike,
    *,
    key: str | Sequence[str],
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Iterator[pa.RecordBatch]:
    """Calls `function` for every row, one at a time per key; each key keeps its order.

    Rows with a null key have no order among themselves. Result and exceptions are those of
    `ordered_wait`; `timeout` includes the wait for the key.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        key: Column, or columns, of the key.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait("key_ordered", batches, function, options, given, key=key)


def _wait(
    mode: str,
    batches: object,
    function: object,
    options: WaitOptions | None,
    given: Mapping[str, Any],
    *,
    key: object = None,
) -> Iterator[pa.RecordBatch]:
    check_may_wait()
    source = record_batches(batches)
    plan = resolve_unpickled(mode, function, input_schema=None, key=key, options=options, **given)
    return run(plan, source)


def run(
    plan: Plan,
    batches: Iterator[pa.RecordBatch],
    *,
    partition: int = 0,
    heartbeat: float | None = None,
    consumer_seconds: float = 0.0,
    on_metrics: Callable[[Metrics], None] | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Carries `plan` out over `batches`, as one task.

    Args:
        plan: The checked call.
        batches: Record batches of one schema; objects with ``__arrow_c_array__`` are converted.
            None at all gives no output, and the function is not opened.
        partition: Number of the partition, for messages and `FunctionContext`.
        heartbeat: Seconds without output after which a batch without rows is yielded, for a
            consumer that has to look after something else now and then; ``None`` for never.
        consumer_seconds: What a batch costs its consumer beside the time until it asks for the next
            one, which counts for ``buffer_timeout="auto"``.
        on_metrics: Called with the totals so far, now and then and when the task ends.

    Yields:
        Batches of ``plan.output_schema(input_schema)``, not empty but for `heartbeat`.
    """
    from sparkawait._core import Task

    check_may_wait()
    address_space.fit()
    feeder = Feeder(batches)
    first = feeder.pull_first()
    if first is None:
        return
    plan.check_input(first.schema)
    arguments = plan.task_arguments(
        first.schema,
        partition,
        consumer_seconds=consumer_seconds,
        is_wanted=warm_up.is_known(plan),
    )
    task = Task(**arguments)
    context = FunctionContext(partition, f"{plan.function_name} ({partition})")
    metrics = _MetricsReport(task.metrics, context, on_metrics)
    function = LifeCycle(plan, task, context)
    finished = False
    python_calls = 0 if isinstance(plan.function, NativeFunction) else plan.max_concurrency
    with collecting_less_often(python_calls):
        try:
            function.open()
            feeder.start(task)
            while (batch := task.next(heartbeat)) is not None:
                yield batch
                metrics.report_now_and_then()
                # Whoever takes the next batch may be another.
                check_may_wait()
            finished = True
        finally:
            if finished or task.is_open:
                warm_up.remember(plan)
            if not finished:
                task.close()
            error = function.close(finished=finished)
            task.close()
            feeder.join()
            metrics.report()
            if error is not None:
                if finished:
                    raise error
                _logger.warning("after the task had ended: %s", error, exc_info=error.__cause__)


class _MetricsReport:
    """Hands the metrics of the operator and of the function to whoever wants them."""

    def __init__(
        self,
        metrics: Callable[[], Metrics],
        context: FunctionContext,
        on_metrics: Callable[[Metrics], None] | None,
    ) -> None:
        self._metrics = metrics
        self._context = context
        self._on_metrics = on_metrics
        self._next = monotonic() + METRICS_SECONDS

    def report_now_and_then(self) -> None:
        if self._on_metrics is not None and monotonic() >= self._next:
            self._next = monotonic() + METRICS_SECONDS
            self.report()

    def report(self) -> None:
        if self._on_metrics is None:
            return
        own = {f"function.{name}": value for name, value in dict(self._context.metrics).items()}
        self._on_metrics({**self._metrics(), **own})
