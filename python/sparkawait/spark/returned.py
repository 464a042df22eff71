# SPDX-License-Identifier: Apache-2.0
"""The columns that a function returns, as Spark is told of them. To be called on the driver."""

from __future__ import annotations

from typing import Any, TypeVar

import pyarrow as pa

from sparkawait._plan.plan import Plan
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.native_function import NativeFunction
from sparkawait.spark.schemas import Times, conformed, to_spark, with_times
from sparkawait.types import INTERVAL

__all__ = ["casts", "conform", "result_fields"]

_PlanT = TypeVar("_PlanT", bound=Plan)


def conform(plan: _PlanT, times: Times) -> _PlanT:
    """Has the function's results built with the Arrow types that Spark reads.

    A native function builds those that it declares, in the zone of the session.

    Raises:
        ConfigurationError: If a returned column has a type that Spark does not know.
    """

    def schema_of(one: Plan) -> pa.Schema:
        wanted = conformed(one.declared_schema, times)
        if not isinstance(one.function, NativeFunction):
            return wanted
        for field in one.declared_schema:
            _check_units(field, field.name)
        return with_times(one.declared_schema, times)

    return plan.declaring(schema_of)


def _check_units(field: Any, column: str) -> None:
    """Checks that a column of a native function has no type of intervals that it does not read."""
    if INTERVAL in (field.metadata or {}):
        msg = (
            f"returned column `{column}` is declared as {field.metadata[INTERVAL].decode()}, but"
            " intervals are read from days to seconds; declare it as interval day to second, and"
            " cast it"
        )
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
    for index in range(field.type.num_fields):
        _check_units(field.type.field(index), column)


def result_fields(plan: Plan) -> list[Any]:
    """Returns the Spark fields that the operator adds to its input."""
    return to_spark(pa.schema(plan.added_fields)).fields


def casts(plan: Plan, times: Times) -> dict[str, pa.DataType]:
    """Returns the columns of a native function that Spark wants in another type."""
    declared = plan.declared_schema
    return {
        field.name: field.type
        for field in conformed(declared, times)
        if field.type != declared.field(field.name).type
    }
