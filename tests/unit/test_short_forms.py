# SPDX-License-Identifier: Apache-2.0
"""A short form of an option is equal to an object of its class."""

from dataclasses import replace

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import ConfigurationError, WaitOptions, arrow, http, postgres, redis
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import ErrorKind
from sparkawait.rate_limit import Limits
from sparkawait.retry import ONLY_REFUSED, exponential_backoff
from sparkawait.testing import OperatorTestHarness

SHORT = [
    ("retry", 3, exponential_backoff(3)),
    ("retry", 7, exponential_backoff(7)),
    ("rate_limit", "100/s", sa.RateLimit("100/s")),
    (
        "rate_limit",
        ["7/s", sa.RateLimit("90/min", cost=3)],
        [sa.RateLimit("7/s"), sa.RateLimit("90/min", cost=3)],
    ),
    ("hedge", True, sa.Hedge()),
    ("hedge", "p95", sa.Hedge(after="p95")),
    ("hedge", "300ms", sa.Hedge(after="300ms")),
    ("hedge", False, None),
    ("carry_over", True, sa.CarryOver()),
    ("carry_over", False, None),
    ("circuit_breaker", True, sa.CircuitBreaker()),
    ("circuit_breaker", False, None),
    ("channel", "x", sa.Channel("x")),
    ("channel", ["x", "y"], sa.Channel(["x", "y"])),
    ("cache", False, None),
]


def test_no_retries_are_another_thing_than_nothing_said():
    assert WaitOptions(retry=0).retry is None
    assert WaitOptions(retry=None).retry == WaitOptions().retry == ONLY_REFUSED
    again = WaitOptions(**WaitOptions(retry=0).given)
    assert again.retry is None


@pytest.mark.parametrize(("name", "short", "full"), SHORT, ids=lambda it: repr(it)[:40])
def test_a_short_form_is_the_object_that_it_stands_for(name, short, full):
    made = getattr(WaitOptions(**{name: short}), name)
    assert made == getattr(WaitOptions(**{name: full}), name)


@pytest.mark.parametrize(
    ("short", "full"),
    [("10min", sa.Cache(expire_after_write="10min")), (True, sa.Cache())],
    ids=repr,
)
def test_a_short_form_of_a_cache_has_the_settings_of_the_class_and_is_a_cache_of_its_own(
    short, full
):
    made, other = WaitOptions(cache=short).cache, WaitOptions(cache=short).cache
    assert made.id != other.id != full.id
    settings = [replace(it) for it in (made, full)]
    for it in settings:
        object.__setattr__(it, "id", "one")
    assert settings[0] == settings[1]


def test_calls_with_one_set_of_options_share_the_cache_of_its_short_form():
    calls = []

    class Lookup(sa.AsyncFunction):
        schema = "y int"

        async def async_invoke(self, row):
            calls.append(row["x"])
            return {"y": row["x"]}

    usual, lookup = WaitOptions(cache="10min"), http.get("https://h/{x}", "y int")
    ids = {
        resolve_unpickled(
            "ordered", lookup, input_schema=None, options=usual, **given
        ).options.cache.id
        for given in ({}, {"timeout": "7s"}, {"on_error": "null"})
    }
    assert ids == {usual.cache.id}
    # A Python function sees all columns, and says which ones it depends on.
    with pytest.raises(ConfigurationError, match=r"write Cache\(\.\., key="):
        arrow.ordered_wait([pa.record_batch({"x": [1]})], Lookup(), options=usual)


def test_a_set_with_short_forms_is_that_with_the_objects():
    short = WaitOptions(retry=3, hedge="p90", channel="x", circuit_breaker=True, timeout="7s")
    full = WaitOptions(
        retry=exponential_backoff(3),
        hedge=sa.Hedge(after="p90"),
        channel=sa.Channel("x"),
        circuit_breaker=sa.CircuitBreaker(),
        timeout="7s",
    )
    assert short == full
    assert short.given["timeout"] == "7s"


def test_retries_have_defaults():
    strategy = exponential_backoff()
    assert strategy == exponential_backoff(3, "100ms", "10s", 2, jitter="full")
    delays = [strategy.get_backoff_time_millis(attempt) for attempt in range(1, 10)]
    assert delays == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]


def test_a_rate_that_follows_refusals_is_one_of_the_limits():
    assert not WaitOptions().rate_limit.is_adaptive
    assert not WaitOptions(rate_limit="97/s").rate_limit.is_adaptive
    for alone in ("adaptive", ["adaptive"], ("adaptive",)):
        assert WaitOptions(rate_limit=alone).rate_limit == Limits(is_adaptive=True)
    known = sa.RateLimit("97/s", burst=13), sa.RateLimit("7/min", name="adaptive")
    for several in (["adaptive", *known], [known[0], "adaptive", known[1]]):
        assert WaitOptions(rate_limit=several).rate_limit == Limits(known, is_adaptive=True)


@pytest.mark.parametrize(
    ("name", "wrong", "kind", "message"),
    [
        ("retry", True, "retry-invalid", "a number of retries, or 0 for none, got True"),
        ("retry", -1, "retry-invalid", "`max_retries` must be an int of at least 1, got -1"),
        ("retry", 2**31, "retry-invalid", "`max_retries` must be at most 2147483647"),
        ("retry", 1.5, "retry-invalid", "`retry` must be made by sparkawait.retry, a number"),
        (
            "rate_limit",
            True,
            "rate-limit-invalid",
            "'100/s' for its `rate`, 'adaptive', or a list of them",
        ),
        (
            "cache",
            "soon",
            "duration-invalid",
            "`expire_after_write` is not a duration: 'soon'; write",
        ),
        ("cache", 600, "cache-invalid", "'10min' for its `expire_after_write`, got 600"),
        ("hedge", "p200", "option-invalid", "a duration such as '200ms', got 'p200'"),
        ("hedge", 0.3, "option-invalid", "or '300ms' for its `after`, got 0.3"),
        ("carry_over", "50ms", "option-invalid", "a sparkawait.CarryOver or True, got '50ms'"),
        ("circuit_breaker", 5, "option-invalid", "sparkawait.CircuitBreaker or True, got 5"),
        ("channel", True, "channels-invalid", "or a sparkawait.Channel, got True"),
        (
            "channel",
            3,
            "channels-invalid",
            "`columns` of Channel must be a column name or a list of them, got 3",
        ),
    ],
)
def test_a_wrong_short_form_is_refused_with_its_option_its_value_and_its_rule(
    name, wrong, kind, message
):
    with pytest.raises(ConfigurationError) as info:
        WaitOptions(**{name: wrong})
    assert info.value.kind == kind
    assert str(info.value).startswith(f"`{name}` must be ")
    assert message in str(info.value)


def batched(batch):
    @sa.async_function("y int", batch=batch)
    async def double(rows):
        return [{"y": 2 * row["x"]} for row in rows]

    return double


class Batched(sa.AsyncFunction):
    schema = "y int"
    batch = 7

    async def async_invoke_batch(self, rows):
        assert len(rows) <= 7
        return [{"y": 2 * row["x"]} for row in rows]


def post(batch):
    body = {"input": http.each("{x}")}
    return http.post("https://h", "y int", json=body, batch=batch)


def test_a_number_of_rows_is_a_batch():
    for function in (batched(7), Batched(), post(7)):
        plan = resolve_unpickled("ordered", function, input_schema=None)
        assert plan.batch == sa.Batch(max_rows=7)
    out = arrow.ordered_wait([pa.record_batch({"x": [*range(17)]})], Batched())
    assert pa.Table.from_batches(out)["y"].to_pylist() == [2 * x for x in range(17)]


@pytest.mark.parametrize("make", [batched, post])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (True, "an int for its `max_rows`, got True"),
        ("64", "an int for its `max_rows`, got '64'"),
        (0, "`max_rows` must be an int of at least 1, got 0"),
    ],
)
def test_a_wrong_number_of_rows_is_refused(make, wrong, message):
    with pytest.raises(ConfigurationError) as info:
        make(wrong)
    assert info.value.kind is ErrorKind.BATCH_INVALID
    assert str(info.value).startswith("`batch` must be a sparkawait.Batch")
    assert message in str(info.value)


def test_bytes_are_said_as_texts_wherever_they_are_bounded():
    assert sa.Batch(max_bytes="3 KB") == sa.Batch(max_bytes=3072)
    assert sa.Cache(max_bytes="1.5 MB").max_bytes == 3 << 19
    assert http.Client(max_reply_bytes="5 MB").max_reply_bytes == 5 << 20
    lookup = {"schema": "y int", "max_reply_bytes": "5 MB"}
    sql = postgres.lookup("host=h", "select 1 as y where 1 = $1", ["x"], **lookup)
    assert sql.options.max_reply_bytes == 5 << 20
    redis.get("redis://h", "{x}", **lookup)


def bounded(name, size):
    """Makes what has a bound in bytes."""
    reply = {"schema": "y int", "max_reply_bytes": size}
    return {
        "Batch": lambda: sa.Batch(max_bytes=size),
        "Cache": lambda: sa.Cache(max_bytes=size),
        "http": lambda: http.Client(max_reply_bytes=size),
        "redis": lambda: redis.get("redis://h", "{x}", **reply),
        "postgres": lambda: postgres.lookup("host=h", "select $1", ["x"], **reply),
    }[name]()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Batch", "batch-invalid"),
        ("Cache", "cache-invalid"),
        ("http", "option-invalid"),
        ("redis", "option-invalid"),
        ("postgres", "option-invalid"),
    ],
)
@pytest.mark.parametrize(
    ("size", "message"), [("5 XB", "not a size: '5 XB'; write"), (0, "got 0"), (True, "got True")]
)
def test_what_is_no_number_of_bytes_is_refused(name, kind, size, message):
    with pytest.raises(ConfigurationError) as info:
        bounded(name, size)
    assert info.value.kind == kind
    assert message in str(info.value)


def test_the_harness_takes_a_number_of_retries():
    harness = OperatorTestHarness(mode="ordered", capacity=2, timeout=5, retry=1)
    harness.process_element("a", timestamp=1)
    harness.fail(harness.invocations[0], ConnectionError())
    harness.run()
    harness.advance(0.1)
    assert [it.attempt for it in harness.invocations] == [1, 2]
