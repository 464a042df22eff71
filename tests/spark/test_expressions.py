# SPDX-License-Identifier: Apache-2.0
"""Expressions in the place of columns, beside the same columns made by hand."""

import asyncio
import os
from collections import Counter, defaultdict

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.exceptions import ErrorKind

pytestmark = pytest.mark.spark

ROWS = 300


@sa.async_function("seen string, turn bigint")
async def see(row):
    """Says which columns it sees, and how many rows of its key are called for."""
    running[row["id"] % 7] += 1
    together = running[row["id"] % 7]
    await asyncio.sleep(0.001 if row["id"] % 3 else 0)
    running[row["id"] % 7] -= 1
    return {"seen": ",".join(row), "turn": together}


@sa.async_function("again string")
async def see_again(row):
    return {"again": ",".join(row)}


@sa.async_function("calls bigint")
async def count_calls(row):
    called[row["id"] % 7] += 1
    await asyncio.sleep(0)
    return {"calls": called[row["id"] % 7]}


running: Counter = Counter()
called: Counter = Counter()


def numbered(spark):
    return spark.range(ROWS, numPartitions=1)


def key_of(name="id"):
    return F.col(name) % 7


def in_order_of_keys(rows):
    by_key = defaultdict(list)
    for row in rows:
        by_key[row.id % 7].append(row.id)
    return all(ids == sorted(ids) for ids in by_key.values())


@pytest.mark.parametrize("key", ["expression", ["id", "expression"]])
def test_a_key_may_be_an_expression(spark, key):
    by_hand = numbered(spark).withColumn("by_hand", key_of())
    named = [it.replace("expression", "by_hand") for it in ([key] if type(key) is str else key)]
    computed = key_of() if type(key) is str else ["id", key_of()]

    expected = sa.key_ordered_wait(by_hand, see, key=named).drop("by_hand")
    found = sa.key_ordered_wait(numbered(spark), see, key=computed)

    rows = found.collect()
    assert found.schema == expected.schema
    assert {row.seen for row in rows} == {"id"}
    assert sorted(row.id for row in rows) == sorted(row.id for row in expected.collect())
    if type(key) is str:
        assert in_order_of_keys(rows)
        assert {row.turn for row in rows} == {1}


def test_a_cache_may_have_an_expression_as_its_key(spark):
    @sa.async_function("calls bigint, seen string")
    async def count(row):
        await asyncio.sleep(0)
        calls.append(row["id"])
        return {"calls": len(calls), "seen": ",".join(row)}

    calls: list[int] = []
    cache = sa.Cache(key=key_of())

    found = sa.ordered_wait(numbered(spark), count, cache=cache)
    rows = found.collect()

    assert found.columns == ["id", "calls", "seen"]
    assert {row.seen for row in rows} == {"id"}
    by_key = {row.id % 7: row.calls for row in rows}
    assert all(row.calls == by_key[row.id % 7] for row in rows)
    assert sorted(by_key.values()) == list(range(1, 8))


class SaysItsProcess(sa.AsyncFunction):
    """Counts the number of its process once a task, so with one task it is that number."""

    schema = "again string"

    def open(self, context):
        context.add_metric("process", os.getpid())

    async def async_invoke(self, row):
        return {"again": ",".join(row)}


def test_one_cache_is_shared_by_calls_with_its_expression(spark):
    cache = sa.Cache(key=key_of())
    known = set()

    def process_of_a_call(**given):
        metrics = sa.Metrics()
        df, function = numbered(spark), SaysItsProcess()
        assert (
            sa.unordered_wait(df, function, cache=cache, metrics=metrics, **given).count() == ROWS
        )
        counts = metrics.snapshot()
        process = counts["function.process"]
        assert counts["cache_loads"] == (0 if process in known else 7)
        return process

    # A cache is of a process, and Spark takes whichever of its idle workers it likes: until it has
    # taken one again, so all of them if it does so in turn.
    while (process := process_of_a_call()) not in known:
        known.add(process)
    # Other expressions beside it change nothing.
    by_one_way = frozenset(known)
    while (process := process_of_a_call(channel=F.col("id") % 2)) not in by_one_way:
        known.add(process)


def test_event_time_may_be_an_expression(spark):
    by_hand = numbered(spark).withColumn("at", F.timestamp_seconds("id"))

    def wait(df, column):
        strategy = sa.WatermarkStrategy.for_bounded_out_of_orderness(column, 0, every=1)
        return sa.unordered_wait(df, see, watermark=strategy)

    found = wait(numbered(spark), F.timestamp_seconds("id")).collect()

    # A watermark behind each row: no row overtakes another.
    assert [row.id for row in found] == list(range(ROWS))
    assert [row.id for row in wait(by_hand, "at").collect()] == list(range(ROWS))
    assert {row.seen for row in found} == {"id"}


def test_all_options_take_expressions_at_a_time_from_a_set_of_options(spark):
    options = sa.WaitOptions(
        channel=[F.col("id") % 2, F.col("id") % 3],
        cache=sa.Cache(key=["id", F.lower(F.lit("A"))]),
        watermark=sa.WatermarkStrategy.for_bounded_out_of_orderness(F.timestamp_seconds("id"), 0),
    )

    found = sa.key_ordered_wait(numbered(spark), see, key=key_of(), options=options)

    rows = found.collect()
    assert found.columns == ["id", "seen", "turn"]
    assert sorted(row.id for row in rows) == list(range(ROWS))
    assert {row.seen for row in rows} == {"id"}


def test_the_input_may_have_no_columns_and_names_that_are_taken(spark):
    taken = numbered(spark).withColumn("__SPARKAWAIT_KEY", F.lit("kept"))
    nothing = numbered(spark).select()

    kept = sa.key_ordered_wait(taken, see, key=key_of())
    none = sa.key_ordered_wait(nothing, see_again, key=F.lit(1))

    assert {row["__SPARKAWAIT_KEY"] for row in kept.collect()} == {"kept"}
    assert none.columns == ["again"]
    assert [row.again for row in none.collect()] == [""] * ROWS


@pytest.mark.parametrize("first", ["ordered_wait", "unordered_wait"])
def test_an_expression_of_a_later_call_of_a_chain_is_computed_before_the_first(spark, first):
    metrics = sa.Metrics()
    one = getattr(sa, first)(numbered(spark), see, channel=F.col("id") % 2)
    two = sa.unordered_wait(one, see_again, channel=F.col("id") % 3, chain=True)
    three = sa.key_ordered_wait(
        two,
        count_calls,
        key=key_of(),
        cache=sa.Cache(key=F.col("id") % 7),
        chain=True,
        metrics=metrics,
    )

    rows = three.collect()

    assert three.columns == ["id", "seen", "turn", "again", "calls"]
    assert three._jdf.queryExecution().executedPlan().toString().count("MapInArrow") == 1
    assert sorted(row.id for row in rows) == list(range(ROWS))
    assert {row.seen for row in rows} == {"id"}
    assert {row.again for row in rows} == {"id,seen,turn"}
    assert metrics.snapshot()["cache_loads"] == 7
    if first == "ordered_wait":
        assert one.count() == ROWS


def test_an_expression_of_a_chain_is_the_column_made_by_hand(spark):
    @sa.async_function("n bigint")
    async def several(row):
        return [{"n": number} for number in range(row["id"] % 3)]

    one = sa.ordered_wait(numbered(spark), several)
    found = sa.key_ordered_wait(one, see, key=key_of(), chain=True)
    by_hand = numbered(spark).withColumn("by_hand", key_of())
    one_by_hand = sa.ordered_wait(by_hand, several)
    expected = sa.key_ordered_wait(one_by_hand, see, key="by_hand", chain=True)

    def by_key(rows):
        keys = defaultdict(list)
        for row in rows:
            keys[row.id % 7].append((row.id, row.n))
        return keys

    assert by_key(found.collect()) == by_key(expected.collect())


def chained(spark, **given):
    one = sa.ordered_wait(numbered(spark), see, **given)
    return lambda **options: sa.ordered_wait(one, see_again, chain=True, **options)


def test_an_expression_over_results_of_a_call_of_the_chain_is_refused(spark):
    with pytest.raises(sa.ConfigurationError) as info:
        chained(spark)(channel=F.lower("seen"))

    text = str(info.value)
    assert text.startswith("`channel` cannot be computed before the first call of the chain, ")
    assert "or leave `chain` out" in text
    assert info.value.kind is ErrorKind.CHANNELS_INVALID


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        # Functions: without a session there are no columns.
        ("key", lambda: F.col("absent"), "`key` cannot be computed: "),
        (
            "key",
            lambda: F.create_map(F.lit("a"), F.col("id")),
            "`key` is a map<string,bigint>, whose values cannot be compared",
        ),
        ("key", lambda: [F.col("id"), 3], "`key` must be a column name or a list of them"),
        (
            "cache",
            lambda: sa.Cache(key=F.create_map(F.lit("a"), F.col("id"))),
            "`cache` is a map<string,bigint>, whose values cannot be compared",
        ),
        ("cache", lambda: sa.Cache(key=F.col("absent")), "`cache` cannot be computed: "),
        ("channel", lambda: F.lit(None), "`channel` is a void, whose values are all null"),
        (
            "watermark",
            lambda: sa.WatermarkStrategy.for_bounded_out_of_orderness(F.col("id"), 0),
            "`watermark` is a bigint, not a timestamp",
        ),
    ],
)
def test_an_expression_that_is_of_no_use_is_refused_at_once(spark, option, given, message):
    options = {"key": "id", option: given()}

    with pytest.raises(sa.ConfigurationError) as info:
        sa.key_ordered_wait(numbered(spark), see, **options)

    assert str(info.value).startswith(message)


@pytest.mark.parametrize("option", ["key", "channel"])
def test_an_expression_that_makes_several_rows_of_one_is_refused(spark, option):
    options = {"key": "id", option: F.explode(F.array("id", "id"))}

    with pytest.raises(sa.ConfigurationError, match=r"cannot be computed: .*GENERATOR") as info:
        sa.key_ordered_wait(numbered(spark), see, **options)

    assert "__sparkawait" not in str(info.value)


def test_where_nobody_computes_expressions_they_are_refused(spark):
    for given in (
        {"channel": F.col("id")},
        {"cache": sa.Cache(key=F.col("id"))},
        {"watermark": sa.WatermarkStrategy.for_bounded_out_of_orderness(F.col("id"), 0)},
    ):
        with pytest.raises(sa.ConfigurationError, match="is an expression, which only calls"):
            sa.arrow.unordered_wait([], see, **given)
    with pytest.raises(sa.ConfigurationError, match="`key` is an expression, which only"):
        sa.arrow.key_ordered_wait([], see, key=F.col("id"))
