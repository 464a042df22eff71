# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The operators of one task, as they travel to the executors.

Immutable and picklable; any thread may read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from sparkawait._checks import refuse
from sparkawait._plan.plan import Plan, without
from sparkawait.native_function import NativeFunction


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

        Args:
            plan: The call that the operator makes, which was made with the `names` of the chain.
            schema: What it gets, if that is cast.

        Raises:
            ConfigurationError: If the one before it has rules for its rows.
        """
        check_no_rules(
            self.plans[-1], "chain=True", "leave it out: the next call gets what is left"
        )
        schemas = self.schemas if schema is None else (*self.schemas, schema)
        return Chain((*self.plans, plan), schemas)

    @property
    def names(self) -> frozenset[str]:
        """What its operators are called: another one has another name."""
        return frozenset(it.function_name for it in self.operators)

    @property
    def name(self) -> str:
        """The functions' names, for logs."""
        return " -> ".join(plan.function_name for plan in self.plans)

    def input_schemas(self, input_schema: pa.Schema) -> list[pa.Schema]:
        """Returns what each operator gets if the first one gets `input_schema`.

        That is rows, and its own hidden columns behind them.

        Raises:
            ConfigurationError: If one of the calls does not go with what it gets, and was made
                before that was known.
        """
        schemas: list[pa.Schema] = []
        rows = without(input_schema, self.hidden)
        for index, plan in enumerate(self.plans):
            schemas.append(_with_fields(rows, input_schema, plan.hidden))
            if not plan.is_input_known:
                plan.check_input(schemas[-1])
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

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Returns what the last operator puts out for input of `input_schema`.

        Raises:
            ConfigurationError: As `input_schemas`.
        """
        return self.plans[-1].output_schema(self.input_schemas(input_schema)[-1])

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


# -- what does not go with a chain, or with rows that are carried over


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
