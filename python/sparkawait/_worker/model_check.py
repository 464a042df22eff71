# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Rows of native functions, held against the rules of the class that is their schema.

On the thread that takes batches out of the task. There rules hold up no call: the thread of the
connections, on which results are made, never asks for the GIL. So a row that is refused has ended
for the operator: it is not tried again, and is not counted as failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pyarrow as pa

from sparkawait._checks import fields_within, nullable
from sparkawait._plan.plan import Chain, Plan
from sparkawait._schema.types import Model
from sparkawait._values.results import ResultBuilder
from sparkawait.exceptions import ErrorKind, ResultError
from sparkawait.functions import FunctionContext, NativeFunction
from sparkawait.outcomes import ERROR_TYPE

Check = Callable[[pa.RecordBatch], pa.RecordBatch]
_MOST_SHOWN = 3


def checks_of(chain: Chain, contexts: list[FunctionContext]) -> list[Check]:
    """Returns what the output of a chain has to go through, in this order.

    Args:
        chain: The calls; only functions of the last one have rules.
        contexts: Those of its operators, which count what is refused.
    """
    plan = chain.plans[-1]
    calls = plan.branches or (plan,)
    checks: list[Check] = []
    # From the end, as columns of a row may have been added or left out before.
    from_end = sum(len(it.added_fields) for it in calls)
    for call, context in zip(calls, contexts[-len(calls) :], strict=True):
        function = call.function
        if isinstance(function, NativeFunction) and function.rules is not None:
            checks.append(_ModelCheck(call, function.rules, from_end, context))
        from_end -= len(call.added_fields)
    return checks


class _ModelCheck:
    """Makes an instance of each row that has a result, and columns of the instances.

    Args:
        plan: The call.
        model: The rules.
        from_end: How many columns from the end its own begin.
        context: Counts what is refused.
    """

    def __init__(self, plan: Plan, model: Model, from_end: int, context: FunctionContext) -> None:
        """Looks at the columns."""
        self._name = plan.function_name
        self._kind = model.kind.__name__
        self._on_error = plan.options.on_error
        self._from_end, self._count = from_end, len(plan.result_schema)
        self._context = context
        self._make = model.maker()
        self._columns = [plan.result_schema.names.index(name) for name in model.schema.names]
        fields = [plan.result_schema.field(at) for at in self._columns]
        self._names = [it.name for it in fields]
        self._known = set(self._names)
        self._fields = fields
        required = [it.name for it in model.schema if not it.nullable]
        self._builder = ResultBuilder(pa.schema(nullable(fields)), required)
        self._seen = self._refused = 0

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
        self._refused += len(refused)
        action = self._on_error.action
        if action == "fail" or self._on_error.is_reached(self._refused, self._seen):
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
