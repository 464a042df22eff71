# SPDX-License-Identifier: Apache-2.0
"""What rows cost of a limit in time: columns, functions, and what calls turn out to have cost."""

import asyncio
import re
from decimal import Decimal

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker.replies import Remarks
from sparkawait.exceptions import ErrorKind
from sparkawait.functions import FunctionContext
from sparkawait.rate_limit import RateLimit
from sparkawait.testing import simulated

IDS = list(range(10))
ROWS = pa.record_batch(
    {"id": IDS, "tokens": [it % 4 for it in IDS], "tenant": [f"t{it % 3}" for it in IDS]}
)
TOKENS = sum(it % 4 for it in IDS)
MODES = ["ordered", "unordered", "key_ordered"]


@sa.async_function("seen bigint, used bigint")
async def see(row):
    return {"seen": row["id"], "used": 2 * row["id"]}


def run(function, batch=ROWS, mode="unordered", **options):
    """Returns the rows, and the permits that were taken of each limit."""
    totals = {}
    key = {"key": "id"} if mode == "key_ordered" else {}
    plan = resolve_unpickled(mode, function, input_schema=None, **options, **key)
    out = arrow.run(plan, iter([batch]), on_metrics=totals.update)
    rows = [row for part in out for row in part.to_pylist()]
    return rows, {name: it["permits"] for name, it in totals["rate_limits"].items()}


def of_row(row):
    return row["tokens"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("channel", [None, "tenant"])
@pytest.mark.parametrize("scope", ["task", "host"])
@pytest.mark.parametrize("cost", ["tokens", of_row])
def test_a_row_pays_what_it_costs(mode, channel, scope, cost):
    name = f"{mode} {channel} {cost}"
    limits = [RateLimit("9000/s", name="calls"), RateLimit("500/s", 4, cost, scope, name=name)]

    rows, permits = run(see, mode=mode, channel=channel, rate_limit=limits, timeout="5s")

    assert sorted(row["seen"] for row in rows) == IDS
    assert permits == {"calls": len(IDS), name: TOKENS}


@pytest.mark.parametrize("settles", ["a column", "the context"])
def test_the_usual_is_what_calls_have_cost_once_30_have_told(settles):
    running, beside = 0, []

    class Ask(sa.AsyncFunction):
        schema = "seen bigint, used bigint"

        def open(self, context):
            self.context = context

        async def async_invoke(self, row):
            nonlocal running
            running += 1
            beside.append(running)
            await asyncio.sleep(0.001)
            running -= 1
            if settles == "the context":
                self.context.settle(row, 7 + row["id"] % 3)
            return {"seen": row["id"], "used": 7 + row["id"] % 3}

    column = "used" if settles == "a column" else None
    # The burst comes back in ten seconds: nobody else finds it there because a call was slow.
    limit = RateLimit("997/s", 9_973, "usual", result_cost=column, name="tokens")
    rows, permits = run(Ask(), pa.record_batch({"id": range(97)}), rate_limit=limit, timeout="9s")

    assert sorted(row["seen"] for row in rows) == list(range(97))
    assert permits == {"tokens": sum(7 + it % 3 for it in range(97))}
    # Each takes the whole burst until 30 have told, and then nine.
    assert set(beside[:30]) == {1}
    assert max(beside) > 1


@pytest.mark.parametrize("channel", [None, "tenant"])
def test_six_limits_bound_a_call_and_each_has_permits_of_its_own(channel):
    name = f"six {channel}"
    limits = [
        RateLimit("9000/s", name="calls"),
        RateLimit("700/s", 13, "tokens", name="tokens"),
        RateLimit("7000/s", 300, 7, name="sevens"),
        RateLimit("500/s", 4, "tokens", "host", name=name),
        RateLimit("3000/s", 100, 3, name="threes"),
        RateLimit("9000/s", 500, result_cost="used", name="used"),
    ]

    rows, permits = run(see, channel=channel, rate_limit=limits, timeout="5s")

    assert sorted(row["seen"] for row in rows) == IDS
    count = len(IDS)
    used = sum(2 * row["seen"] for row in rows)
    assert permits == {
        "calls": count,
        "tokens": TOKENS,
        "sevens": 7 * count,
        name: TOKENS,
        "threes": 3 * count,
        "used": used,
    }


@pytest.mark.parametrize(
    ("values", "charged"),
    [
        (pa.array([0.2, 1.0, 1.7]), 4),
        (pa.array([Decimal("0.2"), Decimal("1.0"), Decimal("1.7")]), 4),
        (pa.array([1, 200, 3], pa.uint8()), 204),
    ],
)
def test_part_of_a_permit_counts_as_one(values, charged):
    batch = pa.record_batch({"id": [0, 1, 2], "tokens": values})
    for cost in ("tokens", of_row):
        rows, permits = run(see, batch, rate_limit=RateLimit("1000/s", 300, cost))
        assert (len(rows), permits) == (3, {"1000/s": charged})


BAD = {
    "is null": None,
    "is negative": -0.5,
    "is not a number": float("nan"),
    "is above 2 to the power of 53": float("inf"),
    # What comes in an hour.
    "is above 3600000": 3_600_000.5,
}


@pytest.mark.parametrize("cost", ["tokens", of_row])
@pytest.mark.parametrize("channel", [None, "id"])
def test_a_row_whose_cost_is_none_fails_and_is_not_called(cost, channel):
    called = []

    @sa.async_function("seen bigint")
    async def note(row):
        called.append(row["id"])
        return {"seen": row["id"]}

    batch = pa.record_batch({"id": range(7), "tokens": [1.0, *BAD.values(), 3.0]})
    limit = RateLimit("1000/s", 2, cost, name="tokens a minute")

    rows, permits = run(note, batch, rate_limit=limit, channel=channel, on_error="capture")

    assert (sorted(called), permits) == ([0, 6], {"tokens a minute": 4})
    errors = [row["error"] for row in sorted(rows, key=lambda row: row["id"])]
    assert errors[0] is None
    assert errors[6] is None
    for error, why in zip(errors[1:6], BAD, strict=True):
        assert (error["kind"], error["attempts"]) == (ErrorKind.COST_INVALID, 0)
        assert f"`cost` of RateLimit `tokens a minute` {why} in this row" in error["message"]


def test_a_cost_fails_the_task_if_failures_do():
    batch = pa.record_batch({"id": [1], "tokens": pa.array([None], pa.int64())})
    with pytest.raises(sa.AsyncFunctionError, match="is null in this row") as caught:
        run(see, batch, rate_limit=RateLimit("1/s", cost="tokens"))
    assert caught.value.kind == ErrorKind.COST_INVALID


@pytest.mark.parametrize(
    ("value", "message"),
    [("seven", "must return a number, got `str`"), (True, "must return a number, got `bool`")],
)
def test_a_function_that_returns_no_number_fails_its_row(value, message):
    limit = RateLimit("1000/s", cost=lambda _row: value)
    rows, _ = run(see, ROWS.slice(0, 1), rate_limit=limit, on_error="capture")
    assert message in rows[0]["error"]["message"]


def test_a_function_that_raises_fails_its_row_and_is_the_cause():
    def cost(row):
        return 1 / row["id"]

    limit = RateLimit("1000/s", cost=cost)
    rows, permits = run(see, rate_limit=limit, on_error="capture")
    errors = [row["error"] for row in sorted(rows, key=lambda row: row["id"])]
    assert errors[0]["kind"] == ErrorKind.COST_INVALID
    assert "the `cost` function of RateLimit `1000/s`: ZeroDivisionError" in errors[0]["message"]
    assert (errors[1:], permits) == ([None] * 9, {"1000/s": 9})

    with pytest.raises(sa.AsyncFunctionError) as caught:
        run(see, rate_limit=limit)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_later_call_of_a_chain_pays_by_columns_of_the_call_before_it():
    first = arrow.unordered_wait([ROWS], see)
    limits = [
        RateLimit("9000/s", 9, cost="used"),
        RateLimit("8000/s", 9, cost=lambda row: row.seen + row.tokens),
    ]
    out = arrow.ordered_wait(first, simulated(), chain=True, rate_limit=limits)
    assert sorted(pa.Table.from_batches(out)["seen"].to_pylist()) == IDS


def test_a_result_says_what_its_call_has_cost():
    limit = RateLimit("1000/s", 50, cost=20, result_cost="used")
    _, permits = run(see, rate_limit=limit)
    assert permits == {"1000/s": 2 * sum(IDS)}


def test_a_field_of_a_result_says_it_and_nothing_leaves_the_cost_as_it_was():
    usages = [{"total": {"tokens": 7.5}}, {"total": None}, None, {"total": {"tokens": -1.0}}]

    @sa.async_function("usage struct<total: struct<tokens: double>>")
    async def ask(row):
        if row["id"] == 4:
            raise ValueError
        return [] if row["id"] == 5 else {"usage": usages[row["id"]]}

    limit = RateLimit("1000/s", cost=100, result_cost="usage.total.tokens")
    _, permits = run(ask, ROWS.slice(0, 6), rate_limit=limit, on_error="drop")
    assert permits == {"1000/s": 8 + 5 * 100}


def test_a_cost_that_is_none_is_told_once_and_without_what_is_in_its_row(caplog):
    wrong = {3: -7013.5, 7: float("nan"), 8: None}

    @sa.async_function("usage struct<dollars: double>")
    async def ask(row):
        return {"usage": {"dollars": wrong.get(row["id"], 0.25)}}

    limit = sa.Budget(100.0, cost=2, result_cost="usage.dollars", name="dollars")
    _, permits = run(ask, rate_limit=limit)
    run(ask, ROWS.slice(4, 3), rate_limit=limit)

    assert permits == {"dollars": 7 * 0.25 + 3 * 2}
    [told] = [it for it in caplog.messages if "result_cost" in it]
    assert re.match(
        r"`result_cost` `usage\.dollars` is (negative|not a number) in the results of [12] of \d+"
        r" calls; such calls count with their `cost`",
        told,
    )
    assert "7013" not in told


def test_a_budget_that_is_spent_says_which_one_it_is():
    limits = [RateLimit("9000/s", 97), sa.Budget(0.5, cost=0.15, name="dollars")]
    rows, _ = run(see, rate_limit=limits, on_error="capture")
    [said] = {row["error"]["message"] for row in rows if row["error"]}
    assert said == (
        'not called: the call costs 0.15, and the budget "dollars" has 0.05 left: 0.45 of 0.5 are'
        " spent"
    )
    assert sum(row["error"] is not None for row in rows) == 7


def test_several_fields_of_a_result_say_it_by_their_weights():
    usages = [{"a": 7, "b": 0.5}, {"a": None, "b": 3.0}, {"a": None, "b": None}, None]

    @sa.async_function("usage struct<a: int, b: double>")
    async def ask(row):
        return {"usage": usages[row["id"]]}

    limit = RateLimit("1000/s", cost=100, result_cost={"usage.a": 2, "usage.b": 4.0})
    _, permits = run(ask, ROWS.slice(0, 4), rate_limit=limit)
    assert permits == {"1000/s": (14 + 2) + 12 + 2 * 100}


def test_of_several_rows_of_a_call_the_first_says_it():
    @sa.async_function("used int")
    async def ask(row):
        return [{"used": row["id"] + more} for more in range(row["id"])]

    limit = RateLimit("1000/s", cost=5, result_cost="used")
    _, permits = run(ask, rate_limit=limit)
    assert permits == {"1000/s": 5 + sum(IDS)}


@pytest.mark.parametrize("channel", [None, "tenant"])
def test_what_a_cache_knows_costs_nothing_whatever_its_result_says(channel):
    limit, cache = RateLimit("1000/s", cost=3, result_cost="used"), sa.Cache(key="tenant")
    _, permits = run(see, rate_limit=limit, cache=cache, channel=channel)
    assert permits == {"1000/s": 2 * (0 + 1 + 2)}
    assert run(see, rate_limit=limit, cache=cache, channel=channel)[1] == {"1000/s": 0}


class Ask(sa.AsyncFunction):
    """Says what its calls have cost, before they end."""

    schema = "seen bigint"

    def __init__(self, settle):
        self.settle = settle

    def open(self, context):
        self.context = context

    async def async_invoke(self, row):
        self.settle(self.context, row)
        if row["id"] == 3:
            raise ConnectionResetError
        return {"seen": row["id"]}


def test_a_function_says_what_its_calls_have_cost_those_that_fail_too():
    function = Ask(lambda context, row: context.settle(row, row["id"] - 0.5 * (row["id"] > 0)))
    rows, permits = run(function, rate_limit=RateLimit("1000/s", cost=50), on_error="drop")
    assert (len(rows), permits) == (9, {"1000/s": sum(IDS)})


def test_a_batched_function_says_it_of_each_row():
    class AskMany(Ask):
        batch = sa.Batch(max_rows=4, linger="1ms")

        async def async_invoke_batch(self, rows):
            for row in rows:
                self.settle(self.context, row)
            return [{"seen": row["id"]} for row in rows]

    function = AskMany(lambda context, row: context.settle(row, row["id"]))
    rows, permits = run(function, rate_limit=RateLimit("1000/s", cost=50))
    assert (len(rows), permits) == (10, {"1000/s": sum(IDS)})


def test_the_limit_that_is_settled_is_the_one_whose_cost_is_of_the_row():
    limits = [RateLimit("1000/s", name="calls"), RateLimit("2000/s", cost="tokens", name="tokens")]
    function = Ask(lambda context, row: context.settle(row, 10))
    _, permits = run(function, rate_limit=limits, on_error="drop")
    assert permits == {"calls": 10, "tokens": 100}

    function = Ask(lambda context, row: context.settle(row, 0, limit="calls"))
    _, permits = run(function, rate_limit=limits, on_error="drop")
    assert permits == {"calls": 0, "tokens": TOKENS}


def test_each_attempt_is_settled_by_itself():
    attempts = []

    def settle(context, row):
        attempts.append(row["id"])
        if attempts.count(row["id"]) == 1:
            context.settle(row, 1)

    limit, retry = RateLimit("1000/s", cost=7), sa.retry.fixed_delay(1, "1ms")
    _, permits = run(Ask(settle), ROWS.slice(3, 1), rate_limit=limit, retry=retry, on_error="drop")
    assert permits == {"1000/s": 1 + 7}


def test_without_limits_there_is_nothing_to_settle():
    context = FunctionContext(0, "f")
    context.settle(None, "what")
    assert context.on_settle is None


@pytest.mark.parametrize(
    ("cost", "limit", "message"),
    [
        (-1, None, "must be a number from 0 to 2\\*\\*53, got -1"),
        (-0.5, None, "must be a number from 0"),
        (True, None, "must be a number from 0"),
        ("7", None, "must be a number from 0"),
        (float("nan"), None, "must be a number from 0"),
        (float("inf"), None, "must be a number from 0"),
        (1, "calls", "must be one of 'a', got 'calls'"),
    ],
)
def test_what_is_no_cost_of_a_limit_is_refused(cost, limit, message):
    function = Ask(lambda context, row: context.settle(row, cost, limit))
    options = {"rate_limit": RateLimit("9/s", name="a"), "on_error": "capture"}
    rows, _ = run(function, ROWS.slice(0, 1), **options)
    with pytest.raises(sa.ConfigurationError, match=message):
        raise sa.ConfigurationError(rows[0]["error"]["message"], ErrorKind.COST_INVALID)


def test_settle_needs_a_limit_where_several_may_be_meant_and_the_row():
    remarks = Remarks([RateLimit("1/s"), RateLimit("2/s")])
    with pytest.raises(sa.ConfigurationError, match="takes the row of the call, got `dict`"):
        remarks.settle({}, 1, None)
    assert not remarks


class RefusedError(Exception):
    """What clients raise for a 422: the rows are at fault."""

    status = 422


@pytest.mark.parametrize("channel", [None, "tenant"])
@pytest.mark.parametrize("scope", ["task", "host"])
@pytest.mark.parametrize("burst", [1, 1000])
def test_a_limit_counts_the_calls_of_a_batched_function_if_asked_to(channel, scope, burst):
    calls, tokens = [], []

    @sa.async_function("seen bigint", batch=sa.Batch(max_rows=4, split_on_error=True))
    async def see_many(rows):
        calls.append(len(rows))
        tokens.extend(row["tokens"] for row in rows)
        if len(rows) > 1 and any(row["id"] == 7 for row in rows):
            raise RefusedError
        return [{"seen": row["id"]} for row in rows]

    name = f"requests {channel} {burst}"
    limits = [
        RateLimit("1000/s", burst, 5, scope, name=name, per="request"),
        RateLimit("1001/s", cost="tokens", name="tokens"),
    ]
    rows, permits = run(see_many, channel=channel, rate_limit=limits, timeout="5s")

    assert sorted(row["seen"] for row in rows) == IDS
    assert permits == {name: 5 * len(calls), "tokens": sum(tokens)}
    assert max(calls) > 1


@pytest.mark.parametrize("arrow_batches", [False, True])
def test_rows_that_are_called_for_alone_pay_for_each_call(arrow_batches):
    calls = []

    def fail_some(ids):
        calls.append(len(ids))
        if 7 in ids:
            raise ValueError

    batch = sa.Batch(31, linger="1s", split_on_error=True, arrow=arrow_batches)

    @sa.async_function("seen bigint", batch=batch)
    async def see_most(rows):
        if arrow_batches:
            fail_some(rows["id"].to_pylist())
            return pa.record_batch({"seen": rows["id"]})
        fail_some([row["id"] for row in rows])
        return [{"seen": row["id"]} for row in rows]

    limits = [
        RateLimit("90001/s", 1009, 3, "task", name="rows"),
        RateLimit("70001/s", 1009, 2, "task", name="requests", per="request"),
    ]
    many = pa.record_batch({"id": list(range(31))})
    given = {"rate_limit": limits, "on_error": "capture", "capacity": 31}
    rows, permits = run(see_most, many, timeout="1h", **given)

    assert [it["id"] for it in rows if it["error"] is not None] == [7]
    # All rows of the call come back before one is called for alone: the others have theirs back.
    assert permits == {"rows": 3 * sum(calls), "requests": 2 * len(calls)}


@pytest.mark.parametrize("arrow_batches", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("channel", [None, "tenant"])
@pytest.mark.parametrize("scope", ["task", "host"])
def test_the_parts_of_a_call_that_fails_pay_as_any_call(mode, channel, scope, arrow_batches):
    calls = []

    def fail_some(ids):
        calls.append(len(ids))
        if any(it % 16 == 7 for it in ids):
            raise RefusedError(ids[0])

    @sa.async_function(
        "seen bigint", batch=sa.Batch(61, linger="1ms", split_on_error=True, arrow=arrow_batches)
    )
    async def see_most(rows):
        if arrow_batches:
            fail_some(rows["id"].to_pylist())
            return pa.record_batch({"seen": rows["id"]})
        fail_some([row["id"] for row in rows])
        return [{"seen": row["id"]} for row in rows]

    many = pa.record_batch({"id": list(range(331)), "tenant": [f"t{it % 3}" for it in range(331)]})
    name = f"parts {mode} {channel} {arrow_batches}"
    limits = [
        RateLimit("90001/s", 61, 3, scope, name=name),
        RateLimit("70001/s", 7, 2, scope, name=f"requests {name}", per="request"),
    ]
    given = {"mode": mode, "channel": channel, "rate_limit": limits, "on_error": "capture"}
    rows, permits = run(see_most, many, timeout="1h", capacity=331, **given)

    failed = [it for it in range(331) if it % 16 == 7]
    assert sorted(it["id"] for it in rows) == list(range(331))
    assert sorted(it["id"] for it in rows if it["error"] is not None) == failed
    assert {it["error"]["kind"] for it in rows if it["error"]} == {"user-function-failed"}
    assert permits == {name: 3 * sum(calls), f"requests {name}": 2 * len(calls)}
    assert sum(calls) > 331


def test_a_part_is_an_attempt_and_takes_no_retry():
    calls = []

    @sa.async_function("seen bigint", batch=sa.Batch(16, linger="1ms", split_on_error=True))
    async def see_most(rows):
        calls.append([row["id"] for row in rows])
        if any(row["id"] == 3 for row in rows):
            raise RefusedError
        return [{"seen": row["id"]} for row in rows]

    retry = sa.retry.fixed_delay(2, "1ms", if_exception=RefusedError)
    options = {"retry": retry, "info": "info", "on_error": "capture", "timeout": "1h"}
    rows, _ = run(see_most, capacity=10, **options)

    of = {it["id"]: it for it in rows}
    assert of[3]["error"]["kind"] == "retries-exhausted"
    alone = [call for call in calls if call == [3]]
    assert len(alone) == 3, "the first call of the row alone, and two retries"
    for number, row in of.items():
        assert row["info"]["attempts"] == sum(number in call for call in calls)
        assert (row["error"] is None) == (number != 3)


def test_rows_wait_for_the_permit_of_their_request_and_do_not_age():
    calls = []

    @sa.async_function("seen bigint", batch=sa.Batch(max_rows=5, linger="1ms"))
    async def see_many(rows):
        calls.append(len(rows))
        return [{"seen": row["id"]} for row in rows]

    limit = RateLimit("1/s", 1, per="request")
    rows, permits = run(see_many, rate_limit=limit, timeout="900ms")
    assert (len(rows), permits) == (10, {"1/s": len(calls)})


def test_a_function_for_single_rows_has_a_request_for_each():
    _, permits = run(see, rate_limit=RateLimit("1000/s", per="request"))
    assert permits == {"1000/s": 10}


async def later(row):
    return row


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cost": 1.5}, "`cost` of RateLimit must be an int, a column of numbers, or a function"),
        ({"cost": ""}, "`cost` of RateLimit must be an int, a column"),
        ({"cost": True}, "`cost` of RateLimit must be an int"),
        ({"cost": later}, "must be a plain function, which returns at once, got `later`"),
        ({"cost": lambda: 1}, "`cost` of RateLimit does not fit"),
        ({"result_cost": ""}, "`result_cost` of RateLimit must be the name of a column"),
        ({"per": "batch"}, "`per` of RateLimit must be one of 'row', 'request', got 'batch'"),
        ({"per": "request", "cost": "tokens"}, "needs an int as its `cost`, and no `result_cost`"),
        ({"per": "request", "result_cost": "n"}, "needs an int as its `cost`, and no `result_c"),
        ({"result_cost": 7}, "`result_cost` of RateLimit must be the name of a column"),
        ({"result_cost": {"used": "7"}}, "`result_cost` of RateLimit must be"),
        ({"first_cost": 0}, "`first_cost` of RateLimit must be"),
        ({"counts": "calls"}, "`counts` of RateLimit must be one of 'requests', 'tokens', 'other'"),
    ],
)
def test_a_wrong_cost_is_refused(arguments, message):
    with pytest.raises(sa.ConfigurationError) as caught:
        RateLimit("5/s", **arguments)
    assert caught.value.kind == ErrorKind.RATE_LIMIT_INVALID
    assert message in str(caught.value)


class Column:
    """As an expression of PySpark looks."""

    alias = None


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"cost": "price"}, "column-missing", "`cost` names column `price`, which the input does"),
        ({"cost": "tenant"}, "rate-limit-invalid", "`cost` names `tenant`, which is not a number"),
        ({"cost": Column()}, "rate-limit-invalid", "`cost` is an expression, which only calls"),
        ({"result_cost": "cost"}, "column-missing", "names `cost`, which `see` does not return"),
        ({"result_cost": "used.it"}, "column-missing", "names `used.it`, which `see` does not"),
    ],
)
def test_columns_that_have_no_costs_are_refused_where_they_are_known(arguments, kind, message):
    with pytest.raises(sa.ConfigurationError) as caught:
        list(arrow.ordered_wait([ROWS], see, rate_limit=RateLimit("5/s", **arguments)))
    assert (caught.value.kind, message in str(caught.value)) == (kind, True)


def test_what_is_no_number_is_named_as_spark_names_it():
    rows = pa.record_batch({"used": [{"tokens": 7}]})
    with pytest.raises(sa.ConfigurationError, match="not a number but struct<tokens:bigint>"):
        list(arrow.ordered_wait([rows], see, rate_limit=RateLimit("5/s", cost="used")))


def test_a_column_of_results_that_has_no_numbers_is_refused():
    @sa.async_function("used string")
    async def ask(row):
        return row["id"]

    with pytest.raises(
        sa.ConfigurationError, match="`result_cost` names `used`, which is not a numb"
    ):
        resolve_unpickled(
            "ordered", ask, input_schema=None, rate_limit=RateLimit("1/s", result_cost="used")
        )
