# SPDX-License-Identifier: Apache-2.0
"""Calls in flight that follow what their destination bears."""

import asyncio
from collections import Counter

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import ErrorKind
from sparkawait.testing import LookupServer

RETRY = sa.retry.fixed_delay(100_000, "1ms", budget=None)


def rows(*tenants, count=600):
    return pa.RecordBatch.from_pydict(
        {"tenant": [*tenants] * count, "n": range(len(tenants) * count)}
    )


def run(function, batch, **options):
    """Returns the output rows, and the metrics."""
    totals = {}
    plan = resolve_unpickled(
        "unordered", function, input_schema=None, **options, tuning=sa.Tuning(warm_up=False)
    )
    out = arrow.run(plan, iter([batch]), on_metrics=totals.update)
    return [row for part in out for row in part.to_pylist()], totals


def run_channels(function, batch, calls, by="tenant", **options):
    """Returns the output rows, and the last limit of each of two channels."""
    channel = sa.Channel(by, count=2, max_per_channel=20)
    given = {"channel": channel, "max_concurrency": calls, **options}
    found, totals = run(function, batch, **given)
    return found, {name: counts["limit"] for name, counts in totals["channels"].items()}


class Bears(sa.AsyncFunction):
    """Refuses the calls of a tenant beyond those that it bears."""

    schema = "m bigint"

    def __init__(self, **bears):
        self.bears = bears
        self.running = Counter()
        self.peak = 0
        self.refused = 0

    async def async_invoke(self, row):
        tenant = row["tenant"]
        self.running[tenant] += 1
        self.peak = max(self.peak, self.running[tenant])
        try:
            if self.running[tenant] > self.bears[tenant]:
                self.refused += 1
                raise ConnectionRefusedError
            # Long enough that calls of one burst are running together.
            await asyncio.sleep(0.001)
        finally:
            self.running[tenant] -= 1
        return {"m": row["n"]}


def test_without_channels_the_task_gets_as_many_calls_as_its_destination_bears():
    function = Bears(it=7)

    found, totals = run(
        function, rows("it", count=1_201), max_concurrency=sa.Adaptive(1, 53), retry=RETRY
    )

    assert sorted(row["m"] for row in found) == list(range(1_201))
    assert 4 <= totals["in_flight_limit"] <= 11
    # It was tried with more than it bears, and never again with all that there may be.
    assert 7 < function.peak <= 53
    assert 0 < function.refused < 400


def test_it_grows_to_its_maximum_where_all_is_borne_and_no_further():
    function = Bears(it=1_000)

    found, totals = run(function, rows("it"), max_concurrency=sa.Adaptive(3, 29))

    assert sorted(row["m"] for row in found) == list(range(600))
    assert (totals["in_flight_limit"], function.peak) == (29, 29)


def test_an_http_server_sees_as_many_requests_as_were_found():
    with LookupServer({"t": {"k": {"v": 1}}}, latency="3ms") as server:
        function = sa.http.get(server.url + "/t/k", "v bigint")

        found, totals = run(function, rows("a", count=701), max_concurrency=sa.Adaptive(2, 131))

        assert len(found) == 701
        assert server.stats()["max_in_flight"] <= 131
    assert 2 < totals["in_flight_limit"] <= 131


def test_rows_of_a_batched_function_count_by_their_calls():
    sizes = []

    @sa.async_function("m bigint", batch=sa.Batch(max_rows=11, linger=0))
    async def answer(batch):
        sizes.append(len(batch))
        await asyncio.sleep(0.001)
        return [{"m": row["n"]} for row in batch]

    found, totals = run(answer, rows("a", count=997), max_concurrency=sa.Adaptive(1, 5))

    assert sorted(row["m"] for row in found) == list(range(997))
    # Full calls from the first one on, and rows of five of them in the end.
    assert (sizes[0], totals["in_flight_limit"]) == (11, 55)


def test_it_goes_with_a_rate_limit_a_breaker_and_a_budget():
    function = Bears(it=5)

    found, totals = run(
        function,
        rows("it", count=307),
        max_concurrency=sa.Adaptive(1, 31),
        rate_limit="30011/s",
        circuit_breaker=True,
        retry=sa.retry.fixed_delay(100_000, "1ms", budget=sa.retry.Budget(1.0, 10_007)),
    )

    assert sorted(row["m"] for row in found) == list(range(307))
    assert totals["rate_limits"]["30011/s"]["permits"] == 307 + function.refused
    assert totals["in_flight_limit"] < 31


def test_each_channel_gets_as_many_calls_as_its_destination_bears():
    function = Bears(weak=4, strong=100)

    found, limits = run_channels(function, rows("weak", "strong"), sa.Adaptive(1, 40), retry=RETRY)

    assert sorted(row["m"] for row in found) == list(range(1_200))
    assert limits["strong"] == 20
    assert 2 <= limits["weak"] <= 8
    assert 0 < function.refused < 600


def test_a_failure_that_is_not_tried_again_changes_nothing():
    function = Bears(weak=0, strong=100)
    calls = sa.Adaptive(1, 40, initial=10)

    _, limits = run_channels(function, rows("weak", "strong"), calls, on_error="drop")

    assert limits == {"weak": 10, "strong": 20}


def test_slow_calls_lower_it_though_their_results_are_taken():
    @sa.async_function("m bigint")
    async def sleep(row):
        await asyncio.sleep(0.002)
        return {"m": row["n"]}

    calls = sa.Adaptive(3, 40, initial=10, max_latency="1ms")

    found, limits = run_channels(sleep, rows("a", count=100), calls)

    assert sorted(row["m"] for row in found) == list(range(100))
    assert limits == {"a": 3}


def test_statuses_of_a_server_that_is_overloaded_lower_it():
    tables = {"t": {"k": {"v": 1}}}
    function = sa.http.get("http://127.0.0.1:{tenant}/t/k", "v bigint")
    with LookupServer(tables) as good, LookupServer(tables, error_rate=1.0) as bad:
        ports = [server.url.rpartition(":")[2] for server in (bad, good)]

        found, limits = run_channels(
            function,
            rows(*ports, count=40),
            sa.Adaptive(1, 40, initial=10),
            retry=sa.retry.fixed_delay(3, "1ms"),
            on_error="capture",
            # By default the host is the channel.
            by=None,
        )

    failed = {row["tenant"] for row in found if row["error"]}
    assert (len(found), failed) == (80, {ports[0]})
    assert limits == {ports[0]: 1, ports[1]: 20}


def test_with_a_number_all_calls_of_a_channel_may_run():
    function = Bears(weak=4, strong=100)

    _, limits = run_channels(function, rows("weak", "strong", count=100), 40, retry=RETRY)

    assert limits == {"weak": 20, "strong": 20}


@pytest.mark.parametrize(
    ("calls", "rows_per_call", "expected"),
    [
        (sa.Adaptive(), 1, (1, 1, 100, None)),
        (sa.Adaptive(3), 1, (3, 3, 100, None)),
        (sa.Adaptive(2, 500, 10, "250ms"), 1, (10, 2, 500, 0.25)),
        (sa.Adaptive(2, 7), 13, (26, 26, 91, None)),
    ],
)
def test_it_begins_at_its_minimum_by_default(calls, rows_per_call, expected):
    assert calls.resolve(rows_per_call) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: sa.Adaptive(0),
            "`min` of Adaptive must be an int of at least 1, got 0",
        ),
        (
            lambda: sa.Adaptive(True),
            "`min` of Adaptive must be an int of at least 1, got True",
        ),
        (
            lambda: sa.Adaptive(7, 5),
            "`max` of Adaptive must be an int of at least 7, got 5",
        ),
        (
            lambda: sa.Adaptive(2, 5, initial=1),
            "`initial` of Adaptive must be an int of at least 2, got 1",
        ),
        (
            lambda: sa.Adaptive(2, 5, initial=7),
            "`initial` of Adaptive must be at most 5, got 7",
        ),
        (
            lambda: sa.WaitOptions(max_concurrency="many"),
            "`max_concurrency` must be an int of at least 1, a sparkawait.Adaptive or a sparkawait",
        ),
    ],
)
def test_wrong_numbers_are_refused(make, message):
    with pytest.raises(sa.ConfigurationError) as info:
        make()

    assert str(info.value).startswith(message)
    assert info.value.kind is ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_concurrency": sa.Adaptive(1, 500), "capacity": 100}, "`max_concurrency` must not"),
        (
            {"max_concurrency": sa.Adaptive(11), "channel": "tenant"},
            (
                "`min` and `initial` of Adaptive are calls of each channel and must not be above"
                " `max_per_channel`, which is 10, got 11"
            ),
        ),
    ],
)
def test_what_contradicts_other_options_is_refused(given, message):
    with pytest.raises(sa.ConfigurationError) as info:
        resolve_unpickled("ordered", Bears(), input_schema=None, **given)

    assert str(info.value).startswith(message)


def test_a_latency_that_is_no_duration_is_refused():
    with pytest.raises(sa.ConfigurationError, match="`max_latency`"):
        sa.Adaptive(max_latency=0)
