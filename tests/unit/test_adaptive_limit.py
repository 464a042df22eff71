# SPDX-License-Identifier: Apache-2.0
"""Channels whose calls in flight follow what their destination bears."""

import asyncio
from collections import Counter

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.options import resolve_unpickled
from sparkawait.channels import Credits
from sparkawait.exceptions import ErrorKind
from sparkawait.testing import LookupServer

RETRY = sa.retry.fixed_delay(100_000, "1ms")


def rows(*tenants, count=600):
    return pa.RecordBatch.from_pydict(
        {"tenant": [*tenants] * count, "n": range(len(tenants) * count)}
    )


def run(function, batch, limit, **options):
    """Returns the output rows, and the last limit of each channel."""
    totals = {}
    channels = sa.Channels(count=2, max_per_channel=20, limit=limit)
    plan = resolve_unpickled(
        "unordered",
        function,
        input_schema=None,
        **{"channel": "tenant", "channels": channels, "max_concurrency": 40, **options},
        warm_up=False,
    )
    out = arrow.run(plan, iter([batch]), on_metrics=totals.update)
    found = [row for part in out for row in part.to_pylist()]
    return found, {name: counts["limit"] for name, counts in totals["channels"].items()}


class Bears(sa.AsyncFunction):
    """Refuses the calls of a tenant beyond those that it bears."""

    schema = "m bigint"

    def __init__(self, **bears):
        self.bears = bears
        self.running = Counter()
        self.refused = 0

    async def async_invoke(self, row):
        tenant = row["tenant"]
        self.running[tenant] += 1
        try:
            if self.running[tenant] > self.bears[tenant]:
                self.refused += 1
                raise ConnectionRefusedError
            # Long enough that calls of one burst are running together.
            await asyncio.sleep(0.001)
        finally:
            self.running[tenant] -= 1
        return {"m": row["n"]}


def test_each_channel_gets_as_many_calls_as_its_destination_bears():
    function = Bears(weak=4, strong=100)

    found, limits = run(function, rows("weak", "strong"), sa.AdaptiveLimit(), retry=RETRY)

    assert sorted(row["m"] for row in found) == list(range(1_200))
    assert limits["strong"] == 20
    assert 2 <= limits["weak"] <= 8
    assert 0 < function.refused < 600


def test_a_failure_that_is_not_tried_again_leaves_the_limit_alone():
    function = Bears(weak=0, strong=100)
    limit = sa.AdaptiveLimit(initial=10)

    _, limits = run(function, rows("weak", "strong"), limit, on_error="drop")

    assert limits == {"weak": 10, "strong": 20}


def test_slow_calls_lower_the_limit_though_their_results_are_taken():
    @sa.async_function("m bigint")
    async def sleep(row):
        await asyncio.sleep(0.002)
        return {"m": row["n"]}

    limit = sa.AdaptiveLimit(initial=10, min=3, max_latency="1ms")

    found, limits = run(sleep, rows("a", count=100), limit)

    assert sorted(row["m"] for row in found) == list(range(100))
    assert limits == {"a": 3}


def test_statuses_of_a_server_that_is_overloaded_lower_the_limit():
    tables = {"t": {"k": {"v": 1}}}
    function = sa.http.get("http://127.0.0.1:{tenant}/t/k", "v bigint")
    with LookupServer(tables) as good, LookupServer(tables, error_rate=1.0) as bad:
        ports = [server.url.rpartition(":")[2] for server in (bad, good)]

        found, limits = run(
            function,
            rows(*ports, count=40),
            sa.AdaptiveLimit(initial=10),
            retry=sa.retry.fixed_delay(3, "1ms"),
            on_error="capture",
            # By default the host is the channel.
            channel=None,
        )

    failed = {row["tenant"] for row in found if row["error"]}
    assert (len(found), failed) == (80, {ports[0]})
    assert limits == {ports[0]: 1, ports[1]: 20}


def test_without_an_adaptive_limit_all_calls_of_a_channel_may_run():
    function = Bears(weak=4, strong=100)

    _, limits = run(function, rows("weak", "strong", count=100), None, retry=RETRY)

    assert limits == {"weak": 20, "strong": 20}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (sa.AdaptiveLimit(), (1, 1, None)),
        (sa.AdaptiveLimit(min=3), (3, 3, None)),
        (sa.AdaptiveLimit(10, 2, "250ms"), (10, 2, 0.25)),
    ],
)
def test_a_limit_begins_at_its_minimum_by_default(limit, expected):
    channels = sa.Channels(limit=limit)

    assert channels.resolve(100, 100) == Credits(2, 80, 10, 10_000, 10_000, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: sa.AdaptiveLimit(min=0),
            "`min` of AdaptiveLimit must be an int of at least 1, got 0",
        ),
        (
            lambda: sa.AdaptiveLimit(True),
            "`initial` of AdaptiveLimit must be an int of at least 1, got True",
        ),
        (
            lambda: sa.AdaptiveLimit(1, 2),
            "`initial` of AdaptiveLimit must be an int of at least 2, got 1",
        ),
        (lambda: sa.Channels(limit=3), "`limit` of Channels must be a sparkawait.AdaptiveLimit"),
        (
            lambda: sa.Channels(limit=sa.AdaptiveLimit(min=11)).resolve(100, 100),
            "`initial` and `min` of AdaptiveLimit must not be above `max_per_channel`, got 11",
        ),
    ],
)
def test_wrong_limits_are_refused(make, message):
    with pytest.raises(sa.ConfigurationError) as info:
        make()

    assert str(info.value).startswith(message)
    assert info.value.kind is ErrorKind.CHANNELS_INVALID


def test_a_latency_that_is_no_duration_is_refused():
    with pytest.raises(sa.ConfigurationError, match="`max_latency`"):
        sa.AdaptiveLimit(max_latency=0)
