# SPDX-License-Identifier: Apache-2.0
"""Keys: two values are one key where Spark's ``GROUP BY`` puts them in one group."""

import asyncio
import functools
import itertools
import operator

import pyspark
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.types.paths import Path, Refused, Rule

pytestmark = pytest.mark.spark

VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))

NAN = "double('NaN')"
OTHER_NAN = "(double('Infinity') - double('Infinity'))"

PAIRS: dict[str, dict[str, tuple[str, str]]] = {
    "boolean": {"true, false": ("true", "false"), "true, true": ("true", "true")},
    "tinyint": {"1, 2": ("1", "2")},
    "smallint": {"1, 1": ("1", "1")},
    "int": {"1, 1": ("1", "1"), "null, null": ("null", "null"), "0, null": ("0", "null")},
    "bigint": {"2^53, 2^53+1": ("9007199254740992", "9007199254740993")},
    "float": {
        "0.0, -0.0": ("0.0", "float('-0.0')"),
        "NaN, another NaN": (NAN, OTHER_NAN),
        "NaN, infinity": (NAN, "float('Infinity')"),
    },
    "double": {
        "0.0, -0.0": ("0.0", "double('-0.0')"),
        "NaN, another NaN": (NAN, OTHER_NAN),
        "0.0, smallest": ("0.0", "4.9e-324"),
    },
    "decimal(10,2)": {"1.20, 1.2": ("1.20", "1.2"), "1.20, 1.21": ("1.20", "1.21")},
    "decimal(38,18)": {"1, 1.000": ("1", "1.000")},
    "string": {
        "a, A": ("'a'", "'A'"),
        "a, a with a space": ("'a'", "'a '"),
        "é, e with an accent": ("'é'", "concat('e', char(769))"),
        "empty, null": ("''", "null"),
        "null, null": ("null", "null"),
        "two that are not UTF-8": ("cast(X'FF41' as string)", "cast(X'FE41' as string)"),
        "one that is not UTF-8": ("cast(X'FF41' as string)", "cast(X'FF41' as string)"),
        "one that is not UTF-8, what is left of it": ("cast(X'FF41' as string)", "'?A'"),
    },
    "binary": {"00, 0000": ("X'00'", "X'0000'"), "00, 00": ("X'00'", "X'00'")},
    "date": {"two days": ("date'1582-10-04'", "date'1582-10-15'")},
    "timestamp": {
        "one instant in two zones": (
            "timestamp'2024-11-03 01:30:00-04:00'",
            "timestamp'2024-11-03 05:30:00Z'",
        ),
        "the hour that comes twice": (
            "timestamp'2024-11-03 05:30:00Z'",
            "timestamp'2024-11-03 06:30:00Z'",
        ),
    },
    "timestamp_ntz": {"a microsecond": ("'2024-01-01 00:00:00'", "'2024-01-01 00:00:00.000001'")},
    "interval day to second": {"1 day, 24 hours": ("interval '1' day", "interval '24' hour")},
    "interval year to month": {"1 year, 12 months": ("interval '1' year", "interval '12' month")},
    "array<double>": {
        "0.0, -0.0": ("array(0.0)", "array(double('-0.0'))"),
        "NaN, another NaN": (f"array(1, {NAN})", f"array(1, {OTHER_NAN})"),
        "null inside, empty": ("array(null)", "array()"),
        "null, empty": ("null", "array()"),
    },
    "struct<x: double, y: string>": {
        "0.0, -0.0": ("(0.0, 'a')", "(double('-0.0'), 'a')"),
        "null inside, the same": ("(null, 'a')", "(null, 'a')"),
        "null inside, 0.0": ("(null, 'a')", "(0.0, 'a')"),
        "two that are not UTF-8": (
            "(0.0, cast(X'FF41' as string))",
            "(0.0, cast(X'FE41' as string))",
        ),
        "null, only nulls inside": ("null", "(null, null)"),
    },
    "array<struct<x: float>>": {
        "0.0, -0.0": ("array(named_struct('x', 0.0))", "array(named_struct('x', float('-0.0')))"),
        "null, only nulls inside": ("array(null)", "array(named_struct('x', null))"),
    },
    "time": {"one time": ("time'12:00:00'", "time'12:00:00.000000'")},
    "map<string,int>": {"the same": ("map('a', 1)", "map('a', 1)")},
    "variant": {"the same": ("parse_json('1')", "parse_json('1')")},
    "string collate utf8_lcase": {"a, A": ("'a'", "'A'")},
}
SINCE = {"time": (4, 1), "variant": (4, 0), "string collate utf8_lcase": (4, 0)}
REFUSED = ("interval year to month", "map<string,int>", "variant", "string collate utf8_lcase")
CELLS = tuple((kind, name) for kind, pairs in PAIRS.items() for name in pairs)

MAPS = Rule(
    "map.*",
    ".*",
    "refused",
    "A map, also inside of an array or a struct, cannot be a key; Spark 3.5 does not group by it"
    " either.",
    versions=lambda version: version >= (4, 0),
)
COLLATED = Rule(
    ".*collate.*",
    ".*",
    "refused",
    "A string with another collation than `utf8_binary` cannot be a key: give a column such as "
    "`lower(name) collate utf8_binary`.",
    versions=lambda version: version >= (4, 0),
)
MONTHS = Rule(
    "interval year to month",
    ".*",
    "refused",
    "PySpark sends no columns of this type to Python at all.",
)
NO_KEY = Rule(
    "int|string",
    "null, null",
    "differs",
    "A row with a null key is not ordered. A null inside of a struct or an array is a value like "
    "any other.",
    holds=lambda ours, oracle: (ours, oracle) == (False, True),
)
TEXT = (
    "Two values are one key where Spark's `GROUP BY` puts them in one group: `-0.0` is `0.0`, and"
    " NaN is NaN, inside of arrays and structs too. A *cell* here is a pair of values."
)
CACHE = Path("Keys of a cache", "Spark's `GROUP BY`", CELLS, (MAPS, COLLATED, MONTHS), TEXT)
KEY_ORDERED = Path(
    "Keys of the key-ordered mode", "Spark's `GROUP BY`", CELLS, (MAPS, COLLATED, MONTHS, NO_KEY)
)
CHANNEL = Path(
    "Channels",
    "Spark's `GROUP BY`",
    CELLS,
    (MAPS, COLLATED, MONTHS),
    "Rows in which one of the columns is null are one channel together.",
)
PATHS = (CACHE, KEY_ORDERED, CHANNEL)


def pairs_of_this_version():
    return [cell for cell in CELLS if SINCE.get(cell[0], (3, 5)) <= VERSION]


COMPARED = [cell for cell in pairs_of_this_version() if cell[0] not in REFUSED]
KINDS = sorted({kind for kind, _ in COMPARED})
KEY = ["pair", *(f"c{index}" for index in range(len(KINDS)))]


def rows_of_pairs(spark):
    """Two rows for each pair, with a column of each type; all columns together make the key."""
    rows = []
    for pair, (kind, name) in enumerate(COMPARED):
        for side in (0, 1):
            cells = [PAIRS[kind][name][side] if other == kind else "null" for other in KINDS]
            # A null in a column of another type would make the row's key null.
            filled = [
                cell if other == kind else next(iter(PAIRS[other].values()))[0]
                for other, cell in zip(KINDS, cells, strict=True)
            ]
            typed = [
                f"cast({cell} as {other}) as c{index}"
                for index, (other, cell) in enumerate(zip(KINDS, filled, strict=True))
            ]
            rows.append(f"struct({2 * pair + side} as id, {pair} as pair, {', '.join(typed)})")
    return spark.sql(f"select inline(array({', '.join(rows)}))")


def same_group(groups):
    """Tells of each pair whether both of its rows are in one group."""
    group_of = {row: number for number, rows in enumerate(groups) for row in rows}
    return [group_of[2 * pair] == group_of[2 * pair + 1] for pair in range(len(COMPARED))]


@pytest.fixture(scope="module")
def rows(spark):
    return rows_of_pairs(spark).coalesce(1)


@pytest.fixture(scope="module")
def oracle(rows):
    grouped = rows.groupBy(*KEY).agg(F.collect_list("id").alias("ids"))
    return same_group([row["ids"] for row in grouped.select("ids").collect()])


def outcomes_of_refused(spark, call):
    for kind, name in pairs_of_this_version():
        if kind in REFUSED:
            first, second = PAIRS[kind][name]
            values = f"array(cast({first} as {kind}), cast({second} as {kind}))"
            df = spark.sql(f"select explode({values}) as k")
            yield (kind, name), (attempt(call, df), attempt(is_one_group, df))


def is_one_group(df):
    return df.groupBy("k").count().count() == 1


def attempt(call, df):
    try:
        return call(df)
    except (sa.ConfigurationError, pyspark.errors.PySparkException) as error:
        return Refused(str(error))


class Numbered(sa.AsyncFunction):
    """Gives each call another number."""

    schema = "call bigint"

    def open(self, context):
        self.calls = itertools.count()

    async def async_invoke(self, row):
        return {"call": next(self.calls)}


class Together(sa.AsyncFunction):
    """Tells which calls are made before any ends: `first` of them are waited for."""

    schema = "is_first boolean"

    def __init__(self, first):
        self.first = first

    def open(self, context):
        self.started = 0
        self.all_are_here = asyncio.Event()

    async def async_invoke(self, row):
        is_first = not self.all_are_here.is_set()
        self.started += 1
        if self.started == self.first:
            self.all_are_here.set()
        await self.all_are_here.wait()
        return {"is_first": is_first}


def numbered(df, key):
    return sa.ordered_wait(df, Numbered(), cache=sa.Cache(key=key))


def key_ordered(df, key, first=1):
    options = {"capacity": 1000, "timeout": "30s"}
    return sa.key_ordered_wait(df, Together(first), key=key, **options)


def in_channels(df, key, first=1):
    channel = sa.Channel(key, max_per_channel=1, count=500)
    options = {"max_concurrency": 1000, "timeout": "30s"}
    return sa.unordered_wait(df, Together(first), channel=channel, **options)


def test_keys_of_a_cache_are_those_of_group_by(spark, rows, oracle):
    calls = {}
    for row in numbered(rows, KEY).select("id", "call").collect():
        calls.setdefault(row["call"], []).append(row["id"])

    outcomes = zip(COMPARED, zip(same_group(calls.values()), oracle, strict=True), strict=True)
    refused = outcomes_of_refused(spark, lambda df: numbered(df, "k").collect())
    CACHE.check([*outcomes, *refused], VERSION)


NULLS = {
    2 * pair + side
    for pair, (kind, name) in enumerate(COMPARED)
    for side in (0, 1)
    if PAIRS[kind][name][side] == "null"
}
"""Rows whose key is null."""


def test_keys_of_the_key_ordered_mode_are_those_of_group_by(spark, rows, oracle):
    # One row of each group is called at first, and all whose key is null.
    is_one = [same and 2 * pair not in NULLS for pair, same in enumerate(oracle)]
    first = 2 * len(COMPARED) - sum(is_one)

    called = {row["id"]: row["is_first"] for row in key_ordered(rows, KEY, first).collect()}

    ours = [not (called[2 * pair] and called[2 * pair + 1]) for pair in range(len(COMPARED))]
    outcomes = zip(COMPARED, zip(ours, oracle, strict=True), strict=True)
    refused = outcomes_of_refused(spark, lambda df: key_ordered(df, "k").collect())
    KEY_ORDERED.check([*outcomes, *refused], VERSION)


def test_an_equi_join_brings_together_what_group_by_does(rows, oracle):
    """The second oracle: other code of Spark, which a null joins with nothing."""
    others = rows.select(*(F.col(name).alias(f"other_{name}") for name in ["id", *KEY]))
    equal = [F.col(name) == F.col(f"other_{name}") for name in KEY]
    joined = rows.join(others, functools.reduce(operator.and_, equal)).where("id < other_id")

    found = {row["pair"] for row in joined.select("pair").collect()}

    expected = {pair for pair, same in enumerate(oracle) if same and 2 * pair not in NULLS}
    assert found == expected


def test_channels_are_those_of_group_by(spark, rows, oracle):
    # One row of each channel is called at first. Rows without one are a channel together.
    is_one = [same and 2 * pair not in NULLS for pair, same in enumerate(oracle)]
    first = 2 * len(COMPARED) - sum(is_one) - len(NULLS) + 1

    called = {row["id"]: row["is_first"] for row in in_channels(rows, KEY, first).collect()}

    def is_one_channel(pair):
        both = {2 * pair, 2 * pair + 1}
        if both <= NULLS:
            return sum(called[row] for row in NULLS) == 1
        return not all(called[row] for row in both - NULLS)

    ours = [is_one_channel(pair) for pair in range(len(COMPARED))]
    outcomes = zip(COMPARED, zip(ours, oracle, strict=True), strict=True)
    refused = outcomes_of_refused(spark, lambda df: in_channels(df, "k").collect())
    CHANNEL.check([*outcomes, *refused], VERSION)
