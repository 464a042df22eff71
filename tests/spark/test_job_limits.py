# SPDX-License-Identifier: Apache-2.0
"""Limits of a job and its rows, as the owner of its calls is told of them."""

import pytest

import sparkawait as sa
from sparkawait.spark.progress import Actions
from tests.spark.carried import SLOW, lookup

pytestmark = [pytest.mark.spark, pytest.mark.timeout(150)]


@sa.async_function("v long")
async def _at_once(row):
    return {"v": row.id}


def test_budgets_and_calls_of_a_job_are_changed_too(spark):
    budget = sa.Budget(0.3, cost=0.1, name="dollars")
    rows = spark.range(7, numPartitions=1)
    options = {"rate_limit": budget, "max_concurrency": sa.PerJob(3), "on_error": "drop"}
    out = sa.unordered_wait(rows, _at_once, **options)
    assert out.count() == 3
    limits = sa.job(spark).limits
    limits.set("dollars", 0.5)
    limits.set("_at_once calls", 2)
    assert (limits["dollars"].limit, limits["_at_once calls"].limit) == ("0.5 in all", "2 calls")

    assert out.count() == 2
    assert limits["dollars"].used == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rate_limit": sa.RateLimit("997/s", name="one name")}, "a RateLimit too"),
        ({"max_concurrency": sa.PerJob(13, name="one name")}, "a PerJob too"),
    ],
)
def test_a_name_of_another_limit_is_refused_before_a_task_begins(spark, options, told):
    rows = spark.range(3, numPartitions=1)
    assert sa.ordered_wait(rows, _at_once, rate_limit=sa.Budget(211, name="one name")).count() == 3
    with pytest.raises(
        sa.ConfigurationError, match=f"a Budget of `_at_once`, and cannot be {told}"
    ):
        sa.ordered_wait(rows, _at_once, **options)
    both = {
        "rate_limit": sa.Budget(2.1, name="at once"),
        "max_concurrency": sa.PerJob(7, "at once"),
    }
    with pytest.raises(sa.ConfigurationError, match="'at once' is a Budget"):
        sa.ordered_wait(rows, _at_once, **both)
    assert sa.job(spark).limits["one name"].limit == "211 in all"


@sa.async_function("odd long")
async def _fails_at_odd(row):
    if row.id % 2:
        raise LookupError
    return {"odd": row.id}


def test_limits_of_functions_side_by_side_know_what_all_of_them_have_taken(spark):
    budget = sa.Budget(2.1, cost=0.07, name="side by side")
    called = [it.with_options(rate_limit=budget) for it in (_fails_at_odd, _at_once)]
    rows = sa.unordered_wait(spark.range(43, numPartitions=3), called, on_error="null")
    assert len(rows.collect()) == 43
    # With the functions of another call, which has the same budget.
    assert sa.ordered_wait(spark.range(7), called[1], on_error="null").count() == 7
    found = sa.job(spark).limits["side by side"]
    assert (found.used, found.in_flight) == (pytest.approx(2.1), 0)
    assert found.functions == ("_fails_at_odd", "_at_once")


def test_limits_of_rows_that_outlive_their_micro_batch_know_what_was_taken(spark, stream):
    """What a call gives back in a later micro-batch, too."""
    budget = sa.Budget(2.1, cost=0.07, result_cost={"doubled": 0.001}, name="carried budget")
    double = lookup(stream.calls, stream.gate)
    carry_over = sa.CarryOver(vehicle=stream.vehicle)
    stream.put(range(11))
    stream.start(
        sa.unordered_wait(
            stream.source, double, timeout=None, carry_over=carry_over, rate_limit=budget
        )
    )
    limits = sa.job(spark).limits

    def used():
        return limits["carried budget"].used

    # All but one are paid for, and that one has taken what it may cost.
    stream.until(lambda: used() == pytest.approx(0.002 * (sum(range(11)) - SLOW) + 0.07))
    stream.put(range(11, 19))
    stream.until_out(set(range(19)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(19))
    stream.until(lambda: used() == pytest.approx(0.002 * sum(range(19))))


@sa.async_function("back long")
async def _fails_at_thirds(row):
    if row.id % 3 == 0:
        raise LookupError
    return {"back": row.id}


@pytest.mark.parametrize("on_error", ["capture", "null", "drop"])
@pytest.mark.parametrize("is_beside", [True, False])
def test_a_row_counts_once_however_many_of_its_calls_have_failed(
    spark, monkeypatch, is_beside, on_error
):
    told = []
    monkeypatch.setattr(Actions, "take", lambda _, report: told.append(report))
    failing = _fails_at_odd.with_options(on_error=on_error)
    called = [failing, _at_once] if is_beside else failing
    first = sa.unordered_wait(spark.range(43, numPartitions=3), called)
    again = sa.OnError("capture", "why") if on_error == "capture" else on_error
    out = sa.unordered_wait(first, _fails_at_thirds, on_error=again, chain=True)
    # Of 43 rows 7 fail at odd numbers and at thirds.
    assert len(out.collect()) == (14 if on_error == "drop" else 43)
    ends = [it for it in told if it["end"]]
    assert sum(it["totals"]["failed"] for it in ends) > 21
    assert sum(it["rows"] for it in ends) == 43
