# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The operators of one task, as they travel to the executors.

Immutable and picklable; any thread may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from sparkawait._call_info import CALL_TYPE
from sparkawait._emission import Tuning
from sparkawait._plan.capacity import Bounds, held
from sparkawait._plan.checks import refuse
from sparkawait._plan.function_checks import may_return_several
from sparkawait._plan.plan import FunctionGroup, Mode, Plan, joined, without
from sparkawait._quantities import Bytes
from sparkawait.exceptions import ErrorKind
from sparkawait.function_options import FunctionWithOptions
from sparkawait.native_function import NativeFunction
from sparkawait.wait_options import OPTIONS, WaitOptions


def numbered(name: str, taken: set[str]) -> str:
    """Returns `name`, with a number if another operator has it; notes that it is taken."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}#{number}"
    taken.add(found)
    return found


@dataclass(frozen=True)
class Chain:
    """Several calls, one after the other, in one task, each for what the one before it puts out.

    Counterpart of Flink's operator chain.

    Attributes:
        plans: One for each operator, the one that gets the input first.
        schemas: What each operator but the first gets, in types that the one before it can be cast
            to. None where all get what the one before them puts out, as it is.
    """

    plans: tuple[Plan, ...]
    schemas: tuple[pa.Schema, ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> Chain:
        """Returns the chain of one operator."""
        return cls((plan,))

    def then(self, plan: Plan, schema: pa.Schema | None = None) -> Chain:
        """Returns the chain with one operator more.

        A function that is in it already is named by its position, too.

        Args:
            plan: The call that the operator makes.
            schema: What it gets, if that is cast.

        Raises:
            ConfigurationError: If the one before it has rules for its rows.
        """
        check_no_rules(
            self.plans[-1], "chain=True", "leave it out: the next call gets what is left"
        )
        taken = {other.function_name for other in self.operators}
        name = numbered(plan.function_name, taken)
        branches = [replace(it, name=numbered(it.function_name, taken)) for it in plan.branches]
        plan = replace(plan, name=name, branches=tuple(branches))
        schemas = self.schemas if schema is None else (*self.schemas, schema)
        return Chain((*self.plans, plan), schemas)

    @property
    def name(self) -> str:
        """The functions' names, for logs."""
        return " -> ".join(plan.function_name for plan in self.plans)

    def input_schemas(self, input_schema: pa.Schema) -> list[pa.Schema]:
        """Returns what each operator gets if the first one gets `input_schema`.

        That is rows, and its own hidden columns behind them.

        Raises:
            ConfigurationError: If one of the calls does not go with what it gets.
        """
        schemas: list[pa.Schema] = []
        rows = without(input_schema, self.hidden)
        for index, plan in enumerate(self.plans):
            schemas.append(_with_fields(rows, input_schema, plan.hidden))
            put_out = plan.output_schema(schemas[-1])
            rows = self.schemas[index] if index < len(self.schemas) else put_out
        return schemas

    @property
    def operators(self) -> tuple[Plan, ...]:
        """All operators of the task: the calls, and behind each one its branches."""
        return tuple(it for plan in self.plans for it in plan.operators)

    @property
    def zones(self) -> tuple[tuple[str, bytes], ...]:
        """The rules of time zones that Spark has told: those of one session."""
        return tuple(dict.fromkeys(it for plan in self.operators for it in plan.zones))

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden columns of all operators, which come behind those of the first one's rows."""
        return tuple(name for plan in self.plans for name in plan.hidden)

    def passed_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Returns the columns of the input that come out as they went in."""
        is_appended = all(plan.keeps_input for plan in self.plans)
        return input_schema if is_appended else pa.schema([])

    def task_arguments(
        self,
        input_schema: pa.Schema,
        partition: int,
        *,
        consumer_seconds: float = 0.0,
        are_wanted: bool = False,
        result_bytes: Sequence[int | None] | None = None,
    ) -> dict[str, Any]:
        """Returns the keyword arguments of `_core.Task`.

        Args:
            input_schema: Of the batches that come, with the hidden columns of all operators last.
            partition: Number of the partition.
            consumer_seconds: What a batch costs its consumer beside the time until it asks for the
                next one.
            are_wanted: Whether the rows are known to be wanted, so that no warm-up is needed.
            result_bytes: What a call of each brought in an earlier task, in bytes; ``None`` where
                nobody knows.

        Raises:
            ConfigurationError: As `input_schemas`.
        """
        schemas = self.input_schemas(input_schema)
        nothing, sizes = pa.schema([]), list(result_bytes or [None] * len(self.operators))
        operators: list[dict[str, Any]] = []
        for index, (plan, schema) in enumerate(zip(self.plans, schemas, strict=True)):
            behind = Chain(self.plans[index + 1 :]).hidden
            arguments = plan.operator_arguments(
                schema,
                _with_fields(nothing, input_schema, behind),
                consumer_seconds=consumer_seconds,
                is_wanted=are_wanted,
                result_bytes=sizes[: len(plan.operators)],
            )
            # The first call of a chain says it for all.
            carry_over = self.plans[0].options.carry_over
            named_by = () if carry_over is None else carry_over.name_rows_by or ()
            arguments["names_of_rows"] = [name for name in named_by if name in schema.names]
            operators.append(arguments)
            del sizes[: len(plan.operators)]
        return {"operators": operators, "partition": partition}


def _with_fields(schema: pa.Schema, source: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Returns `schema` with some fields of `source` behind its own."""
    if not names:
        return schema
    fields = [*schema, *(source.field(name) for name in names)]
    return pa.schema(fields, metadata=cast("Any", schema.metadata))


# -- several functions for each row, side by side: one call, and a branch of it for each function.
#
# Runs where the user calls, on the driver.


def side_by_side(
    mode: Mode,
    functions: Sequence[object],
    options: WaitOptions,
    resolve: Callable[..., Plan],
    *,
    key: tuple[str, ...] | None,
    hidden: tuple[str, ...],
) -> Plan:
    """Returns the plan of a call of several functions for each row, whose names are not checked.

    Options of the call that are of one function are those of each that has no other.

    Args:
        mode: Which order the output has.
        functions: What the user gave, with options or without.
        options: Those of the call.
        resolve: Makes the plan of one function.
        key: The columns of the key, in the key-ordered mode.
        hidden: Names of columns, the last of the input, that options were computed into.

    Raises:
        ConfigurationError: If a function, or an option of it, is wrong.
    """
    if not functions:
        refuse("`function` must be a function or a list of them, got []")
    given = options.given
    for name in ("schema", "on_timeout"):
        if given.get(name) is not None:
            refuse(f"`{name}` is of one function; give it by with_options({name}=..)")
    of_rows = {name: it for name, it in given.items() if not OPTIONS[name].of_function}
    shared: dict[str, Any] = {name: it for name, it in given.items() if name not in of_rows}
    # What is theirs of it; batches are put together where the branches meet.
    tuning = options.tuning
    shared["tuning"] = Tuning(
        max_bytes=tuning.max_bytes, target_latency=tuning.target_latency, warm_up=False
    )
    capacity = options.capacity
    if isinstance(capacity, Bytes):
        capacity = None
    if capacity is not None:
        shared["capacity"] = capacity
    taken: set[str] = set()
    branches: list[Plan] = []
    for function in functions:
        called, own = _of(function)
        branch = resolve("unordered", called, hidden=hidden, keeps_input=False, **{**shared, **own})
        if may_return_several(branch.function, branch.facts, own.get("schema")):
            refuse(
                f"`{branch.function_name}` may return several rows for a row, and cannot be called"
                " beside other functions; call it alone, before or after them"
            )
        branches.append(replace(branch, name=numbered(branch.function_name, taken)))
    _check_told(branches)
    if capacity is None:
        bound = held(mode, options, [(it.max_concurrency, it.facts) for it in branches])
    else:
        bound = Bounds(capacity, capacity)
    most = bound.rows if bound.growth is None else bound.growth.rows
    # A row that a branch tries again holds no other up.
    branches = [
        it if it.batch is not None else replace(it, capacity=max(it.capacity, most))
        for it in branches
    ]
    schema = joined(branches)
    names = tuple(it.function_name for it in branches)
    plan = Plan(
        mode=mode,
        function=FunctionGroup(names, schema),
        declared_schema=schema,
        # The calls have timeouts, each its own.
        options=WaitOptions(**of_rows, timeout=None),
        capacity=bound.rows,
        max_concurrency=most,
        capacity_bytes=bound.bytes,
        growth=bound.growth,
        key=key,
        hidden=hidden,
        branches=tuple(branches),
    )
    if options.carry_over is not None:
        check_carries_one(plan)
    return plan


def check_no_rules(plan: Plan, option: str, way_out: str) -> None:
    """Checks that no rules are for rows that do not leave the task as they were made.

    Raises:
        ConfigurationError: If there are.
    """
    for it in plan.operators:
        if isinstance(it.function, NativeFunction) and it.function.rules is not None:
            kind = it.function.rules.kind.__name__
            refuse(
                f"`{option}` does not go with the rules of `{kind}`, which are for rows of"
                f" `{it.function_name}` that leave the task; {way_out}"
            )


def check_carries_one(plan: Plan) -> None:
    """Checks that a call whose rows outlive their micro-batch is one of one function.

    Raises:
        ConfigurationError: If it is one of several.
    """
    if plan.branches:
        refuse(
            f"`carry_over` keeps rows of one function a call, got {plan.function_name}; call them"
            " one after the other, with chain=True on the output of the first"
        )


def _of(function: object) -> tuple[object, dict[str, Any]]:
    """Returns one of several functions, and the options that it has."""
    own: dict[str, Any] = {}
    if isinstance(function, FunctionWithOptions):
        function, own = function.function, function.options.given
    if isinstance(function, (list, tuple)):
        refuse("`function` must be a function or a list of them, got a list in a list")
    return function, own


def _check_told(branches: Sequence[Plan]) -> None:
    """Checks that failures and calls of two functions are not told in one column."""
    taken: dict[str, str] = {}
    for branch in branches:
        for field in branch.told_fields:
            column = field.name
            if column in taken:
                is_info = field.type == CALL_TYPE
                both = "tell of calls" if is_info else "capture failures"
                own = "info='..'" if is_info else "sparkawait.OnError('capture', column='..')"
                refuse(
                    f"`{taken[column]}` and `{branch.function_name}` both {both} in column"
                    f" `{column}`; give each one of its own, with_options({own})",
                    ErrorKind.COLUMN_CLASH,
                )
            taken[column] = branch.function_name
