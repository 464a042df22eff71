# SPDX-License-Identifier: Apache-2.0
"""When the time of an attempt begins, and whether a call that ran out of it is made again."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.arrow import run
from tests.support.batches import doubled, inputs, lookup, ok, rows, serve
from tests.support.scripted_server import Answer, Request, ScriptedServer

AGAIN = sa.retry.fixed_delay(3, "1ms")
FINAL = "it is not made again, because it may have been carried out"


def capture(function: Any, values: list[int], **options: Any) -> list[dict[str, Any]]:
    return rows(function, values, on_error="capture", **options)


def hanging(batch: sa.Batch | None = None, **declared: Any) -> tuple[Any, list[int]]:
    """A function that never returns, and the rows that it was called for."""
    calls: list[int] = []

    if batch is not None:

        @sa.async_function("v bigint", batch=batch, **declared)
        async def hang_together(found: list[sa.typing.Row]) -> list[int]:
            calls.extend(row.x for row in found)
            await asyncio.Event().wait()
            return []

        return hang_together, calls

    @sa.async_function("v bigint", **declared)
    async def hang(row: sa.typing.Row) -> int:
        calls.append(row.x)
        await asyncio.Event().wait()
        return 0

    return hang, calls


# -- whether it is made again


@pytest.mark.parametrize(
    ("method", "options", "sent"),
    [("GET", {}, 4), ("DELETE", {}, 4), ("POST", {}, 1), ("POST", {"idempotency_key": True}, 4)],
)
def test_a_request_that_ran_out_of_time_is_sent_again_only_where_twice_is_harmless(
    method: str, options: dict[str, Any], sent: int
):
    over = threading.Event()
    values = [3, 7, 11]
    with ScriptedServer(lambda *_: over.wait(30) and None) as server:
        url = f"{server.url}/{{x}}"
        function = sa.http.request(
            method, url, "v bigint", client=sa.http.Client(proxy=False), **options
        )
        attempt = "200ms" if sent > 1 else "2s"
        found = capture(function, values, retry=AGAIN, attempt_timeout=attempt)
        over.set()

    # On a machine that stands still, an attempt may be over before it is sent.
    made = Counter(server.targets)
    assert all(made[f"/{x}"] <= sent for x in values)
    assert sent > 1 or made.total() == len(values)
    assert [row["error"]["attempts"] for row in found] == [sent] * 3
    assert {row["error"]["kind"] for row in found} == {"element-timed-out"}
    for row in found:
        assert (FINAL in row["error"]["message"]) == (sent == 1)
        assert ("give `idempotency_key`" in row["error"]["message"]) == (sent == 1)


def test_rows_that_wait_for_a_request_of_many_are_sent_once_each():
    over = threading.Event()

    def reply(request: Request, before: int) -> Answer:
        if before == 1:
            over.wait(30)
        return ok(doubled(inputs(request)))

    values = list(range(13))
    with serve(reply) as server:
        batch = sa.Batch(max_rows=3, linger="5ms")
        function = lookup(server, batch=batch, max_requests=1)
        found = capture(function, values, retry=AGAIN, attempt_timeout="2s")
        over.set()
        sent = Counter(x for request in server.requests for x in inputs(request))

    assert sent == dict.fromkeys(values, 1)
    assert [row["v"] for row in found] == [None if x in (3, 4, 5) else 2 * x for x in values]


@pytest.mark.parametrize("batch", [None, sa.Batch(max_rows=2, linger=0)], ids=["row", "batch"])
@pytest.mark.parametrize(("declared", "calls"), [(None, 4), (True, 4), (False, 1)])
def test_a_coroutine_is_called_again_unless_twice_is_said_to_do_harm(
    batch: sa.Batch | None, declared: bool | None, calls: int
):
    function, called = hanging(batch, idempotent=declared)

    found = capture(
        function, [3, 7], retry=AGAIN, attempt_timeout="50ms", tuning=sa.Tuning(warm_up=False)
    )

    assert [row["error"]["attempts"] for row in found] == [calls] * 2
    # Of a loop that is late, an attempt may be over before it is made.
    made = Counter(called)
    assert set(made) <= {3, 7}
    assert max(made.values(), default=0) <= calls
    for row in found:
        assert (FINAL in row["error"]["message"]) == (calls == 1)
        assert ("idempotent=False" in row["error"]["message"]) == (calls == 1)


def test_an_exception_is_tried_again_where_a_second_call_does_harm_too():
    attempts: Counter[int] = Counter()

    @sa.async_function("v bigint", idempotent=False)
    async def refused_once(row: sa.typing.Row) -> int:
        attempts[row.x] += 1
        if attempts[row.x] == 1:
            raise ConnectionRefusedError
        return row.x

    found = capture(refused_once, [3, 7], retry=AGAIN, attempt_timeout="20s")

    assert [row["v"] for row in found] == [3, 7]
    assert attempts == {3: 2, 7: 2}


# -- when its time begins


def test_the_time_of_an_attempt_of_a_batched_coroutine_begins_with_its_call():
    called: list[int] = []

    @sa.async_function("v bigint", batch=sa.Batch(max_rows=100, linger="2s"))
    async def answer(found: list[sa.typing.Row]) -> list[int]:
        called.extend(row.x for row in found)
        return [row.x for row in found]

    found = capture(answer, [0, 1, 2, 3, 4], attempt_timeout="1s", tuning=sa.Tuning(warm_up=False))

    assert called == [0, 1, 2, 3, 4]
    assert [row["error"] for row in found] == [None] * 5


@pytest.mark.parametrize("cache", [None, sa.Cache(key="x")], ids=["no-cache", "cache"])
def test_a_row_that_waits_for_a_call_of_many_is_not_called_twice(cache: sa.Cache | None):
    calls: list[list[int]] = []

    @sa.async_function("v bigint", batch=sa.Batch(max_rows=8, linger="2s"), idempotent=True)
    async def answer(found: list[sa.typing.Row]) -> list[int]:
        calls.append([row.x for row in found])
        return [row.x for row in found]

    hedge = sa.Hedge(after="1s", max_extra=1.0)
    found = capture(answer, [0, 1, 2], hedge=hedge, cache=cache, tuning=sa.Tuning(warm_up=False))

    assert calls == [[0, 1, 2]]
    assert [row["v"] for row in found] == [0, 1, 2]


def test_a_batched_call_that_is_slow_has_a_second_one_beside_it():
    over = asyncio.Event()
    calls: list[list[int]] = []

    @sa.async_function("v bigint", batch=sa.Batch(max_rows=2, linger="10ms"), idempotent=True)
    async def first_hangs(found: list[sa.typing.Row]) -> list[int]:
        calls.append([row.x for row in found])
        if len(calls) == 1:
            await over.wait()
        return [row.x for row in found]

    hedge = sa.Hedge(after="50ms", max_extra=1.0)
    found = capture(
        first_hangs, [0, 1], hedge=hedge, tuning=sa.Tuning(warm_up=False), max_concurrency=5
    )

    assert [row["v"] for row in found] == [0, 1]
    assert calls == [[0, 1], [0, 1]]


def test_adaptive_does_not_count_the_wait_for_company():
    @sa.async_function("v bigint", batch=sa.Batch(max_rows=100, linger="2s"))
    async def answer(found: list[sa.typing.Row]) -> list[int]:
        return [row.x for row in found]

    # The first call takes seven rows, all that there are.
    calls = sa.Adaptive(1, 3, max_latency="150ms")
    options = {"max_concurrency": calls, "tuning": sa.Tuning(warm_up=False)}
    plan = resolve_unpickled("ordered", answer, input_schema=None, **options)
    seen: list[dict[str, Any]] = []
    out = run(plan, iter([pa.record_batch({"x": [5] * 7})]), on_metrics=seen.append)

    assert sum(batch.num_rows for batch in out) == 7
    took = [seconds for seconds, calls in seen[-1]["call_latency"] if calls]
    assert max(took) < 1.5


# -- a row that waits for the call of another row


@pytest.mark.parametrize(
    "breaker",
    [pytest.param(None, marks=pytest.mark.nightly), sa.CircuitBreaker(when_open="fail")],
)
@pytest.mark.parametrize("kind", ["python", "batch", "native"])
def test_rows_that_wait_for_a_cached_call_have_no_attempt(
    kind: str, breaker: sa.CircuitBreaker | None
):
    over = threading.Event()
    calls: list[int] = []

    async def take(x: int) -> None:
        calls.append(x)
        if len(calls) == 1:
            await asyncio.Event().wait()

    @sa.async_function("v bigint")
    async def ask(row: sa.typing.Row) -> int:
        await take(row.x)
        return 2 * row.x

    @sa.async_function("v bigint", batch=sa.Batch(max_rows=3, linger=0))
    async def ask_together(found: list[sa.typing.Row]) -> list[int]:
        for row in found:
            await take(row.x)
        return [2 * row.x for row in found]

    def reply(_: Request, before: int) -> Answer:
        if before == 0:
            over.wait(30)
        return ok({"v": 14})

    metrics = sa.Metrics()
    with serve(reply) as server:
        get = sa.http.get(f"{server.url}/{{x}}", "v bigint", client=sa.http.Client(proxy=False))
        functions = {"python": ask, "batch": ask_together, "native": get}
        out = sa.arrow.unordered_wait(
            [pa.record_batch({"x": [7] * 201})],
            functions[kind],
            timeout="20s",
            attempt_timeout="1s",
            retry=sa.retry.fixed_delay(3, "10ms"),
            cache=sa.Cache(key=["x"]),
            circuit_breaker=breaker,
            max_concurrency=301,
            on_error="capture",
            info="call",
            metrics=metrics,
            tuning=sa.Tuning(warm_up=False),
        )
        found = out.to_table().to_pylist()
        over.set()

    assert [(row["v"], row["error"]) for row in found] == [(14, None)] * 201
    # The first call is lost; one of the rows that wait makes the second one.
    asked = len(calls) or len(server.targets)
    counts = metrics.snapshot()
    assert (asked, counts["attempts"], counts["cache_loads"]) == (2, 2, 2)
    assert sum(row["call"]["attempts"] for row in found) == 2
    assert sum(row["call"]["cached"] for row in found) == 200
