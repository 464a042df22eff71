# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Intervals that become texts, which Spark writes with the units of their type.

``INTERVAL '5' DAY`` and ``INTERVAL '5 00:00:00' DAY TO SECOND`` are one interval and two texts.
Arrow data say nothing of units, so that a function in the extension module would write the second
for both, and look up what nobody has stored. Pure functions, for any thread.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StructType,
    UserDefinedType,
)

from sparkawait._plan.checks import refuse
from sparkawait._plan.plan import Plan
from sparkawait.exceptions import ErrorKind
from sparkawait.native_function import NativeFunction

__all__ = ["check_arguments", "check_columns"]


def check_columns(plan: Plan, schema: StructType) -> None:
    """Checks the columns of `schema` that `plan` makes texts of.

    Raises:
        ConfigurationError: If one of them has intervals that do not go from days to seconds.
    """
    for branch in plan.branches:
        check_columns(branch, schema)
    function = plan.function
    if plan.branches or not isinstance(function, NativeFunction) or not function.writes_texts:
        return
    for column in function.input_columns:
        found = _narrow(schema[column].dataType)
        if found is not None:
            refuse(
                f"column `{column}` has type {found.simpleString()}, whose texts in Spark have"
                " other units than those that would be sent; cast it to a string, or to interval"
                " day to second",
                ErrorKind.INPUT_INVALID,
            )


def check_arguments(function: NativeFunction, schema: pa.Schema) -> None:
    """Checks the arguments of a column function, whose types only the executor knows.

    Raises:
        ConfigurationError: If texts are made of one with intervals.
    """
    if not function.writes_texts:
        return
    for field in schema:
        if _has_duration(field.type):
            refuse(
                f"argument `{field.name}` has intervals, whose units a column function is not told,"
                " and which are in Spark's texts; cast it to a string",
                ErrorKind.INPUT_INVALID,
            )


def _narrow(found: DataType) -> DataType | None:
    """Returns the first type of intervals in `found` that is not from days to seconds."""
    if isinstance(found, DayTimeIntervalType):
        return None if found == DayTimeIntervalType() else found
    parts: list[DataType] = []
    if isinstance(found, StructType):
        parts = [field.dataType for field in found.fields]
    elif isinstance(found, ArrayType):
        parts = [found.elementType]
    elif isinstance(found, MapType):
        parts = [found.keyType, found.valueType]
    elif isinstance(found, UserDefinedType):
        parts = [cast("Any", found).sqlType()]
    return next((it for part in parts if (it := _narrow(part)) is not None), None)


def _has_duration(data_type: Any) -> bool:
    if pa.types.is_duration(data_type):
        return True
    return any(_has_duration(data_type.field(at).type) for at in range(data_type.num_fields))
