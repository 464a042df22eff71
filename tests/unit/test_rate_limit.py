# SPDX-License-Identifier: Apache-2.0
"""Limits in time: what may be said, and that calls keep them."""

import os
import pickle
from collections import Counter

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker.metrics import merge
from sparkawait.exceptions import ErrorKind
from sparkawait.rate_limit import RateLimit, Sharing, sharers, this_process
from sparkawait.testing import simulated
from tests.support.scripted_server import ScriptedServer

ROWS = pa.record_batch({"id": range(60), "tenant": [f"t{it % 3}" for it in range(60)]})
MODES = ["ordered", "unordered", "key_ordered"]


@sa.async_function("seen bigint")
async def see(row):
    return {"seen": row["id"]}


def run(function, batch=ROWS, mode="unordered", **options):
    """Returns the rows, and what the task has counted."""
    totals = {}
    key = {"key": "id"} if mode == "key_ordered" else {}
    plan = resolve_unpickled(mode, function, input_schema=None, **options, **key)
    out = arrow.run(plan, iter([batch]), on_metrics=totals.update)
    return [row for part in out for row in part.to_pylist()], totals


def terms(limit, application="", cores=1):
    return limit.terms("f", Sharing(application, cores))


@pytest.mark.parametrize(
    ("rate", "permits", "nanos", "burst"),
    [
        ("100/s", 100, 10**9, 100),
        ("10/min", 10, 60 * 10**9, 1),
        ("5_000 / h", 5000, 3600 * 10**9, 1),
        ("20/500ms", 20, 5 * 10**8, 40),
        ("7/2 s", 7, 2 * 10**9, 3),
        ("1/day", 1, 86_400 * 10**9, 1),
    ],
)
def test_a_rate_is_permits_per_time_and_the_burst_is_a_seconds_worth(rate, permits, nanos, burst):
    found = terms(RateLimit(rate))
    assert (found.permits, found.period_nanos, found.burst) == (permits, nanos, burst)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": "fast"}, "write permits per time, as in '100/s'"),
        ({"rate": 100}, "write permits per time"),
        ({"rate": "100/parsec"}, "write permits per time"),
        ({"rate": "-5/s"}, "write permits per time"),
        ({"rate": "0/s"}, "`rate` of RateLimit must be an int of at least 1, got 0"),
        ({"rate": "1/0s"}, "for a time up to 100 days"),
        ({"rate": "5/s", "burst": 0}, "`burst` of RateLimit must be an int of at least 1, got 0"),
        ({"rate": "5/s", "burst": 1.5}, "`burst` of RateLimit must be an int"),
        ({"rate": "5/s", "cost": -1}, "`cost` of RateLimit must be an int of at least 0, got -1"),
        ({"rate": "5/s", "scope": "galaxy"}, "must be one of 'task', 'host', 'job', got 'galaxy'"),
        ({"rate": "5/s", "per_channel": 1}, "`per_channel` of RateLimit must be a bool"),
        ({"rate": "5/s", "name": ""}, "`name` of RateLimit must be a name"),
        ({"rate": "5/s", "name": "a\nb"}, "breaks or control characters, got 'a\\nb'"),
        ({"rate": "5/s", "name": "a\u2028b"}, "must have no line breaks"),
        ({"rate": "adaptive"}, "'adaptive' stands by itself, as in rate_limit='adaptive' or"),
        ({"rate": "adaptive", "scope": "job"}, "and has no `burst`, `cost` or `scope`"),
    ],
)
def test_a_wrong_limit_is_refused(arguments, message):
    with pytest.raises(sa.ConfigurationError, match="RateLimit") as caught:
        RateLimit(**arguments)
    assert caught.value.kind == ErrorKind.RATE_LIMIT_INVALID
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            "fast",
            "`rate` of RateLimit is not a rate: 'fast'; write permits per time, as in '100/s'",
        ),
        ([], "or a list of them, got []"),
        ([RateLimit("1/s"), 5], "or a list of them, got 5"),
        (["1/s", None], "or a list of them, got ['1/s', None]"),
        (["1/s", RateLimit("1/s")], "two limits called '1/s'"),
        ([RateLimit("1/s")] * 2, "two limits called '1/s'"),
        ([RateLimit(f"{it}/s") for it in range(1, 8)], "not have more than 6 limits, got 7"),
        (["adaptive", "97/s", "adaptive"], "has 'adaptive' 2 times; each channel finds one rate"),
        (["adaptive", None], "'adaptive', or a list of them, got ['adaptive', None]"),
        ("Adaptive", "not a rate: 'Adaptive'; 'adaptive' stands by itself, as in rate_limit='ad"),
        (["adaptive", *[f"{it}/s" for it in range(1, 8)]], "more than 6 limits, got 7"),
        (sa.Adaptive(1, 7), "must be a sparkawait.RateLimit, a text"),
    ],
)
def test_a_wrong_list_of_limits_is_refused(limits, message):
    with pytest.raises(sa.ConfigurationError) as caught:
        sa.WaitOptions(rate_limit=limits)
    assert caught.value.kind == ErrorKind.RATE_LIMIT_INVALID
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("total", "cost", "calls"), [(8.2, 0.82, 10), (0.07, 0.07, 1), (16.4, 1.64, 10), (1, 0.3, 3)]
)
def test_a_budget_has_all_the_calls_that_it_pays_for(total, cost, calls):
    terms = sa.Budget(total, cost=cost).terms("f", Sharing())
    assert terms.permits // terms.cost == calls


def test_a_limit_of_the_job_is_split_over_the_cores_that_may_run_it():
    found = terms(RateLimit("100/s", burst=20, scope="job"), cores=8)
    assert (found.permits, found.period_nanos, found.burst) == (100, 8 * 10**9, 2)
    assert terms(RateLimit("100/s", burst=3, scope="job"), cores=8).burst == 1
    assert terms(RateLimit("100/s"), cores=8).parts == 1


def test_an_executor_has_the_parts_of_its_cores(monkeypatch):
    limit = RateLimit("100/s", scope="job")
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    found = [
        limit.terms("f", Sharing("app-1", *it)) for it in [(13, 3), (13, None), (5, None), (5, 8)]
    ]
    assert [it.held_parts for it in found] == [3, 7, 5, 5]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "blockmgr-1")
    assert limit.terms("f", Sharing("app-1", 13, 3)).executor == "blockmgr-1"


@pytest.mark.parametrize(
    ("rate", "burst", "most"),
    [("100/min", None, 6_000), ("7/s", 3, 25_200), ("100/24h", None, 100), ("3/24h", 13, 130)],
)
def test_a_call_costs_no_more_than_one_may_take(rate, burst, most):
    assert RateLimit(rate, burst=burst, cost=most).cost == most
    with pytest.raises(sa.ConfigurationError, match=f"must not be above {most}, which") as caught:
        RateLimit(rate, burst=burst, cost=most + 1)
    assert caught.value.kind == ErrorKind.RATE_LIMIT_INVALID


def test_a_limit_of_the_job_is_shared_by_the_tasks_of_an_application():
    named = RateLimit("5/s", scope="job", name="api")
    assert terms(named, "app-1", cores=2).is_shared
    # A limit that was edited is another one, and so is that of a host.
    others = [RateLimit("6/s", scope="job", name="api"), RateLimit("5/s", scope="host", name="api")]
    names = {terms(limit, "app-1", cores=2).name for limit in [named, *others]}
    assert len(names) == 3


def test_without_spark_it_is_shared_by_the_outputs_of_the_process():
    """The first output takes all that an hour has, so the second one makes no call."""
    limit = RateLimit("7/h", burst=7, scope="job", name="api")
    rows, totals = run(see, ROWS.slice(0, 7), rate_limit=limit)
    assert (len(rows), totals["attempts"]) == (7, 7)

    @sa.async_function("other bigint")
    async def other(row):
        return {"other": row["id"]}

    plan = resolve_unpickled("unordered", other, input_schema=None, rate_limit=limit)
    out = arrow.run(plan, iter([ROWS]), heartbeat=0.013, on_metrics=totals.update)
    for _ in range(3):
        assert next(out).num_rows == 0
    out.close()
    assert totals["attempts"] == 0


def test_a_limit_of_the_process_is_told_apart_by_name_terms_and_process():
    limits = [
        RateLimit("5/s", scope="job", name="api"),
        RateLimit("5/s", scope="job", name="other"),
        RateLimit("6/s", scope="job", name="api"),
        RateLimit("5/s", scope="job"),
        RateLimit("5/s", scope="host", name="api"),
    ]
    names = [terms(limit).name for limit in limits]
    assert len(set(names)) == len(names)
    assert names == [terms(limit).name for limit in limits]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, terms(limits[0]).name.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000).decode() != names[0]
    os.close(read)
    os.close(write)


def test_limits_of_a_process_have_a_page_of_their_own_unless_the_host_shares_some():
    of_job, of_host = RateLimit("5/s", scope="job"), RateLimit("5/s", scope="host")
    assert sharers("app-1", [of_job]) == "app-1"
    assert sharers("", [of_job, of_host]) == ""
    assert sharers("", [of_job]) == this_process()


def test_limits_of_a_host_are_told_apart_by_name_or_function():
    names = [
        terms(limit, application).name
        for application in ("app-1", "")
        for limit in (RateLimit("1/s"), RateLimit("2/s"), RateLimit("1/s", name="api"))
    ]
    assert len(set(names)) == len(names)
    assert terms(RateLimit("2/s", name="api"), "app-1").name == "api"


def test_limits_travel():
    limits = (RateLimit("1/s"), RateLimit("2/s", scope="host"))
    assert pickle.loads(pickle.dumps(limits)) == limits  # noqa: S301 - of our own


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scope", ["task", "host", "job"])
@pytest.mark.parametrize("channel", [None, "tenant"])
def test_every_row_pays_and_none_is_too_late(mode, scope, channel):
    limit = RateLimit("100/s", burst=30, scope=scope, name=f"{mode} {scope} {channel}")

    rows, totals = run(see, mode=mode, rate_limit=limit, channel=channel, timeout="5s")

    assert sorted(row["seen"] for row in rows) == list(range(60))
    assert totals["rate_limits"] == {limit.label: {"permits": 60, "parts": 1}}
    assert totals["timeouts"] == 0
    assert totals["held"] > 0


def test_each_channel_may_have_a_limit_of_its_own():
    limits = [RateLimit("1000/s", per_channel=True, cost=2), RateLimit("5000/s", name="all")]
    rows, totals = run(see, rate_limit=limits, channel="tenant")
    assert len(rows) == 60
    permits = {name: counts["permits"] for name, counts in totals["rate_limits"].items()}
    assert permits == {"1000/s": 120, "all": 60}


@pytest.mark.parametrize("channel", [None, "tenant"])
def test_what_a_cache_knows_or_asks_once_does_not_pay(channel):
    tenants = len(set(ROWS["tenant"].to_pylist()))
    cache, limit = sa.Cache(key="tenant"), RateLimit("100/s", burst=5)

    for calls in (tenants, 0):
        rows, totals = run(see, rate_limit=limit, cache=cache, channel=channel, timeout="5s")

        assert len(rows) == 60
        assert totals["rate_limits"] == {"100/s": {"permits": calls, "parts": 1}}


@pytest.mark.parametrize("channel", [None, "tenant"])
def test_a_row_that_is_not_called_for_does_not_pay(channel):
    # Of ten rows a null key, and a text that is no text.
    keys = pa.array([b"k", None, b"\xff", *[b"k"] * 7]).view(pa.string())
    batch = pa.record_batch({"key": keys, "tenant": ["a"] * 10})
    with ScriptedServer(lambda *_: (200, {}, b'{"n": 7}')) as server:
        function = sa.http.get(f"{server.url}/{{key}}", "n int", client=sa.http.Client(proxy=False))
        limit = RateLimit("100/s", burst=4)
        rows, totals = run(function, batch, rate_limit=limit, channel=channel, on_error="drop")

        assert len(server.targets) == 8
    assert sorted(row["n"] or 0 for row in rows) == [0, *[7] * 8]
    assert totals["rate_limits"]["100/s"]["permits"] == 8


def test_retries_pay():
    @sa.async_function("seen bigint")
    async def fail_once(row):
        calls[row["id"]] += 1
        if calls[row["id"]] == 1:
            raise ConnectionResetError
        return {"seen": row["id"]}

    calls = Counter()
    limit = RateLimit("1000/s")
    rows, totals = run(fail_once, rate_limit=limit, retry=sa.retry.fixed_delay(2, "1ms"))
    assert len(rows) == 60
    assert totals["rate_limits"]["1000/s"]["permits"] == 120


def test_a_native_function_keeps_a_limit_in_a_chain():
    first = arrow.unordered_wait([ROWS], see, rate_limit=RateLimit("500/s", burst=20))
    limits = [RateLimit("400/s", burst=10), RateLimit("20000/min", name="minute")]
    native = simulated()
    out = arrow.ordered_wait(first, native, chain=True, rate_limit=limits, timeout="5s")
    assert sorted(pa.Table.from_batches(out)["seen"].to_pylist()) == list(range(60))


def test_metrics_of_limits_are_added():
    one = {"rate_limits": {"a": {"permits": 3, "parts": 2}}, "held": 0.5}
    other = {"rate_limits": {"a": {"permits": 4, "parts": 2}, "b": {"permits": 1, "parts": 1}}}
    assert merge(one, other) == {
        "rate_limits": {"a": {"permits": 7, "parts": 2}, "b": {"permits": 1, "parts": 1}},
        "held": 0.5,
    }
