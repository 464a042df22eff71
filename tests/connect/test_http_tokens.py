# SPDX-License-Identifier: Apache-2.0
"""Requests a minute and tokens a minute: what is charged is what the service has counted."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from tests.support.batches import doubled, inputs, lookup, ok
from tests.support.batches import serve as serve_batches
from tests.support.scripted_server import Answer, Request, ScriptedServer

PROMPTS = pa.record_batch({"id": range(40), "most": [100 + 10 * (it % 5) for it in range(40)]})


class Counting:
    """A service that counts requests, and the tokens of those that it answers."""

    def __init__(self) -> None:
        self.requests = self.tokens = 0
        self._lock = threading.Lock()

    def answer(self, target: str, _: int) -> Answer:
        prompt = int(target.rsplit("/", 1)[1])
        with self._lock:
            self.requests += 1
            if prompt % 10 == 7:
                return 400, {}, b"{}"
            used = 1 + prompt * 37 % 90
            self.tokens += used
        return 200, {}, json.dumps({"text": "hm", "usage": {"total_tokens": used}}).encode()


@contextmanager
def serve() -> Iterator[tuple[Counting, str]]:
    counting = Counting()
    with ScriptedServer(counting.answer) as server:
        yield counting, server.url


class Chat(sa.AsyncFunction):
    """Asks in a thread, and says itself what it has cost; nothing if it was refused."""

    schema = "text string"

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, context):
        self.context = context

    async def async_invoke(self, row):
        self.context.settle(row, 0, limit="tokens")
        reply = await asyncio.to_thread(self.ask, row["id"])
        self.context.settle(row, reply["usage"]["total_tokens"], limit="tokens")
        return {"text": reply["text"]}

    def ask(self, prompt):
        with urllib.request.urlopen(f"{self.url}/{prompt}") as reply:  # noqa: S310 - of this test
            return json.load(reply)


def native(url):
    schema = "text string, usage struct<total_tokens: bigint>"
    return sa.http.get(f"{url}/{{id}}", schema, client=sa.http.Client(proxy=False))


@pytest.mark.parametrize("scope", ["task", "host"])
@pytest.mark.parametrize("cost", ["most", lambda row: row["most"]])
@pytest.mark.parametrize("make", [native, Chat])
def test_both_limits_end_at_what_the_service_has_counted(make, cost, scope):
    is_native, totals = make is native, {}
    with serve() as (counting, url):
        tokens = sa.RateLimit(
            "600_000/min",
            burst=700,
            cost=cost,
            scope=scope,
            result_cost="usage.total_tokens" if is_native else None,
            name="tokens",
        )
        requests = sa.RateLimit("60_000/min", burst=10, scope=scope, name="requests")
        plan = resolve_unpickled(
            "unordered",
            make(url),
            input_schema=None,
            rate_limit=[requests, tokens],
            on_error="drop",
            timeout="20s",
        )
        out = arrow.run(plan, iter([PROMPTS]), on_metrics=totals.update)
        found = [row for part in out for row in part.to_pylist()]

    assert (len(found), counting.requests) == (36, 40)
    # What was refused is settled by the function that says so, and was charged as guessed else.
    guessed = sum(PROMPTS["most"][it].as_py() for it in (7, 17, 27, 37)) if is_native else 0
    permits = {name: it["permits"] for name, it in totals["rate_limits"].items()}
    assert permits == {"requests": 40, "tokens": counting.tokens + guessed}


@pytest.mark.parametrize("channel", [None, "x"])
@pytest.mark.parametrize("scope", ["task", "host"])
def test_a_limit_counts_requests_for_many_rows_if_asked_to(scope, channel):
    totals = {}

    def reply(request: Request, _: int) -> Answer:
        # The request is divided until the row at fault is alone.
        return (400, {}, b"{}") if 7 in inputs(request) else ok(doubled(inputs(request)))

    with serve_batches(reply) as server:
        limit = sa.RateLimit(
            "2000/s", burst=2, scope=scope, name=f"requests {channel}", per="request"
        )
        plan = resolve_unpickled(
            "unordered",
            lookup(server, batch=sa.Batch(max_rows=8, split_on_error=True)),
            input_schema=None,
            rate_limit=limit,
            channel=channel,
            on_error="drop",
            timeout="20s",
        )
        batch = pa.record_batch({"x": range(50)})
        out = arrow.run(plan, iter([batch]), on_metrics=totals.update)
        found = [row for part in out for row in part.to_pylist()]

        assert len(found) == 49
        permits = {name: it["permits"] for name, it in totals["rate_limits"].items()}
        assert permits == {limit.label: len(server.requests)}


class AskMany(sa.AsyncFunction):
    """Asks for some rows from Python, with the client of somebody else."""

    schema = "v bigint"

    def __init__(self, url: str, batch: sa.Batch) -> None:
        self.url, self.batch = url, batch

    async def async_invoke_batch(self, rows):
        return await asyncio.to_thread(self.ask, [row["x"] for row in rows])

    def ask(self, items):
        body = json.dumps({"input": items}).encode()
        with urllib.request.urlopen(self.url, body) as reply:  # noqa: S310 - of this test
            return json.load(reply)


class Moody:
    """A service that refuses some rows for good, others once, and keeps some until they come again.

    What it keeps is answered when the test is over: the second calls of the rows beside them are
    answered, too, and so none is given up before it has come.
    """

    def __init__(self, refused: set[int], busy: set[int], slow: set[int]) -> None:
        self.refused, self.busy, self.slow = refused, busy, slow
        self.kept = 0
        self.over = threading.Event()
        self._seen: set[int] = set()
        self._lock = threading.Lock()

    def reply(self, request: Request, _: int) -> Answer:
        items = set(inputs(request))
        with self._lock:
            new = items - self._seen
            self._seen |= items
            if items & self.refused:
                return 400, {}, b"{}"
            if new & self.busy:
                return 503, {}, b"{}"
            keeps = new == items and bool(new & self.slow)
            self.kept += keeps
        if keeps:
            self.over.wait(10)
        return ok(doubled(inputs(request)))


@pytest.mark.parametrize("is_native", [True, False])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(it, marks=pytest.mark.nightly) for it in range(1, 6))]
)
def test_what_is_charged_for_requests_is_what_has_come(seed, is_native):
    pick, totals, ids = random.Random(seed), {}, range(60)  # noqa: S311 - of a test
    chosen = pick.sample(ids, 7)
    moody = Moody({*chosen[:2]}, {*chosen[2:5]}, set(chosen[5:]) if seed % 2 else set())
    # No more rows are kept than may have a second call at once, which are 10.
    max_rows = pick.choice([2, 5]) if moody.slow else pick.choice([2, 5, 16])
    batch = sa.Batch(max_rows=max_rows, linger=pick.choice(["0ms", "3ms"]), split_on_error=True)
    limit = sa.RateLimit(
        "3000/s",
        burst=pick.choice([1, 4, 100]),
        cost=pick.choice([1, 3]),
        scope=pick.choice(["task", "host"]),
        per_channel=pick.random() < 0.3,
        name=f"moody {seed} {is_native}",
        per="request",
    )
    hedge = {"hedge": sa.Hedge(after="1s", max_extra=1.0)} if moody.slow else {}
    with serve_batches(moody.reply) as server:
        many = AskMany(f"{server.url}/b", batch)
        many.idempotent = True
        plan = resolve_unpickled(
            "unordered",
            lookup(server, batch=batch, method="PUT") if is_native else many,
            input_schema=None,
            rate_limit=limit,
            channel=None if limit.scope == "task" and not limit.per_channel else "tenant",
            retry=sa.retry.fixed_delay(20, "1ms"),
            on_error="drop",
            timeout="60s",
            **hedge,
        )
        rows = pa.record_batch({"x": ids, "tenant": [it % 2 for it in ids]})
        out = arrow.run(plan, iter([rows]), on_metrics=totals.update)
        found = sorted(row["x"] for part in out for row in part.to_pylist())
        moody.over.set()

    assert found == [it for it in ids if it not in moody.refused]
    assert totals["hedged"] >= moody.kept
    assert totals["rate_limits"][limit.label]["permits"] == limit.cost * len(server.requests)
