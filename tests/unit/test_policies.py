# SPDX-License-Identifier: Apache-2.0
"""Retry budgets, circuit breakers, rates that follow refusals: arguments, and a task of each."""

import asyncio

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import ConfigurationError, arrow, async_function, retry
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import ErrorKind

AGAIN = retry.fixed_delay(1000, "1ms", budget=None)


class BusyError(Exception):
    """As the exceptions of HTTP clients: it tells of a status, and of no time."""

    status = 429


def batch(rows, **columns):
    return pa.record_batch({"x": [*range(rows)], **columns})


def values(batches):
    return pa.Table.from_batches(batches)["y"].to_pylist()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: sa.CircuitBreaker(after_failures=0),
            "`after_failures` of CircuitBreaker must be .* at least 1, got 0",
        ),
        (
            lambda: sa.CircuitBreaker(after_failures="3"),
            "`after_failures` of CircuitBreaker must be an int of .* got '3'",
        ),
        (
            lambda: sa.CircuitBreaker(when_open="drop"),
            "`when_open` of CircuitBreaker must be one of 'wait', 'fail'",
        ),
        (
            lambda: sa.CircuitBreaker(initial="2s", maximum="1s"),
            "`maximum` of CircuitBreaker must not be below",
        ),
    ],
)
def test_wrong_values_are_refused(made, message):
    with pytest.raises(ConfigurationError, match=message) as info:
        made()
    assert info.value.kind is ErrorKind.OPTION_INVALID


@pytest.mark.parametrize("initial", [0, "-1s", "soon", None])
def test_a_time_until_the_first_probe_that_is_none_is_refused(initial):
    with pytest.raises(ConfigurationError, match="`initial`"):
        sa.CircuitBreaker(initial=initial)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: sa.retry.Budget(ratio=-1), "`ratio` of .* must be a number from 0 to 1000"),
        (lambda: sa.retry.Budget(ratio=float("nan")), "`ratio` of Budget must be a number"),
        (lambda: sa.retry.Budget(ratio=True), "`ratio` of Budget must be .* got True"),
        (lambda: sa.retry.Budget(min_per_second=-1), "`min_per_second` of .* at least 0, got -1"),
        (lambda: sa.retry.Budget(min_per_second=0.5), "`min_per_second` of .* must be an int"),
        (lambda: sa.retry.Budget(0, 0), "neither `ratio` nor `min_per_second`"),
        (lambda: retry.fixed_delay(3, "1s", budget="some"), "`budget` must be .* got 'some'"),
        (lambda: retry.exponential_backoff(3, budget=True), "`budget` must be .* got True"),
        (lambda: retry.exponential_backoff(3, budget=-0.1), "`ratio` of .* from 0 to 1000"),
    ],
)
def test_wrong_budgets_are_refused(made, message):
    with pytest.raises(ConfigurationError, match=message) as info:
        made()
    assert info.value.kind is ErrorKind.RETRY_INVALID


def test_every_strategy_has_a_budget_unless_it_is_told_otherwise():
    budget = sa.retry.Budget(ratio=0.2, min_per_second=10)
    assert retry.fixed_delay(3, "1s").budget == retry.exponential_backoff().budget == budget
    assert sa.WaitOptions(retry=3).retry.budget == sa.WaitOptions().retry.budget == budget
    assert retry.fixed_delay(3, "1s", budget=0.3).budget == sa.retry.Budget(0.3)
    assert retry.exponential_backoff(3, budget=None).budget is None


def test_another_thing_is_refused():
    with pytest.raises(ConfigurationError, match="`circuit_breaker` must be a sparkawait"):
        sa.WaitOptions(circuit_breaker=5)


@pytest.mark.parametrize("wait", [arrow.ordered_wait, arrow.unordered_wait])
def test_retries_are_a_share_of_the_first_calls(wait):
    calls = []

    @async_function("y int")
    async def always_lost(row):
        calls.append(row["x"])
        raise ConnectionError

    budget = sa.retry.Budget(ratio=0.2, min_per_second=0)
    out = wait(
        [batch(100)],
        always_lost,
        retry=retry.fixed_delay(1000, "1ms", budget=budget),
        timeout="500ms",
        on_error="capture",
    )
    errors = pa.Table.from_batches(out)["error"].to_pylist()
    assert [error["kind"] for error in errors] == ["element-timed-out"] * 100
    # Exactly so many in `rust/core`; of a loop that is late, a call may be over before it is made.
    assert 0 < len(calls) <= 120


def test_what_a_destination_lost_comes_as_fast_as_it_answers_once_it_is_well():
    failed = set()

    @async_function("y int")
    async def lost_once(row):
        if row["x"] not in failed:
            failed.add(row["x"])
            raise ConnectionError
        return {"y": row["x"]}

    budget, totals = sa.retry.Budget(ratio=0.01, min_per_second=0), {}
    again = retry.fixed_delay(1000, "1ms", budget=budget)
    plan = resolve_unpickled("ordered", lost_once, input_schema=None, retry=again, timeout="60s")
    out = arrow.run(plan, iter([batch(500)]), on_metrics=totals.update)
    assert values(out) == [*range(500)]
    assert 0 < totals["retries_held"] <= 500
    assert totals["retries_waited"] > 0
    assert totals["retries_waiting"] == 0


def lost_but_for_well():
    """The rows that were called, and a function that answers those of one tenant."""
    calls = []

    @async_function("y int")
    async def lost(row):
        calls.append(row["x"])
        if row["tenant"] == "well":
            return {"y": row["x"]}
        raise ConnectionError

    return calls, lost


@pytest.mark.parametrize("channel", [None, "tenant"])
def test_rows_of_a_destination_that_drops_its_calls_fail_at_once_if_they_are_not_to_wait(channel):
    calls, lost = lost_but_for_well()
    tenants = ["dead" if channel is None or x % 2 else "well" for x in range(400)]
    out = arrow.ordered_wait(
        [batch(400, tenant=tenants)],
        lost,
        channel=channel,
        max_concurrency=20,
        retry=retry.fixed_delay(2, "1ms"),
        circuit_breaker=sa.CircuitBreaker(after_failures=5, initial="60s", when_open="fail"),
        on_error="capture",
    )
    rows = pa.Table.from_batches(out).to_pylist()
    dead = [row["error"] for row in rows if row["tenant"] == "dead"]
    assert {error["kind"] for error in dead} == {"destination-paused"}
    assert [row["y"] for row in rows if row["tenant"] == "well"] == [
        x for x in range(400) if tenants[x] == "well"
    ]
    to_dead = [x for x in calls if tenants[x] == "dead"]
    assert 5 <= len(to_dead) <= 5 + 20


@pytest.mark.parametrize("channel", [None, "tenant"])
def test_rows_wait_for_an_open_circuit_breaker_for_max_wait_and_no_longer(channel):
    calls, lost = lost_but_for_well()
    tenants = ["dead" if channel is None or x % 2 else "well" for x in range(401)]
    out = arrow.unordered_wait(
        [batch(401, tenant=tenants)],
        lost,
        channel=channel,
        capacity=401,
        max_concurrency=13,
        retry=0,
        circuit_breaker=sa.CircuitBreaker(after_failures=3, initial="60s"),
        max_wait="71ms",
        on_error="capture",
    )
    rows = pa.Table.from_batches(out).to_pylist()

    assert sorted(row["x"] for row in rows) == list(range(401))
    errors = {row["x"]: row["error"] for row in rows}
    waited = {x for x, it in errors.items() if it and it["kind"] == "destination-unavailable"}
    dead = {x for x in range(401) if tenants[x] == "dead"}
    # On a machine that stands still, rows for the other destination wait for as long.
    assert waited & dead == dead - set(calls)
    assert all(errors[x]["attempts"] == 0 for x in waited)
    assert all("is paused" in errors[x]["message"] for x in waited & dead)
    assert [x for x, it in errors.items() if it is None and x in dead] == []


def test_a_row_that_fails_the_task_when_it_comes_in_ends_it_whatever_came_with_it():
    @async_function("y int")
    async def lost(row):
        raise ConnectionError

    # The first calls wait for another attempt when the rest of the batch comes in, all at once.
    out = arrow.ordered_wait(
        [batch(40)],
        lost,
        timeout="5 min",
        max_concurrency=20,
        retry=retry.fixed_delay(9, "1 min"),
        circuit_breaker=sa.CircuitBreaker(after_failures=1, initial="60s", when_open="fail"),
    )
    with pytest.raises(sa.AsyncFunctionError, match="is paused") as info:
        list(out)
    assert info.value.kind is ErrorKind.DESTINATION_PAUSED


def test_rows_wait_for_a_destination_that_comes_back():
    calls = []

    @async_function("y int")
    async def lost_at_first(row):
        calls.append(row["x"])
        if len(calls) <= 7:
            raise ConnectionError
        return {"y": row["x"]}

    out = arrow.ordered_wait(
        [batch(50)],
        lost_at_first,
        max_concurrency=1,
        retry=AGAIN,
        circuit_breaker=sa.CircuitBreaker(after_failures=3, initial="20ms", maximum="40ms"),
    )
    assert values(out) == [*range(50)]
    assert len(calls) == 57


@pytest.mark.parametrize(
    "rate_limit", [pytest.param("adaptive", marks=pytest.mark.nightly), ["90009/s", "adaptive"]]
)
def test_a_rate_is_found_where_a_service_refuses(rate_limit):
    now, window, refused, calls = 0.0, [], [], []

    @async_function("y int")
    async def bears_ten_in_50_ms(row):
        nonlocal now, window
        time = asyncio.get_running_loop().time()
        if time > now + 0.05:
            now, window = time, []
        calls.append(time)
        window.append(time)
        await asyncio.sleep(0)
        if len(window) > 10:
            refused.append(time)
            raise BusyError
        return {"y": row["x"]}

    options = {"retry": AGAIN, "max_concurrency": 10, "rate_limit": rate_limit}
    out = arrow.ordered_wait([batch(300)], bears_ten_in_50_ms, **options)
    assert values(out) == [*range(300)]
    # Without it, nearly all are refused many times over.
    assert 0 < len(refused) < 150
