# SPDX-License-Identifier: Apache-2.0
"""Values of random types, nested in one another, are what Spark's `udf` makes of them.

Few Spark jobs with many columns: an example is a whole table, and a failure names its columns, so
nothing is made smaller.
"""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import sparkawait as sa
from tests.support.sql_conf import sql_conf
from tests.types.workers import VERSION, classic_udf, zones

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COLUMNS = 24
ROWS = 12
TABLES = 2

Column = tuple[str, "st.SearchStrategy[Any]"]
"""A type in Spark's DDL, and its values but for null."""


def _whole(bits: int) -> st.SearchStrategy[int]:
    ends = st.sampled_from([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0])
    return ends | st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _decimals(precision: int, scale: int) -> Column:
    most = 10**precision - 1
    values = st.integers(-most, most).map(lambda it: Decimal(it).scaleb(-scale, context=WIDE))
    return f"decimal({precision},{scale})", values


WIDE = Context(prec=40)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
# In years that every time zone has.
WALL = dt.datetime.fromisoformat
MOMENTS = st.datetimes(WALL("0002-01-01"), WALL("9998-12-31"))
DURATIONS = st.timedeltas(dt.timedelta(-100_000), dt.timedelta(100_000))
PLAIN: list[Column] = [
    ("boolean", st.booleans()),
    ("int", _whole(32)),
    ("bigint", _whole(64)),
    ("string", TEXTS),
]
# Before Spark 4.1 no others are arguments of a column function.
MORE_KEYS: list[Column] = [
    ("date", st.dates()),
    ("double", st.floats(allow_nan=False)),
    ("timestamp_ntz", MOMENTS),
    ("interval day to second", DURATIONS),
    _decimals(10, 2),
]
KEYS = [*PLAIN, *(MORE_KEYS if VERSION >= (4, 1) else [])]
LEAVES: list[Column] = [
    *PLAIN,
    ("tinyint", _whole(8)),
    ("smallint", _whole(16)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    _decimals(10, 2),
    _decimals(38, 18),
    _decimals(38, 0),
    ("binary", st.binary(max_size=6).map(bytearray)),
    ("date", st.dates()),
    ("timestamp", MOMENTS),
    ("timestamp_ntz", MOMENTS),
    ("interval day to second", DURATIONS),
]


def _array(element: Column) -> Column:
    kind, values = element
    return f"array<{kind}>", st.lists(st.none() | values, max_size=3)


def _map(key: Column, value: Column) -> Column:
    values = st.dictionaries(key[1], st.none() | value[1], max_size=3)
    return f"map<{key[0]},{value[0]}>", values


def _struct(members: list[Column]) -> Column:
    kinds = ", ".join(f"m{at}: {kind}" for at, (kind, _) in enumerate(members))
    return f"struct<{kinds}>", st.tuples(*(st.none() | values for _, values in members))


def _nested(inner: st.SearchStrategy[Column]) -> st.SearchStrategy[Column]:
    return (
        inner.map(_array)
        | st.builds(_map, st.sampled_from(KEYS), inner)
        | st.lists(inner, min_size=1, max_size=3).map(_struct)
    )


COLUMN = st.recursive(st.sampled_from(LEAVES), _nested, max_leaves=4)


@st.composite
def tables(draw: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Draws the types of the columns of a table, and its rows."""
    columns = draw(st.lists(COLUMN, min_size=COLUMNS, max_size=COLUMNS))
    cells = [
        draw(st.lists(st.none() | values, min_size=ROWS, max_size=ROWS)) for _, values in columns
    ]
    return [kind for kind, _ in columns], list(zip(*cells, strict=True))


def shown(value: Any) -> str:
    """Shows a value so that -0.0, NaN and types count, and the order in a map does not."""
    if isinstance(value, dict):
        entries = sorted(f"{shown(key)}: {shown(one)}" for key, one in value.items())
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, (list, tuple)):  # a row is a tuple
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    return repr(value)


@settings(
    max_examples=TABLES,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(table=tables(), timestamp=st.sampled_from(["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"]))
def test_values_of_random_types_are_those_of_udf(spark, table, timestamp):
    kinds, rows = table
    names = [f"c{at}" for at in range(len(kinds))]
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    returned = ", ".join(f"r{name} {kind}" for name, kind in zip(names, kinds, strict=True))

    @sa.async_function(schema)
    async def echo(row):
        return {name: row[name] for name in names}

    @sa.async_function(returned)
    async def answer(row):
        return {f"r{name}": row[name] for name in names}

    settings = {"spark.sql.timestampType": timestamp}
    with zones(spark, "America/New_York", "UTC"), sql_conf(spark, settings):
        df = spark.createDataFrame(rows, schema).coalesce(1)
        udfs = (
            classic_udf(lambda it: it, kind)(name).alias(name)
            for name, kind in zip(names, kinds, strict=True)
        )
        oracle = df.select(*udfs).collect()
        as_column = df.select(sa.async_udf(echo)(*names).alias("r")).select("r.*").collect()
        waited = sa.ordered_wait(df, answer).collect()

    def differing(found: list[Any], wanted: list[Any]) -> list[tuple[str, Any, Any]]:
        pairs = [
            (kind, ours, theirs)
            for ours_row, their_row in zip(found, wanted, strict=True)
            for kind, ours, theirs in zip(kinds, ours_row, their_row, strict=True)
        ]
        return [it for it in pairs if shown(it[1]) != shown(it[2])]

    assert differing(as_column, oracle) == []
    assert differing([row[: len(names)] for row in waited], oracle) == []
    assert differing([row[len(names) :] for row in waited], oracle) == []
