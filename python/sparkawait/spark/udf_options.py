# SPDX-License-Identifier: Apache-2.0
"""What a column function is said to be: its type, its arguments and its options.

To be used on the driver, from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from sparkawait._plan.callables import describe
from sparkawait._plan.checks import refuse, shown
from sparkawait._plan.option import refuse_unknown
from sparkawait._plan.return_types import names_columns, schema_of
from sparkawait.capture import FailAfter
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunction
from sparkawait.native_function import NativeFunction
from sparkawait.spark.schemas import Times, times_of
from sparkawait.types import to_result, to_schema
from sparkawait.wait_options import COLUMN_OPTIONS, OPTIONS


def is_function(value: object) -> bool:
    """Tells a function from what it returns, and from nothing."""
    is_type = isinstance(value, (str, pa.Schema, pa.DataType, DataType)) or names_columns(value)
    return value is not None and not is_type and not hasattr(value, "__arrow_c_schema__")


def returned_type(function: object, schema: object) -> pa.Schema | pa.Field[Any] | None:
    """Returns what a function is said to return, or a bare one is annotated with.

    That is columns, or a plain column whose name says nothing.
    """
    if schema is not None:
        return to_result(schema)
    if isinstance(function, (AsyncFunction, NativeFunction)):
        return None
    name = describe(function)
    annotated = schema_of(function, name, batched=False)
    if annotated is None:
        msg = f"`{name}` has no type; use @async_udf('type'), or annotate what it returns"
        raise ConfigurationError(msg, ErrorKind.SCHEMA_MISSING)
    found = to_schema(annotated)
    if found.names != [name.rsplit(".", 1)[-1]]:
        return found
    return pa.field("", found.field(0).type, metadata=cast("Any", found.field(0).metadata))


def current_times() -> Times:
    """Returns what the session takes times for."""
    return times_of(SparkSession.getActiveSession())


def check_options(given: Mapping[str, object]) -> None:
    """Checks that a column function has these options.

    Raises:
        ConfigurationError: If one is unknown, or of the wait functions only.
    """
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None:
            refuse_unknown(name, COLUMN_OPTIONS)
        if not option.of_columns and value != option.default:
            refuse(f"`{name}` is not an option of a column function; use ordered_wait")
    on_error = given.get("on_error")
    if (on_error.on_error if isinstance(on_error, FailAfter) else on_error) == "drop":
        refuse("`on_error` must not be 'drop' for a column function; use ordered_wait to drop rows")


def argument_names(columns: object) -> tuple[str, ...] | None:
    """Returns the names of the arguments, if there are any.

    Raises:
        ConfigurationError: If they are not names, or not distinct.
    """
    if columns is None:
        return None
    names = cast("Sequence[object]", columns)
    if (
        not isinstance(columns, (list, tuple))
        or not names
        or not all(isinstance(name, str) for name in names)
        or len(set(names)) < len(names)
    ):
        msg = f"`columns` must be a list of distinct names, got {shown(columns)}"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    return tuple(cast("Sequence[str]", names))
