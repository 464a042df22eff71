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
from functools import partial
from time import monotonic
from typing import Any, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._checks import fields_within, nullable
from sparkawait._plan.plan import Chain, Plan
from sparkawait._schema.types import Model
from sparkawait._values.cells import learn_zones
from sparkawait._values.results import ResultBuilder
from sparkawait._worker import address_space, life_cycle
from sparkawait._worker.address_space import collecting_less_often
from sparkawait._worker.event_loop import check_may_wait
from sparkawait._worker.feeder import Feeder, with_texts
from sparkawait._worker.life_cycle import Functions
from sparkawait._worker.metrics import TaskMetrics, metrics_of_call, metrics_of_chain
from sparkawait._worker.too_many import TooMany
from sparkawait.exceptions import AsyncIOError, ErrorKind, ResultError
from sparkawait.functions import FunctionContext, NativeFunction
from sparkawait.outcomes import ERROR_TYPE

__all__ = ["run"]

# -- rows of native functions, held against the rules of the class that is their schema
#
# On the thread that takes batches out of the task. There rules hold up no call: the thread of the
# connections, on which results are made, never asks for the GIL. So a row that is refused has ended
# for the operator: it is not tried again, and is not counted as failed.


Check = Callable[[pa.RecordBatch], pa.RecordBatch]
_MOST_SHOWN = 3


def checks_of(chain: Chain, task: _core.Task, contexts: list[FunctionContext]) -> list[Check]:
    """Returns what the output of a chain has to go through, in this order.

    Args:
        chain: The calls; only functions of the last one have rules.
        task: Their operators, which say how many rows may be refused.
        contexts: Those of its operators, which count what is refused.
    """
    plan = chain.plans[-1]
    calls = plan.branches or (plan,)
    checks: list[Check] = []
    # From the end, as columns of a row may have been added or left out before.
    from_end = sum(len(it.added_fields) for it in calls)
    first = len(contexts) - len(calls)
    for position, call in enumerate(calls, first):
        function = call.function
        if isinstance(function, NativeFunction) and function.rules is not None:
            refuse = partial(task.refuse, position)
            context = contexts[position]
            checks.append(_ModelCheck(call, function.rules, from_end, context, refuse))
        from_end -= len(call.added_fields)
    return checks


class _ModelCheck:
    """Makes an instance of each row that has a result, and columns of the instances.

    Args:
        plan: The call.
        model: The rules.
        from_end: How many columns from the end its own begin.
        context: Counts what is refused.
        refuse: Told of the rows that are refused, and of all that have left; says whether too many
            have failed.
    """

    def __init__(
        self,
        plan: Plan,
        model: Model,
        from_end: int,
        context: FunctionContext,
        refuse: Callable[[int, int], bool],
    ) -> None:
        """Looks at the columns."""
        self._name = plan.function_name
        self._kind = model.kind.__name__
        self._on_error = plan.options.on_error
        self._from_end, self._count = from_end, len(plan.result_schema)
        self._context, self._refuse = context, refuse
        self._make = model.maker()
        self._columns = [plan.result_schema.names.index(name) for name in model.schema.names]
        fields = [plan.result_schema.field(at) for at in self._columns]
        self._names = [it.name for it in fields]
        self._known = set(self._names)
        self._fields = fields
        required = [it.name for it in model.schema if not it.nullable]
        self._builder = ResultBuilder(pa.schema(nullable(fields)), required)
        self._seen = 0

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch with what the class makes of its rows.

        Raises:
            ResultError: If it refuses one, and ``on_error`` says that the task fails.
        """
        first = batch.num_columns - self._from_end
        columns = [batch.column(first + at) for at in self._columns]
        self._seen += batch.num_rows
        valid = [it.is_valid().to_pylist() for it in columns]
        # A miss is null in all of them, and a row that has failed is, too.
        is_found = [any(cells) for cells in zip(*valid, strict=True)]
        rows = [row for row, found in enumerate(is_found) if found]
        cells = [_values(*it) for it in zip(columns, self._fields, strict=True)]
        made: dict[int, object] = {}
        refused: dict[int, str] = {}
        for row in rows:
            try:
                instance = self._make(
                    {name: of[row] for name, of in zip(self._names, cells, strict=True)}
                )
                (values,) = self._builder.rows_of(instance)
                # Whatever else an instance has is left out by the builder.
                is_whole = type(values) is dict and values.keys() >= self._known
                made[row] = values if is_whole else {it: values.get(it) for it in self._names}
            except Exception as error:  # noqa: BLE001 - whatever rules raise
                refused[row] = (
                    f"`{self._name}` returned what `{self._kind}` refuses: {_told(error)}"
                )
        built = self._builder.build(list(made), list(made.values()))
        refused |= {row: str(error) for row, error in built.failures}
        place: dict[int, int] = {row: at for at, row in enumerate(built.rows)}
        if len(place) < batch.num_rows:
            indices = pa.array([place.get(row) for row in range(batch.num_rows)], pa.int64())
            taken = built.batch.take(indices)
        else:
            taken = built.batch
        arrays = list(batch.columns)
        for at, column in zip(self._columns, taken.columns, strict=True):
            arrays[first + at] = column
        if refused:
            return self._without(batch, arrays, first, refused)
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def _without(
        self, batch: pa.RecordBatch, arrays: list[Any], first: int, refused: Mapping[int, str]
    ) -> pa.RecordBatch:
        """Does with rows that are refused what ``on_error`` says."""
        self._context.add_metric("refused", len(refused))
        action = self._on_error.action
        if self._refuse(len(refused), self._seen) or action == "fail":
            raise ResultError(next(iter(refused.values())), ErrorKind.RESULT_SCHEMA_MISMATCH)
        rows = range(batch.num_rows)
        if action == "drop":
            left = pa.array([row for row in rows if row not in refused], pa.int64())
            return pa.RecordBatch.from_arrays(arrays, schema=batch.schema).take(left)
        indices = pa.array([None if row in refused else row for row in rows], pa.int64())
        for at in range(first, first + self._count):
            arrays[at] = arrays[at].take(indices)
        if action == "capture":
            errors = cast("list[Any]", arrays[first + self._count].to_pylist())
            for row, message in refused.items():
                kind = str(ErrorKind.RESULT_SCHEMA_MISMATCH)
                errors[row] = {**dict.fromkeys(ERROR_TYPE.names), "kind": kind, "message": message}
            arrays[first + self._count] = pa.array(errors, ERROR_TYPE)
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _told(error: Exception) -> str:
    """Returns what a rule says of a row, without its contents."""
    if not hasattr(error, "errors"):
        return f"{type(error).__name__}: {error}"
    found = cast("Any", error).errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, it['loc'])) or 'the row'}: {it['msg']}" for it in found]
    return "; ".join(shown[:_MOST_SHOWN] + [".."] * (len(shown) > _MOST_SHOWN))


def _values(column: Any, field: pa.Field) -> list[Any]:
    values = column.to_pylist()
    has_map = any(pa.types.is_map(it.type) for it in fields_within(field))
    return [_plain(it, field.type) for it in values] if has_map else values


def _plain(value: Any, data_type: Any) -> Any:
    """Returns a value whose maps are dicts: in PyArrow they are lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(data_type):
        key, item = data_type.key_type, data_type.item_type
        return {_plain(one, key): _plain(other, item) for one, other in value}
    if pa.types.is_struct(data_type):
        return {it.name: _plain(value[it.name], it.type) for it in data_type}
    if pa.types.is_list(data_type):
        return [_plain(one, data_type.value_type) for one in value]
    return value


_logger = logging.getLogger("sparkawait")


# -- the task


METRICS_SECONDS = 1.0
"""How often metrics are reported while a task runs."""


def run(
    plan: Plan | Chain,
    batches: Iterator[pa.RecordBatch],
    *,
    partition: int = 0,
    heartbeat: float | None = None,
    consumer_seconds: float = 0.0,
    on_metrics: Callable[[TaskMetrics], None] | None = None,
    on_end: Callable[[int], None] = lambda _left_out: None,
) -> Generator[pa.RecordBatch, None, None]:
    """Carries calls out over `batches`, as one task.

    Args:
        plan: The checked call, or the calls of a chain.
        batches: Record batches of one schema, or what else the wait functions take in an iterable.
            None at all gives no output, and no function is opened.
        partition: Number of the partition, for messages and `FunctionContext`.
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
    with address_space.fitted():
        feeder = Feeder(batches)
        first = feeder.pull_first()
        if first is None:
            return
        chain = plan if isinstance(plan, Chain) else Chain.of(plan)
        task = _task(chain, first.schema, partition, consumer_seconds)
        functions = Functions(chain, task, partition)
        too_many = TooMany(chain)
        checks = [*checks_of(chain, task, functions.contexts), too_many.look_at]
        passed = chain.passed_schema(first.schema)
        metrics = _MetricsReport(chain, task.metrics, functions.contexts, on_metrics)
        finished, left, passed_on = False, 0, 0
        with collecting_less_often(functions.python_calls):
            try:
                functions.open()
                # Before there is input: what an error needs to be told, it has by then.
                address_space.start(
                    threading.Thread(target=task.drive, name="sparkawait-task", daemon=True)
                )
                feeder.start(task)
                while (batch := task.next(heartbeat)) is not None:
                    left += batch.num_rows
                    for check in checks:
                        batch = check(batch)
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
                too_many.note(task.too_many(at_end=False), error)
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
                error = functions.close(finished=finished)
                task.close()
                feeder.join()
                metrics.report()
                _tell_of_retries(chain.operators, task.metrics())
                if error is not None:
                    if finished:
                        raise error
                    _logger.warning("after the task had ended: %s", error, exc_info=error.__cause__)


def _task(chain: Chain, schema: pa.Schema, partition: int, consumer_seconds: float) -> _core.Task:
    """Returns the operators, which read and write times as the plans say."""
    learn_zones(chain.zones)
    return _core.Task(
        **chain.task_arguments(
            schema,
            partition,
            consumer_seconds=consumer_seconds,
            are_wanted=all(map(life_cycle.is_known, chain.operators)),
            result_bytes=[life_cycle.result_bytes(known) for known in chain.operators],
        )
    )


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
