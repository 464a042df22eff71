# SPDX-License-Identifier: Apache-2.0
"""What a column of another type keeps is what Spark's own `cast` makes of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparkawait._values.conversion import Misfit
from sparkawait._values.kept import kept_as
from tests.support.sql_conf import ZONE, sql_conf
from tests.unit.test_kept import VALUES, held

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

KINDS = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(3,0)": pa.decimal128(3, 0),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,18)": pa.decimal128(38, 18),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "interval day to second": pa.duration("us"),
}


def kept(value: Any, came: Any, wanted: Any) -> Any:
    try:
        return kept_as(pa.array([value], came), wanted, keeps_all=True).to_pylist()[0]
    except (Misfit, pa.ArrowException, ValueError, OverflowError):
        return None


def test_what_is_kept_is_what_spark_casts_it_to(spark):
    """Of all pairs of types and all values; where Spark has nothing for one, it is refused."""
    columns = {
        kind: [array.to_pylist()[0] for array in held(VALUES[it], it)] for kind, it in KINDS.items()
    }
    most = max(map(len, columns.values()))
    table = pa.table(
        {
            f"c{i}": pa.array([*values, *[None] * (most - len(values))], KINDS[kind])
            for i, (kind, values) in enumerate(columns.items())
        }
    )
    checked = 0
    with sql_conf(spark, {ZONE: "UTC", "spark.sql.ansi.enabled": "true"}):
        frame = spark.createDataFrame(table)
        for i, came in enumerate(KINDS):
            ours = {
                wanted: [kept(it, KINDS[came], KINDS[wanted]) for it in columns[came]]
                for wanted in KINDS
            }
            asked = [wanted for wanted in KINDS if any(it is not None for it in ours[wanted])]
            casts = [f"try_cast(c{i} as {wanted}) as c{n}" for n, wanted in enumerate(asked)]
            oracle = frame.selectExpr(*casts).toArrow()
            for n, wanted in enumerate(asked):
                theirs = pa.array(oracle[f"c{n}"].to_pylist(), KINDS[wanted]).to_pylist()
                for mine, other in zip(ours[wanted], theirs, strict=False):
                    if mine is not None:
                        assert repr(mine) == repr(other), (came, wanted)
                        checked += 1
    assert checked > 100
