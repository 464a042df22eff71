# SPDX-License-Identifier: Apache-2.0
"""The names of types in messages are those that Spark prints."""

from __future__ import annotations

import pytest

from sparkawait._core import simple_string

types = pytest.importorskip("pyspark.sql.types")
schemas = pytest.importorskip("sparkawait.spark.schemas")

_LONG = types.LongType()
_STRUCT = types.StructType(
    [types.StructField("a", types.DecimalType(38, 18)), types.StructField("b c", _LONG)]
)


@pytest.mark.parametrize(
    "data_type",
    [
        types.NullType(),
        types.BooleanType(),
        types.ByteType(),
        types.ShortType(),
        types.IntegerType(),
        _LONG,
        types.FloatType(),
        types.DoubleType(),
        types.DecimalType(10, 2),
        types.StringType(),
        types.BinaryType(),
        types.DateType(),
        types.TimestampType(),
        types.TimestampNTZType(),
        types.DayTimeIntervalType(),
        types.ArrayType(types.ArrayType(_LONG)),
        types.MapType(types.StringType(), types.ArrayType(_STRUCT)),
        _STRUCT,
    ],
    ids=str,
)
def test_a_type_has_the_name_that_spark_prints(data_type):
    schema = schemas.to_arrow(types.StructType([types.StructField("v", data_type)]), "UTC")

    assert simple_string(schema.field("v").type) == data_type.simpleString()
