# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""The task that the wait functions over Arrow record batches, and those of Spark, run.

Four threads take part: a feeder pulls the input ahead of need, a thread of the task drives its
operators, the caller's thread takes the batches that they put out, and the process-wide event loop
thread runs the functions. When the output generator ends, in whatever way, calls in flight are
cancelled and the function is closed before control returns.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from time import monotonic
from typing import Any

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.plan import Chain, Plan
from sparkawait._values.cells import learn_zones
from sparkawait._worker import address_space, life_cycle
from sparkawait._worker.address_space import collecting_less_often
from sparkawait._worker.commits import Commits
from sparkawait._worker.event_loop import check_may_wait
from sparkawait._worker.feeder import Feeder, with_texts
from sparkawait._worker.life_cycle import Functions
from sparkawait._worker.metrics import TaskMetrics, metrics_of_call, metrics_of_chain
from sparkawait._worker.too_many import TooMany
from sparkawait.arrow.checks import checks_of, judge_of, leaving
from sparkawait.exceptions import AsyncFunctionError, AsyncIOError
from sparkawait.functions import FunctionContext

__all__ = ["run"]

_logger = logging.getLogger("sparkawait")


# -- the task


METRICS_SECONDS = 1.0
"""How often metrics are reported while a task runs."""


def run(
    plan: Plan | Chain,
    batches: Iterator[pa.RecordBatch] | Feeder,
    *,
    partition: int = 0,
    stage: int = 0,
    attempt: int = 0,
    heartbeat: float | None = None,
    consumer_seconds: float = 0.0,
    on_metrics: Callable[[TaskMetrics], None] | None = None,
    on_end: Callable[[int], None] = lambda _left_out: None,
) -> Generator[pa.RecordBatch, None, None]:
    """Carries calls out over `batches`, as one task.

    Args:
        plan: The checked call, or the calls of a chain.
        batches: Record batches of one schema, or what else the wait functions take in an iterable;
            or what feeds them. None at all gives no output, and no function is opened.
        partition: Number of the partition, for messages and `FunctionContext`.
        stage: Number of the stage, for the names of files in a journal.
        attempt: Number of the attempt, for them.
        heartbeat: Seconds without output after which a batch without rows is yielded, for a
            consumer that has to look after something else now and then; ``None`` for never.
        consumer_seconds: What a batch costs its consumer beside the time until it asks for the next
            one, which counts for ``buffer_timeout="auto"`` of `Tuning`.
        on_metrics: Called with the totals so far, now and then and when the task ends: those of the
            operator, or of all with the numbers of each one under ``operators``.
        on_end: Called when all batches were yielded, with the number of rows that the last operator
            has left out as its options say: they had no result, have failed, or were refused by a
            class. Not called for an input without batches.

    Yields:
        Batches of ``plan.output_schema(input_schema)`` of the last call; only `heartbeat` makes
        empty ones.

    Raises:
        AsyncFunctionError: At the end, if the share of rows that have failed is too high.
        InternalError: At the end, if the rows of the batches that came and that were yielded are
            not those that the operators have settled.
    """
    check_may_wait()
    feeder = batches if isinstance(batches, Feeder) else Feeder(batches)
    with address_space.fitted(), closing(feeder):
        first = feeder.first()
        if first is None:
            return
        chain = plan if isinstance(plan, Chain) else Chain.of(plan)
        commits = _commits(chain, stage, partition, attempt, feeder)
        task = _task(chain, first.schema, partition, consumer_seconds, commits)
        functions = Functions(chain, task, partition)
        too_many = TooMany(chain)
        checks = checks_of(chain, task, functions.contexts, run)
        passed = chain.passed_schema(first.schema)
        metrics = _MetricsReport(chain, task.metrics, functions.contexts, on_metrics)
        finished, left, passed_on = False, 0, 0
        with collecting_less_often(functions.python_calls):
            try:
                functions.open()
                _start(task, feeder, commits)
                for taken, batch in leaving(iter(partial(task.next, heartbeat), None), checks):
                    left += taken
                    too_many.look_at(batch)
                    passed_on += batch.num_rows
                    yield with_texts(batch, passed) if feeder.has_bytes_for_texts else batch
                    metrics.report_now_and_then()
                    # Another thread may take the next batch.
                    check_may_wait()
                # A class that refuses a row leaves it out behind the operators.
                left = task.settle(feeder.rows, left) + left - passed_on
                too_many.judge(task.too_many(at_end=True))
                on_end(left)
                finished = True
            except AsyncIOError as error:
                too_many.tell(task.too_many(at_end=False), error)
                raise
            finally:
                if finished or task.is_open:
                    brought = task.result_bytes or [None] * len(chain.operators)
                    for known, result_bytes in zip(chain.operators, brought, strict=True):
                        life_cycle.remember(known, result_bytes)
                if not finished:
                    task.close()
                    # No call begins any more, and Spark may kill this process before they end.
                    metrics.report()
                error = _end(functions, task, feeder, commits, finished=finished)
                metrics.report()
                _tell_of_retries(chain.operators, task.metrics())
                if error is not None:
                    if finished:
                        raise error
                    _logger.warning("after the task had ended: %s", error, exc_info=error.__cause__)


def _commits(
    chain: Chain, stage: int, partition: int, attempt: int, feeder: Feeder
) -> Commits | None:
    """Returns what writes the journal of the call, if it has one: then it is alone in its task."""
    plan = chain.plans[0]
    if plan.journal is None:
        return None
    # Others do not need what reads and writes files.
    from sparkawait._worker.journal import TaskJournal

    schema, judge = plan.result_schema, judge_of(plan)
    at = {"stage": stage, "partition": partition, "attempt": attempt}
    journal = TaskJournal(plan.journal, schema, **at, judge=judge)
    feeder.with_known = journal.with_known
    return Commits(journal)


def _start(task: _core.Task, feeder: Feeder, commits: Commits | None) -> None:
    # Before there is input: what an error needs to be told, it has by then.
    address_space.start(threading.Thread(target=task.drive, name="sparkawait-task", daemon=True))
    if commits is not None:
        commits.start()
    feeder.start(task)


def _end(
    functions: Functions,
    task: _core.Task,
    feeder: Feeder,
    commits: Commits | None,
    *,
    finished: bool,
) -> AsyncFunctionError | None:
    """Ends everything; returns why a function could not be closed."""
    try:
        return functions.close(finished=finished)
    finally:
        # Also where a signal ends the wait for it.
        task.close()
        if commits is not None:
            commits.finish()
        feeder.join()


def _task(
    chain: Chain,
    schema: pa.Schema,
    partition: int,
    consumer_seconds: float,
    commits: Commits | None,
) -> _core.Task:
    """Returns the operators, which read and write times as the plans say."""
    learn_zones(chain.zones)
    arguments = chain.task_arguments(
        schema,
        partition,
        consumer_seconds=consumer_seconds,
        are_wanted=all(map(life_cycle.is_known, chain.operators)),
        result_bytes=[life_cycle.result_bytes(known) for known in chain.operators],
    )
    if commits is not None:
        arguments["operators"][0]["journal"] = commits.arguments
    return _core.Task(**arguments)


class _MetricsReport:
    """Hands on the metrics of the operators and of the functions."""

    def __init__(
        self,
        chain: Chain,
        metrics: Callable[[], list[TaskMetrics]],
        contexts: Sequence[FunctionContext],
        on_metrics: Callable[[TaskMetrics], None] | None,
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
            calls: list[TaskMetrics] = []
            for plan in self._chain.plans:
                counts = [named[it.function_name] for it in plan.operators]
                calls.append(metrics_of_call(counts))
            self._on_metrics({**metrics_of_chain(calls), "operators": named})


def _metrics_of_function(context: FunctionContext) -> TaskMetrics:
    return {f"function.{name}": value for name, value in dict(context.metrics).items()}


def _tell_of_retries(operators: Sequence[Plan], metrics: Sequence[Mapping[str, Any]]) -> None:
    """Says how many calls were made again although nobody asked for that, once the task has ended.

    Args:
        operators: The calls of the task.
        metrics: What each of them has done; nothing before the first rows.
    """
    for plan, counts in zip(operators, metrics, strict=False):
        retry = plan.options.retry
        if retry is not None and retry.only_refused and counts.get("retries"):
            _logger.warning(
                "%d of the %d calls of `%s` were made again, because the ones before were refused"
                " or not carried out; `retry=0` fails such rows, and `retry=` says how often",
                counts["retries"],
                counts["attempts"],
                plan.function_name,
            )
