# SPDX-License-Identifier: Apache-2.0
"""What `info=` tells of the calls of each row is what was called."""

import asyncio
import re
from collections import Counter
from types import SimpleNamespace

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import ErrorKind
from sparkawait.outcomes import CALL_TYPE

ROWS = 61
WAITS = (arrow.ordered_wait, arrow.unordered_wait, arrow.key_ordered_wait)


def again(retries):
    return sa.retry.fixed_delay(retries, 0, budget=None)


TWICE = {"retry": again(2)}


class RefusedError(Exception):
    """Raised by a client whose service has answered with a status."""

    def __init__(self, status):
        self.response = SimpleNamespace(status_code=status, headers={})


class Service:
    """Counts the calls for each row, and refuses the first `id % 3` of them."""

    def __init__(self):
        self.calls = Counter()

    def call(self, ids):
        for id_ in ids:
            self.calls[id_] += 1
        if any(self.calls[id_] <= id_ % 3 for id_ in ids):
            raise RefusedError(503)

    def by_row(self):
        async def row(row):
            self.call([row["id"]])
            return {"y": 2 * row["id"]}

        return sa.async_function("y bigint")(row)

    def plain(self):
        def plain(row):
            self.call([row["id"]])
            return {"y": 2 * row["id"]}

        return sa.async_function("y bigint")(plain)

    def many(self):
        async def many(rows):
            self.call([row["id"] for row in rows])
            return [{"y": 2 * row["id"]} for row in rows]

        return sa.async_function("y bigint", batch=7)(many)

    def columns(self):
        async def columns(batch):
            ids = batch["id"].to_pylist()
            self.call(ids)
            return pa.record_batch({"y": [2 * id_ for id_ in ids]})

        return sa.async_function("y bigint", batch=sa.Batch(max_rows=11, arrow=True))(columns)


def table(rows=ROWS):
    # In two batches, the second of which is no multiple of the first.
    ids = list(range(rows))
    parts = [pa.array(it, pa.int64()) for it in (ids[:17], ids[17:])]
    return pa.Table.from_batches([pa.record_batch({"id": it}) for it in parts])


def wait(function, *arguments, **given):
    if function is arrow.key_ordered_wait:
        given["key"] = "id"
    return function(*arguments, **given).to_table().to_pylist()


@pytest.mark.parametrize("kind", ["by_row", "plain", "many", "columns"])
@pytest.mark.parametrize("mode", WAITS)
def test_attempts_of_each_row_are_the_calls_that_were_made_for_it(kind, mode):
    service = Service()
    function = getattr(service, kind)()

    rows = wait(
        mode,
        table(),
        function,
        info="call",
        retry=again(99),
        max_concurrency=5,
        tuning=sa.Tuning(max_rows=7),
    )

    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    assert all(row["y"] == 2 * row["id"] for row in rows)
    calls = {row["id"]: row["call"] for row in rows}
    assert {id_: it["attempts"] for id_, it in calls.items()} == dict(service.calls)
    assert min(it["seconds"] for it in calls.values()) >= 0
    assert min(it["waited"] for it in calls.values()) >= 0
    refused = {id_ for id_, it in calls.items() if it["status"] == 503}
    assert refused == {id_ for id_, count in service.calls.items() if count > 1}
    others = {(it["cached"], it["hedged"], it["cost"]) for it in calls.values()}
    assert others == {(False, False, None)}


@pytest.mark.parametrize("on_error", ["null", "capture", "drop"])
def test_a_failed_row_has_its_calls_too(on_error):
    service = Service()
    rows = wait(
        arrow.ordered_wait,
        table(),
        service.by_row(),
        info="calls of it",
        on_error=on_error,
        retry=again(1),
    )

    # Those that are refused twice fail.
    failed = [id_ for id_ in range(ROWS) if id_ % 3 == 2]
    kept = [id_ for id_ in range(ROWS) if on_error != "drop" or id_ not in failed]
    told = [(row["y"], row["calls of it"]["attempts"]) for row in rows]
    assert told == [(None if id_ in failed else 2 * id_, 1 if id_ % 3 == 0 else 2) for id_ in kept]
    captured = ["error"] if on_error == "capture" else []
    assert list(rows[0]) == ["id", "y", *captured, "calls of it"]
    if captured:
        failures = [row for row in rows if row["error"] is not None]
        assert len(failures) == len(failed)
        assert all(row["error"]["status"] == row["calls of it"]["status"] for row in failures)


def test_each_result_of_a_row_has_its_calls_and_a_row_without_any_leaves_nothing():
    calls = Counter()

    @sa.async_function("y bigint")
    async def several(row):
        calls[row["id"]] += 1
        if calls[row["id"]] <= row["id"] % 2:
            raise RefusedError(429)
        return [{"y": it} for it in range(row["id"] % 5)]

    rows = wait(
        arrow.unordered_wait,
        table(),
        several,
        info="call",
        retry=again(1),
        tuning=sa.Tuning(max_rows=3),
    )

    assert Counter(row["id"] for row in rows) == Counter(
        {id_: id_ % 5 for id_ in range(ROWS) if id_ % 5}
    )
    assert all(row["call"]["attempts"] == calls[row["id"]] for row in rows)


def test_rows_that_a_cache_or_the_call_of_another_row_answers_were_not_called():
    called = []

    @sa.async_function("y bigint")
    async def ask(row):
        called.append(row["id"] % 7)
        await asyncio.sleep(0)
        return {"y": row["key"]}

    ids = pa.table({"id": list(range(ROWS)), "key": [id_ % 7 for id_ in range(ROWS)]})
    cache = sa.Cache(key="key")
    first = wait(arrow.ordered_wait, ids, ask, cache=cache, info="call")
    second = wait(arrow.ordered_wait, ids, ask, cache=cache, info="call")

    assert sorted(called) == list(range(7))
    assert sum(row["call"]["attempts"] for row in first) == 7
    for row in [*first, *second]:
        assert row["call"]["cached"] == (row["call"]["attempts"] == 0)
        assert row["call"]["seconds"] >= 0
    assert all(row["call"]["cached"] for row in second)


def test_a_second_call_is_told_and_is_no_attempt():
    calls = Counter()

    @sa.async_function("y bigint", idempotent=True)
    async def slow_once(row):
        calls[row["id"]] += 1
        if calls[row["id"]] == 1 and row["id"] % 13 == 5:
            await asyncio.Event().wait()
        return {"y": row["id"]}

    hedge = sa.Hedge("1ms", 1.0)
    rows = wait(arrow.unordered_wait, table(), slow_once, hedge=hedge, info="call")

    assert len(rows) == ROWS
    # On a machine that stands still, others look slow, too.
    hedged = {row["id"] for row in rows if row["call"]["hedged"]}
    assert hedged >= {id_ for id_, count in calls.items() if count == 2} >= {5, 18, 31, 44, 57}
    assert {row["call"]["attempts"] for row in rows} == {1}


def test_a_row_whose_time_has_passed_was_called_until_then():
    @sa.async_function("y bigint")
    async def hangs(row):
        await asyncio.Event().wait()

    given = {"timeout": "31ms", "info": "call"}
    ended = wait(arrow.ordered_wait, table(), hangs, on_error="null", **given)
    asked = wait(arrow.ordered_wait, table(), hangs, on_timeout={"y": -1}, **given)

    for rows in (ended, asked):
        assert [row["id"] for row in rows] == list(range(ROWS))
        assert all(row["call"]["attempts"] == 1 for row in rows)
        assert min(row["call"]["seconds"] for row in rows) >= 0.03
    assert {row["y"] for row in ended} == {None}
    assert {row["y"] for row in asked} == {-1}


def cost_of(row):
    return row["id"] % 4


@pytest.mark.parametrize(
    ("limit", "price"),
    [
        (sa.RateLimit("9000/s", 5, cost=cost_of, name="tokens"), lambda id_: id_ % 4),
        (sa.RateLimit("9000/s", 5, cost=3, name="tokens"), lambda _: 3),
        (sa.RateLimit("9000/s", 5, 3, result_cost="y", name="tokens"), None),
    ],
    ids=["function", "number", "result"],
)
def test_costs_are_what_the_limit_was_charged_over_all_attempts(limit, price):
    service, totals = Service(), {}
    plan = resolve_unpickled(
        "unordered",
        service.by_row(),
        input_schema=None,
        rate_limit=["9000/s", limit],
        retry=again(2),
        info="call",
    )
    out = arrow.run(plan, iter(table().to_batches()), on_metrics=totals.update)
    rows = [row for batch in out for row in batch.to_pylist()]

    assert len(rows) == ROWS
    for row in rows:
        id_, attempts = row["id"], service.calls[row["id"]]
        # An attempt that fails says nothing of its cost, so its estimate stands.
        cost = 3 * (attempts - 1) + 2 * id_ if price is None else attempts * price(id_)
        assert row["call"]["cost"] == cost
    permits = totals["rate_limits"]["tokens"]["permits"]
    assert sum(row["call"]["cost"] for row in rows) == permits


def test_a_limit_that_counts_calls_has_no_prices():
    rows = wait(
        arrow.ordered_wait, table(), Service().by_row(), rate_limit="9000/s", info="call", **TWICE
    )
    assert {row["call"]["cost"] for row in rows} == {None}


def test_a_row_that_cannot_be_called_has_no_times():
    ids = pa.table({"id": [0, 1, 3], "cost": pa.array([1, None, 4])})
    limit = sa.RateLimit("9000/s", cost="cost")
    given = {"rate_limit": limit, "on_error": "capture", "info": "call"}
    rows = wait(arrow.ordered_wait, ids, Service().by_row(), **given)

    refused = rows[1]
    assert refused["error"]["kind"] == ErrorKind.COST_INVALID
    assert refused["call"] == {
        **dict.fromkeys(CALL_TYPE.names),
        "attempts": 0,
        "cached": False,
        "hedged": False,
        "cost": 0.0,
    }
    assert [row["call"]["attempts"] for row in rows] == [1, 0, 1]


def test_each_function_side_by_side_and_each_call_of_a_chain_has_its_own_column():
    one, other, last = Service(), Service(), Service()

    def renamed(function, name):
        async def call(row):
            return {name: (await function.function(row))["y"]}

        return sa.async_function(f"{name} bigint")(call)

    functions = [
        renamed(one.by_row(), "a").with_options(info="call a", on_error="capture"),
        renamed(other.by_row(), "b").with_options(info="call b", on_error="null", retry=0),
    ]
    retry = again(2)
    beside = arrow.ordered_wait(table(), functions, retry=retry)
    out = arrow.unordered_wait(beside, last.by_row(), chain=True, retry=retry, info="call y")
    rows = out.to_table().to_pylist()

    assert list(rows[0]) == ["id", "a", "error", "call a", "b", "call b", "y", "call y"]
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    for name, service in (("a", one), ("b", other), ("y", last)):
        told = {row["id"]: row[f"call {name}"]["attempts"] for row in rows}
        assert told == dict(service.calls)
    assert all((row["b"] is None) == (row["id"] % 3 > 0) for row in rows)


def test_there_is_no_column_unless_you_ask_for_it_and_it_is_there_without_rows():
    assert wait(arrow.ordered_wait, table(), Service().by_row(), **TWICE)[0].keys() == {"id", "y"}
    none = arrow.ordered_wait(table(0), Service().by_row(), info="call").to_table()
    assert (none.num_rows, none.schema.field("call").type) == (0, CALL_TYPE)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"info": "id"}, "column `id` has the name of the column in which `info` tells of calls"),
        ({"info": "y"}, "column `y` has the name of the column in which `info` tells of calls"),
        ({"info": "error", "on_error": "capture"}, "give `info` another name"),
        ({"info": ""}, "`info` must be the name of a column, such as 'call', got ''"),
        ({"info": True}, "`info` must be the name of a column, such as 'call', got True"),
    ],
    ids=str,
)
def test_a_name_that_is_taken_or_is_none_is_refused(given, words):
    with pytest.raises(sa.ConfigurationError, match=re.escape(words)):
        arrow.ordered_wait(table(), Service().by_row(), **given).to_table()


def test_functions_side_by_side_do_not_share_a_column():
    with pytest.raises(sa.ConfigurationError, match="both tell of calls in column `call`") as info:
        arrow.ordered_wait(table(), [Service().by_row(), Service().plain()], info="call")
    assert info.value.kind == ErrorKind.COLUMN_CLASH
