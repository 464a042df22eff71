# SPDX-License-Identifier: Apache-2.0
"""Channels: a destination that stands still does not hold the others."""

import asyncio
import pickle
from collections import Counter

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve, resolve_unpickled
from sparkawait.exceptions import ErrorKind
from sparkawait.limits import Credits


def batch(tenants, start=0):
    numbers = list(range(start, start + len(tenants)))
    return pa.RecordBatch.from_pydict({"tenant": pa.array(tenants, pa.string()), "n": numbers})


def numbers(batches):
    return [n for batch in batches for n in batch["n"].to_pylist()]


class Tenants(sa.AsyncFunction):
    """Answers all but one tenant at once; that one waits until `enough` others were answered."""

    schema = "m bigint"

    def __init__(self, *, slow="slow", enough=0):
        self.slow = slow
        self.enough = enough
        self.running = Counter()
        self.most = Counter()
        self.order = []

    def open(self, context):
        self.released = asyncio.Event()

    async def async_invoke(self, row):
        tenant = row["tenant"]
        self.running[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self.running[tenant])
        await (self.released.wait() if tenant == self.slow else asyncio.sleep(0))
        self.running[tenant] -= 1
        self.order.append(row["n"])
        if len(self.order) >= self.enough:
            self.released.set()
        return {"m": row["n"]}


MIXED = ["slow", "a", "slow", "b", "slow", "a", "slow", "b"] * 100


@pytest.mark.parametrize("mode", ["unordered_wait", "ordered_wait", "key_ordered_wait"])
def test_a_stalled_channel_does_not_stop_the_calls_of_the_others(mode):
    # Ordered mode holds the results of the others, so it needs slots for them.
    capacity = 1_000 if mode == "ordered_wait" else 8
    function = Tenants(enough=400)
    key = {"key": "n"} if mode == "key_ordered_wait" else {}
    out = getattr(arrow, mode)(
        [batch(MIXED)],
        function,
        capacity=capacity,
        max_concurrency=8,
        channel=sa.Channel("tenant", max_per_channel=3),
        timeout=None,
        tuning=sa.Tuning(warm_up=False),
        **key,
    )

    emitted = numbers(out)

    assert sorted(emitted) == list(range(800))
    if mode == "ordered_wait":
        assert emitted == list(range(800))
    first = function.order[:400]
    assert all(MIXED[n] != "slow" for n in first)
    assert function.most["slow"] == 3


def test_rows_of_null_are_a_channel_of_their_own():
    function = Tenants(slow=None, enough=50)
    tenants = [None, "null", "a", None] * 50

    out = arrow.unordered_wait(
        [batch(tenants)], function, channel="tenant", capacity=4, timeout=None
    )

    assert sorted(numbers(out)) == list(range(200))
    assert None not in [tenants[n] for n in function.order[:50]]


def test_several_columns_make_a_channel():
    function = Tenants(enough=0)
    rows = batch(["a"] * 20)

    out = arrow.unordered_wait(
        [rows],
        function,
        channel=sa.Channel(["tenant", "n"], max_per_channel=1),
        max_concurrency=4,
    )

    assert sorted(numbers(out)) == list(range(20))
    assert function.most["a"] > 1


class OneAtATime(sa.AsyncFunction):
    """Counts the rows that it has answered."""

    schema = "m bigint"

    def __init__(self):
        self.answered = 0

    async def async_invoke(self, row):
        await asyncio.sleep(0)
        self.answered += 1
        return {"m": row["n"]}


@pytest.mark.parametrize("bounds", [{}, {"max_backlog_per_channel": 5}])
def test_the_input_stops_when_the_backlog_is_used_up(bounds):
    function = OneAtATime()
    ahead = []

    def batches():
        for start in range(0, 2_000, 10):
            ahead.append(start - function.answered)
            yield batch(["a"] * 10, start)

    channel = sa.Channel("tenant", max_per_channel=3, max_backlog=20, **bounds)
    options = {"capacity": 50, "max_concurrency": 3, "timeout": None}
    out = arrow.unordered_wait(batches(), function, channel=channel, **options)

    assert sorted(numbers(out)) == list(range(2_000))
    # Rows that wait for a credit or hold a slot, three batches read ahead, one half admitted.
    in_flight = 3 + 20 if not bounds else 50 + 5
    assert max(ahead) <= in_flight + 40


class Failing(sa.AsyncFunction):
    """One tenant is dead, the others answer; `others` is set when all of them did."""

    schema = "m bigint"

    def __init__(self, others):
        self.others = others
        self.order = []

    async def async_invoke(self, row):
        if row["tenant"] == "dead":
            if len(self.order) < self.others:
                msg = "connection refused"
                raise ConnectionError(msg)
        else:
            self.order.append(row["n"])
        return {"m": row["n"]}


def test_rows_in_back_off_of_a_dead_channel_take_no_slots_of_the_others():
    function = Failing(others=400)
    tenants = ["dead", "a"] * 400

    out = arrow.unordered_wait(
        [batch(tenants)],
        function,
        capacity=4,
        channel="tenant",
        retry=sa.retry.fixed_delay(1_000, "10ms"),
        timeout="60s",
    )

    assert sorted(numbers(out)) == list(range(800))
    assert function.order == sorted(function.order)


def test_rows_that_wait_for_a_destination_that_never_answers_fail_and_no_others():
    function = Tenants(enough=10**9)
    tenants = ["slow", "a"] * 50

    out = arrow.unordered_wait(
        [batch(tenants)],
        function,
        channel=sa.Channel("tenant", max_per_channel=1),
        timeout="1s",
        on_error="capture",
    )
    failed = {}
    for output in out:
        for n, error in zip(output["n"].to_pylist(), output["error"].to_pylist(), strict=True):
            failed[n] = error and error["kind"]

    assert [failed[n] for n in range(1, 100, 2)] == [None] * 50
    of_slow = Counter(failed[n] for n in range(0, 100, 2))
    # One is called in this time, and nothing is answered; the others have waited for as long then.
    assert set(of_slow) == {"element-timed-out", "destination-unavailable"}
    assert of_slow["element-timed-out"] <= 3


def test_metrics_name_the_channels_and_say_who_starved():
    totals = {}
    function = Tenants(enough=60)
    plan = resolve_unpickled(
        "unordered",
        function,
        input_schema=None,
        channel=sa.Channel("tenant", max_per_channel=2),
        timeout=None,
    )

    tenants = ["slow", "a", None] * 30
    list(arrow.run(plan, iter([batch(tenants)]), on_metrics=totals.update))

    channels = totals["channels"]
    assert {name: counts["calls"] for name, counts in channels.items()} == {
        "slow": 30,
        "a": 30,
        None: 30,
    }
    assert channels["slow"]["starved"] > 0
    assert channels["slow"]["latency"] > 0
    assert all(counts["backlog"] == counts["in_flight"] == 0 for counts in channels.values())
    assert totals["active_channels"] == 0
    assert totals["other_channels"]["calls"] == 0


def test_metrics_add_the_channels_that_are_not_shown():
    totals = {}
    plan = resolve_unpickled("unordered", Tenants(), input_schema=None, channel="n", timeout=None)

    list(arrow.run(plan, iter([batch(["a"] * 5_000)]), on_metrics=totals.update))

    assert len(totals["channels"]) == 16
    shown = sum(counts["calls"] for counts in totals["channels"].values())
    assert shown + totals["other_channels"]["calls"] == 5_000


def test_without_channels_no_metrics_speak_of_them():
    totals = {}
    plan = resolve_unpickled("unordered", Tenants(), input_schema=None)

    list(arrow.run(plan, iter([batch(["a"])]), on_metrics=totals.update))

    assert "channels" not in totals


@pytest.mark.parametrize(
    ("concurrency", "channel", "expected"),
    [
        (100, sa.Channel(), Credits(2, 80, 10, 10_000, 10_000)),
        (1_000, sa.Channel(), Credits(20, 800, 100, 10_000, 10_000)),
        (100, sa.Channel(count=3), Credits(6, 82, 34, 10_000, 10_000)),
        (100, sa.Channel(max_per_channel=1, max_backlog=50), Credits(1, 90, 1, 50, 50)),
        (97, sa.Channel(max_per_channel=97), Credits(1, 87, 97, 10_000, 10_000)),
        (100, sa.Channel(max_backlog_per_channel=5), Credits(2, 80, 10, 10_000, 5)),
        (4, sa.Channel(), Credits(0, 4, 1, 10_000, 10_000)),
        (19, sa.Channel(), Credits(0, 19, 2, 10_000, 10_000)),
        (23, sa.Channel(), Credits(1, 13, 3, 10_000, 10_000)),
        (1, sa.Channel(), Credits(0, 1, 1, 10_000, 10_000)),
        (100, sa.Channel(count=1_000), Credits(0, 100, 1, 10_000, 10_000)),
    ],
)
def test_defaults_follow_the_concurrency_and_the_expected_channels(concurrency, channel, expected):
    assert channel.resolve(concurrency, 100) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"max_per_channel": 0},
            "`max_per_channel` of Channel must be an int of at least 1, got 0",
        ),
        ({"max_backlog": True}, "`max_backlog` of Channel must be an int of at least 1, got True"),
        ({"count": 2**40}, "`count` of Channel must be at most 2147483647, got 1099511627776"),
    ],
)
def test_wrong_channels_are_refused_when_they_are_made(arguments, message):
    with pytest.raises(sa.ConfigurationError) as info:
        sa.Channel(**arguments)

    assert str(info.value).startswith(message)
    assert info.value.kind is ErrorKind.CHANNELS_INVALID


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"channel": sa.Channel("tenant", max_per_channel=101)},
            "`max_per_channel` must not be above `max_concurrency`, got 101 and 100",
        ),
        (
            {"channel": sa.Channel("tenant", max_backlog=5, max_backlog_per_channel=6)},
            "`max_backlog_per_channel` must not be above `max_backlog`, got 6 and 5",
        ),
        (
            {"channel": 3},
            "`channel` must be .* or a sparkawait.Channel: `columns` of Channel must be .*, got 3",
        ),
        ({"channel": True}, "`channel` must be a column, .* or a sparkawait.Channel, got True"),
        ({"channel": []}, "`channel` must be a column, .* or a list of them, got \\[\\]"),
        (
            {"channel": sa.Channel(count=3)},
            "`channel` names no column, and `.*Tenants` does not know its destinations; .*",
        ),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(options, message):
    with pytest.raises(sa.ConfigurationError, match=f"^{message}(\n|$)") as info:
        arrow.ordered_wait([batch(["a"])], Tenants(), **{"channel": "tenant", **options})

    assert info.value.kind is ErrorKind.CHANNELS_INVALID


def test_an_unknown_column_is_refused_with_the_option_that_names_it():
    with pytest.raises(sa.ConfigurationError, match="`channel` names column `host`"):
        list(arrow.ordered_wait([batch(["a"])], Tenants(), channel="host"))


def test_a_column_whose_values_cannot_be_compared_is_refused():
    column = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    rows = pa.RecordBatch.from_pydict({"tenant": ["a"], "n": [1], "labels": column})

    with pytest.raises(sa.ConfigurationError, match="`channel` names column `labels` of type map"):
        list(arrow.ordered_wait([rows], Tenants(), channel="labels"))


def test_a_plan_with_channels_travels():
    plan = resolve("ordered", Tenants(), input_schema=None, channel="tenant")

    copy = pickle.loads(pickle.dumps(plan))  # noqa: S301

    assert (copy.route, copy.credits) == (plan.route, plan.credits)


class Batched(sa.AsyncFunction):
    """Notes the rows of each call; those of one tenant wait until `enough` rows were answered."""

    schema = "m bigint"
    batch = sa.Batch(max_rows=10, linger="1ms")

    def __init__(self, enough):
        self.enough = enough
        self.calls = []
        self.running = Counter()
        self.most = Counter()
        self.answered = []

    def open(self, context):
        self.released = asyncio.Event()

    async def async_invoke_batch(self, rows):
        (tenant,) = {row["tenant"] for row in rows}
        self.calls.append(len(rows))
        self.running[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self.running[tenant])
        await (self.released.wait() if tenant == "slow" else asyncio.sleep(0))
        self.running[tenant] -= 1
        self.answered += [row["n"] for row in rows]
        if len(self.answered) >= self.enough:
            self.released.set()
        return [{"m": row["n"]} for row in rows]


def test_a_batched_call_has_rows_of_one_channel_and_others_have_calls_beside_it():
    function = Batched(enough=400)

    out = arrow.unordered_wait(
        [batch(MIXED)],
        function,
        capacity=100,
        max_concurrency=4,
        channel=sa.Channel("tenant", max_per_channel=50),
        timeout=None,
    )

    assert sorted(numbers(out)) == list(range(800))
    assert all(MIXED[n] != "slow" for n in function.answered[:400])
    assert function.most["slow"] == 2, "half of the rows, so half of the calls"
    assert max(function.calls) == 10


def test_a_redis_cluster_needs_no_column_for_its_nodes():
    function = sa.redis.get("redis://r", "k:{id}", schema="v string", cluster=True)

    plan = resolve_unpickled("ordered", function, input_schema=None, channel=sa.Channel())

    assert plan.route == ()
    assert plan.credits is not None


def test_one_redis_server_is_no_reason_for_channels():
    function = sa.redis.get("redis://r", "k:{id}", schema="v string")

    with pytest.raises(sa.ConfigurationError, match="`channel` names no column, and"):
        resolve_unpickled("ordered", function, input_schema=None, channel=sa.Channel())
