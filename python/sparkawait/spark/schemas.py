# SPDX-License-Identifier: Apache-2.0
"""Schemas of Spark as Arrow schemas, and back, alike in all versions of PySpark.

Pure functions, for any thread of the driver.
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["conformed", "to_arrow", "to_spark"]

# Required since 4.2. The zone does not matter here: data arrives with the session's, and is kept.
_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def to_arrow(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema in which Spark sends rows of `schema`.

    Raises:
        ConfigurationError: If a column has a type that PySpark cannot send as Arrow data.
    """
    return pa.schema([_arrow_field(field) for field in schema.fields])


def to_spark(schema: pa.Schema) -> StructType:
    """Returns the Spark schema for results of `schema`. Comments are kept as metadata.

    Raises:
        ConfigurationError: If a column has a type that Spark does not know.
    """
    return StructType([_spark_field(field) for field in schema])


def conformed(schema: pa.Schema) -> pa.Schema:
    """Returns `schema` with the Arrow types that Spark reads, such as microseconds for all times.

    Raises:
        ConfigurationError: As `to_spark`.
    """
    types = to_arrow(to_spark(schema)).types
    fields = [field.with_type(kind) for field, kind in zip(schema, types, strict=True)]
    metadata = schema.metadata
    return pa.schema(fields, metadata=metadata)  # pyright: ignore[reportArgumentType]


def _arrow_field(field: StructField) -> pa.Field:
    try:
        return to_arrow_schema(StructType([field]), **_ZONE).field(0)
    except Exception as error:
        msg = (
            f"column `{field.name}` has type {field.dataType.simpleString()}, which PySpark cannot"
            " send as Arrow data; cast it or leave it out"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID) from error


def _spark_field(field: pa.Field) -> StructField:
    try:
        # By position: the default is the other one in 3.5.
        data_type = from_arrow_type(field.type, True)  # noqa: FBT003
    except Exception as error:
        msg = f"returned column `{field.name}` has type {field.type}, which Spark does not know"
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID) from error
    comment = (field.metadata or {}).get(b"comment")
    metadata = None if comment is None else {"comment": comment.decode()}
    return StructField(field.name, data_type, field.nullable, metadata)
