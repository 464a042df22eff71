# SPDX-License-Identifier: Apache-2.0
"""Results that are kept: what a user sees of it."""

import asyncio
import pickle
import struct
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow, testing
from sparkawait._plan import resolve as options
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import ErrorKind
from sparkawait.testing import simulated


def words(*values):
    return [
        pa.RecordBatch.from_pydict(
            {"word": pa.array(values, pa.string()), "n": list(range(len(values)))}
        )
    ]


class Counting(sa.AsyncFunction):
    """Notes each call; fails or finds nothing for some words."""

    schema = "length bigint"

    def __init__(self):
        self.called = []

    async def async_invoke(self, row):
        self.called.append(row["word"])
        await asyncio.sleep(0)
        if row["word"] == "bad":
            msg = "bad word"
            raise ValueError(msg)
        return [] if row["word"] == "none" else {"length": len(row["word"] or "")}


def lengths(batches):
    return [length for batch in batches for length in batch["length"].to_pylist()]


def test_tasks_that_get_one_cache_share_its_results():
    function, cache = Counting(), sa.Cache(key="word")

    first = lengths(arrow.ordered_wait(words("a", "bb", "a"), function, cache=cache))
    second = lengths(arrow.unordered_wait(words("bb", "bb"), function, cache=cache))

    assert (first, second) == ([1, 2, 1], [2, 2])
    assert sorted(function.called) == ["a", "bb"]


def test_a_pickled_cache_is_the_same_cache():
    function, cache = Counting(), sa.Cache(key="word")

    for copy in (cache, pickle.loads(pickle.dumps(cache))):  # noqa: S301
        lengths(arrow.ordered_wait(words("a"), function, cache=copy))

    assert function.called == ["a"]


def test_another_cache_knows_nothing():
    function = Counting()

    for cache in (sa.Cache(key="word"), sa.Cache(key="word")):
        lengths(arrow.ordered_wait(words("a"), function, cache=cache))

    assert function.called == ["a", "a"]


def test_null_is_a_key_like_any_other():
    function, cache = Counting(), sa.Cache(key="word")

    assert lengths(arrow.ordered_wait(words(None, None, "a"), function, cache=cache)) == [0, 0, 1]
    assert function.called == [None, "a"]


def test_failures_are_not_kept():
    function, cache = Counting(), sa.Cache(key="word")

    for _ in range(2):
        output = arrow.ordered_wait(words("bad", "bad"), function, cache=cache, on_error="null")
        assert lengths(output) == [None, None]

    assert function.called == ["bad", "bad"]


@pytest.mark.parametrize(("cache_missing", "calls"), [(True, 1), (False, 2)])
def test_that_a_key_has_no_result_is_kept_by_default(cache_missing, calls):
    function, cache = Counting(), sa.Cache(key="word", cache_missing=cache_missing)

    for _ in range(2):
        assert lengths(arrow.ordered_wait(words("none", "none"), function, cache=cache)) == []

    assert len(function.called) == calls


def test_a_retried_miss_is_tried_by_one_call_at_a_time():
    function, cache = Counting(), sa.Cache(key="word")
    retry = sa.retry.fixed_delay(2, 0).if_miss()

    output = arrow.ordered_wait(words("none", "none"), function, cache=cache, retry=retry)

    assert lengths(output) == []
    assert len(function.called) <= 2 * 3


def test_key_columns_may_be_nested():
    function = Counting()
    batch = pa.RecordBatch.from_pydict({"word": ["a", "a"], "n": [{"x": [1]}, {"x": [1]}]})

    lengths(arrow.ordered_wait([batch], function, cache=sa.Cache(key=["word", "n"])))

    assert function.called == ["a"]


def test_all_types_of_results_are_kept():
    rows = {
        "i": pa.array([1, None], pa.int64()),
        "d": pa.array([None, "1.25"], pa.string()).cast(pa.decimal128(20, 4)),
        "t": pa.array([1, 2], pa.timestamp("us", "UTC")),
        "s": pa.array([{"x": [1, None]}, None]),
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "b": pa.array([b"\x00\xff", b""]),
    }
    answer = pa.RecordBatch.from_pydict(rows)

    @sa.async_function(answer.schema)
    async def load(row):
        return answer.to_pylist()[row["k"]]

    cache = sa.Cache(key="k")
    keys = [pa.RecordBatch.from_pydict({"k": [0, 1]})]

    for _ in range(2):
        (output,) = arrow.ordered_wait(
            keys,
            load,
            cache=cache,
            tuning=sa.Tuning(buffer_timeout=None),
        )
        assert output.select(answer.schema.names).to_pylist() == answer.to_pylist()


def test_metrics_count_hits_misses_and_loads():
    plan = resolve_unpickled(
        "ordered", Counting(), input_schema=None, cache=sa.Cache(key="word"), capacity=1
    )
    totals = {}

    list(arrow.run(plan, iter(words("a", "b", "a")), on_metrics=totals.update))

    counted = {name: totals[name] for name in totals if name.startswith("cache_")}
    assert counted == {
        "cache_hits": 1,
        "cache_misses": 2,
        "cache_loads": 2,
        "cache_evictions": 0,
    }


def test_a_task_without_a_cache_counts_none():
    plan = resolve_unpickled("ordered", Counting(), input_schema=None)
    totals = {}

    list(arrow.run(plan, iter(words("a")), on_metrics=totals.update))

    assert not [name for name in totals if name.startswith("cache_")]


def test_native_functions_that_differ_do_not_share_results():
    cache = sa.Cache(key="word")

    for seed in (1, 2):
        plan = resolve_unpickled("ordered", simulated(seed=seed), input_schema=None, cache=cache)
        totals = {}
        list(arrow.run(plan, iter(words("a", "a")), on_metrics=totals.update))
        assert totals["cache_loads"] == 1


def length_times(factor):
    @sa.async_function("length bigint")
    async def scaled(row):
        return {"length": factor * len(row["word"])}

    return scaled


class Scaled(sa.AsyncFunction):
    """Instances have one name and different attributes."""

    schema = "length bigint"

    def __init__(self, factor):
        self.factor = factor

    async def async_invoke(self, row):
        return {"length": self.factor * len(row["word"])}

    async def scale(self, row):
        return {"length": self.factor * len(row["word"])}


@pytest.mark.parametrize(
    "make",
    [length_times, Scaled, lambda factor: Scaled(factor).scale],
    ids=["closures", "instances", "methods"],
)
@pytest.mark.parametrize("travels", [True, False])
def test_functions_of_one_name_that_differ_do_not_share_results(make, travels):
    if travels:
        pytest.importorskip("pyspark.cloudpickle")
    cache, found = sa.Cache(key="word"), []
    resolve = options.resolve if travels else resolve_unpickled

    for factor in (1, 2):
        plan = resolve("ordered", make(factor), input_schema=None, cache=cache, schema="length int")
        found.append(lengths(arrow.run(plan, iter(words("abc")))))

    assert found == [[3], [6]]


def test_a_function_that_is_sent_is_the_same_however_often_it_is_given():
    pytest.importorskip("pyspark.cloudpickle")
    cache = sa.Cache(key="word")

    def identity(function):
        plan = options.resolve(
            "ordered", function, input_schema=None, cache=cache, schema="length int"
        )
        again = pickle.loads(pickle.dumps(replace(plan, function=Counting())))  # noqa: S301
        assert again.identity == plan.identity
        return plan.identity

    closure, instance = length_times(3), Scaled(3)
    assert identity(closure) == identity(closure)
    assert identity(closure.function) == identity(closure.function)
    assert identity(instance) == identity(Scaled(3))
    assert identity(instance.scale) == identity(instance.scale)
    before = identity(instance)
    instance.factor = 4
    assert identity(instance) != before


def test_a_method_is_the_same_function_whenever_it_is_asked_for():
    cache, instance = sa.Cache(key="word"), Scaled(2)

    loads = []
    for _ in range(2):
        plan = resolve_unpickled(
            "ordered", instance.scale, input_schema=None, cache=cache, schema="length int"
        )
        totals = {}
        list(arrow.run(plan, iter(words("a")), on_metrics=totals.update))
        loads.append(totals["cache_loads"])

    assert loads == [1, 0]


@pytest.mark.parametrize("schemas", [("y int", "y int not null"), ("y int not null", "y int")])
def test_schemas_that_differ_in_nullability_work_with_one_cache(schemas):
    @sa.async_function("y int")
    async def half(row):
        return {"y": row["n"] // 2 if row["n"] % 2 == 0 else None}

    cache = sa.Cache(key="n")
    batches = words("a", "b", "c")

    found = {}
    for schema in schemas * 2:
        output = arrow.ordered_wait(batches, half, schema=schema, cache=cache, on_error="drop")
        found[schema] = [value for batch in output for value in batch["y"].to_pylist()]

    assert found == {"y int": [0, None, 1], "y int not null": [0, 1]}


def test_ways_to_handle_errors_share_results_that_must_not_be_null():
    function, cache = Counting(), sa.Cache(key="word")

    for on_error in ("fail", "null", "capture", "fail"):
        output = arrow.ordered_wait(
            words("a"), function, schema="length int not null", cache=cache, on_error=on_error
        )
        assert lengths(output) == [1]

    assert function.called == ["a"]


def test_equal_floats_are_one_key_however_they_are_stored():
    calls = []

    @sa.async_function("y int")
    async def count(row):
        calls.append(row["x"])
        return {"y": len(calls)}

    other = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    values = pa.array([0.0, -0.0, float("nan"), other, 1.0])
    plain = pa.RecordBatch.from_pydict({"x": values})
    nested = pa.RecordBatch.from_pydict(
        {"x": pa.array([[{"v": value}] for value in values.to_pylist()])}
    )

    for batch in (plain, nested):
        cache = sa.Cache(key="x")
        (output,) = arrow.ordered_wait(
            [batch], count, cache=cache, tuning=sa.Tuning(buffer_timeout=None)
        )
        first = output["y"].to_pylist()[0]
        assert output["y"].to_pylist() == [first, first, first + 1, first + 1, first + 2]


@pytest.mark.parametrize("nested", [False, True])
def test_a_map_is_no_key(nested):
    column = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    column = pa.StructArray.from_arrays([column], ["m"]) if nested else column
    batch = pa.RecordBatch.from_pydict({"m": column})

    for options_ in ({"cache": sa.Cache(key="m")}, {"channel": "m"}):
        with pytest.raises(sa.ConfigurationError, match=r"`m` of type .*, whose values cannot be"):
            list(arrow.ordered_wait([batch], Counting(), **options_))
    with pytest.raises(sa.ConfigurationError, match="`key` names column `m` of type"):
        list(arrow.key_ordered_wait([batch], Counting(), key="m"))


@dataclass(frozen=True)
class Named(testing.Simulated):
    """A native function that reads a column."""

    input_columns = ("word",)


def test_a_native_function_knows_its_key():
    named = Named(simulated().latency, 0.0, 0)
    totals = {}

    plan = resolve_unpickled("ordered", named, input_schema=None, cache=sa.Cache())
    list(arrow.run(plan, iter(words("a", "a", "b")), on_metrics=totals.update))

    assert totals["cache_loads"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rows": 0}, "`max_rows` must be an int of at least 1, got 0"),
        ({"max_bytes": 1.5}, "`max_bytes` must be an int of bytes or a text .* got 1.5"),
        ({"max_rows": None}, "needs `max_rows` or `max_bytes`, got None for both"),
        ({"expire_after_write": 0}, "`expire_after_write`"),
        ({"expire_after_access": "soon"}, "`expire_after_access`"),
        ({"cache_missing": 1}, "`cache_missing` must be a bool, got 1"),
        ({"key": []}, "`key` of a Cache must be a column name or a list of them"),
        ({"key": 5}, "`key` of a Cache must be a column name or a list of them"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        sa.Cache(**options)


@pytest.mark.parametrize(
    ("cache", "kind", "message"),
    [
        ({}, ErrorKind.CACHE_INVALID, "`cache` must be a sparkawait.Cache, True, or .* got {}"),
        (sa.Cache(), ErrorKind.CACHE_INVALID, "needs the columns that the result of `Counting`"),
    ],
)
def test_a_wrong_cache_is_refused(cache, kind, message):
    with pytest.raises(sa.ConfigurationError, match=message) as info:
        arrow.ordered_wait(words("a"), Counting(), cache=cache)
    assert info.value.kind is kind


def test_a_key_column_that_does_not_exist_is_refused():
    with pytest.raises(sa.ConfigurationError, match="`cache` names column `nope`"):
        list(arrow.ordered_wait(words("a"), Counting(), cache=sa.Cache(key="nope")))


def test_instants_in_another_time_zone_are_not_the_same():
    cache = sa.Cache(key="at")

    @sa.async_function("shown string")
    async def show(row):
        return {"shown": str(row["at"])}

    def shown(zone):
        at = pa.array([1_720_000_000_000_000], pa.timestamp("us", zone))
        (out,) = arrow.ordered_wait([pa.RecordBatch.from_pydict({"at": at})], show, cache=cache)
        return out["shown"].to_pylist()

    assert shown("UTC") == ["2024-07-03 09:46:40+00:00"]
    assert shown("Asia/Kolkata") == ["2024-07-03 15:16:40+05:30"]
