# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The operators of one task, as they travel to the executors.

Immutable and picklable; any thread may read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from sparkawait._plan.plan import Plan, numbered, without


@dataclass(frozen=True)
class Chain:
    """Calls after one another in one task, each for what the one before it puts out.

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
        """
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
    def hidden(self) -> tuple[str, ...]:
        """The hidden columns of all operators, which come behind those of the first one's rows."""
        return tuple(name for plan in self.plans for name in plan.hidden)

    def passed_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Returns the columns of the input that come out as they went in."""
        is_appended = all(plan.options.output == "append" for plan in self.plans)
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
            operators.append(arguments)
            del sizes[: len(plan.operators)]
        return {"operators": operators, "partition": partition}


def _with_fields(schema: pa.Schema, source: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Returns `schema` with some fields of `source` behind its own."""
    if not names:
        return schema
    fields = [*schema, *(source.field(name) for name in names)]
    return pa.schema(fields, metadata=cast("Any", schema.metadata))
