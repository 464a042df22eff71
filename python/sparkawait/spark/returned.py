# SPDX-License-Identifier: Apache-2.0
"""The columns that a function returns, as Spark is told of them. To be called on the driver."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import pyarrow as pa

from sparkawait._plan.function_group import joined
from sparkawait._plan.plan import Plan
from sparkawait.native_function import NativeFunction
from sparkawait.spark.schemas import conformed, to_spark, with_zone

__all__ = ["casts", "conform", "result_fields"]

_PlanT = TypeVar("_PlanT", bound=Plan)


def conform(plan: _PlanT, zone: str = "UTC") -> _PlanT:
    """Has the function's results built with the Arrow types that Spark reads.

    A native function builds those that it declares, in the zone.

    Raises:
        ConfigurationError: If a returned column has a type that Spark does not know.
    """
    if plan.branches:
        branches = tuple(conform(branch, zone) for branch in plan.branches)
        return dataclasses.replace(plan, branches=branches, declared_schema=joined(branches))
    wanted = conformed(plan.declared_schema, zone)
    if isinstance(plan.function, NativeFunction):
        wanted = with_zone(plan.declared_schema, zone)
    if wanted.equals(plan.declared_schema):
        return plan
    return dataclasses.replace(plan, declared_schema=wanted)


def result_fields(plan: Plan) -> list[Any]:
    """Returns the Spark fields that the operator adds to its input."""
    return to_spark(pa.schema(plan.added_fields)).fields


def casts(plan: Plan, zone: str) -> dict[str, pa.DataType]:
    """Returns the columns of a native function that Spark wants in another type."""
    declared = plan.declared_schema
    return {
        field.name: field.type
        for field in conformed(declared, zone)
        if field.type != declared.field(field.name).type
    }
