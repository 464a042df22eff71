# SPDX-License-Identifier: Apache-2.0
"""Schemas of Spark as Arrow schemas, and back, alike in all versions of PySpark.

Pure functions, for any thread of the driver.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["conformed", "session_zone", "to_arrow", "to_spark", "with_zone"]

# Required since 4.2; replaced by the zone that is asked for.
_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def session_zone(df: DataFrame) -> str:
    """Returns the time zone that the session of `df` has now, by the name it was given."""
    return df.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"


def to_arrow(schema: StructType, zone: str = "UTC") -> pa.Schema:
    """Returns the Arrow schema in which a session in `zone` sends rows of `schema`.

    Raises:
        ConfigurationError: If a column has a type that PySpark cannot send as Arrow data.
    """
    return with_zone(pa.schema([_arrow_field(field) for field in schema.fields]), zone)


def to_spark(schema: pa.Schema) -> StructType:
    """Returns the Spark schema for results of `schema`. Comments are kept as metadata.

    Raises:
        ConfigurationError: If a column has a type that Spark does not know.
    """
    return StructType([_spark_field(field) for field in schema])


def conformed(schema: pa.Schema, zone: str = "UTC") -> pa.Schema:
    """Returns `schema` with the Arrow types that Spark reads, such as microseconds for all times.

    A timestamp of Spark's has no zone of its own: all get `zone`, in which texts are read.

    Raises:
        ConfigurationError: As `to_spark`.
    """
    types = to_arrow(to_spark(schema), zone).types
    fields = [field.with_type(kind) for field, kind in zip(schema, types, strict=True)]
    metadata = schema.metadata
    return pa.schema(fields, metadata=metadata)  # pyright: ignore[reportArgumentType]


def with_zone(schema: pa.Schema, zone: str) -> pa.Schema:
    """Returns `schema` with `zone` for all timestamps that have one, nested ones too."""
    fields = [_field_with_zone(field, zone) for field in schema]
    metadata = schema.metadata
    return pa.schema(fields, metadata=metadata)  # pyright: ignore[reportArgumentType]


def _field_with_zone(field: pa.Field, zone: str) -> pa.Field:
    return field.with_type(_type_with_zone(field.type, zone))


def _type_with_zone(data_type: Any, zone: str) -> pa.DataType:
    if pa.types.is_timestamp(data_type):
        return data_type if data_type.tz is None else pa.timestamp(data_type.unit, zone)
    if pa.types.is_struct(data_type):
        return pa.struct([_field_with_zone(field, zone) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(_field_with_zone(data_type.value_field, zone))
    if pa.types.is_large_list(data_type):
        return pa.large_list(_field_with_zone(data_type.value_field, zone))
    if pa.types.is_map(data_type):
        fields = (data_type.key_field, data_type.item_field)
        key, item = (cast("Any", _field_with_zone(field, zone)) for field in fields)
        return pa.map_(key, item, data_type.keys_sorted)
    return data_type


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
