# SPDX-License-Identifier: Apache-2.0
"""Requests of many rows that fail: they are sent again as they were, unless rows are at fault."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.batches import RETRY, doubled, inputs, lookup, ok, paid, rows, serve
from tests.support.scripted_server import Answer, Request, ScriptedServer


@contextmanager
def remembering(
    lost: Answer = None, losses: int = 0, held: int = 0
) -> Iterator[tuple[ScriptedServer, Counter[Any], list[tuple[str, tuple[Any, ...]]]]]:
    """Serves as one that carries each key out once, and whose first answers are lost, or not sent.

    Yields the server, how often each row was carried out, and the keys and rows of all requests.
    """
    carried_out: Counter[Any] = Counter()
    known: dict[str, list[Any]] = {}
    asked: list[tuple[str, tuple[Any, ...]]] = []
    lock, release = threading.Lock(), threading.Event()

    def reply(request: Request, before: int) -> Answer:
        key, items = request.headers["idempotency-key"], inputs(request)
        with lock:
            asked.append((key, tuple(items)))
            if key not in known:
                known[key] = items
                carried_out.update(items)
            # As services do that compare.
            if known[key] != items:
                return 422, {}, b"the key was used for another request"
        if before < held:
            release.wait()
        return lost if before < losses else ok(doubled(items))

    with serve(reply) as server:
        try:
            yield server, carried_out, asked
        finally:
            release.set()


@pytest.mark.parametrize("key", [True, "order-{x}"])
@pytest.mark.parametrize("lost", [None, (409, {}, b""), (504, {}, b""), (500, {}, b"")])
def test_what_failed_as_one_is_sent_again_as_one_with_its_key(lost: Answer, key: Any):
    with remembering(lost, losses=4) as (server, carried_out, asked):
        function = lookup(server, idempotency_key=key, batch=10)
        retry = sa.retry.exponential_backoff(5, "13ms", "70ms", 2)
        found = rows(function, list(range(40)), retry=retry, info="call")

        assert [(row["x"], row["v"]) for row in found] == [(x, 2 * x) for x in range(40)]
        assert carried_out == dict.fromkeys(range(40), 1)
        assert len(asked) == 8
        assert len({rows for _, rows in asked}) == len({key for key, _ in asked}) == 4


def test_a_request_whose_time_is_up_is_sent_again_with_its_key():
    with remembering(held=3) as (server, carried_out, asked):
        function = lookup(server, idempotency_key=True, batch=7)
        retry = sa.retry.exponential_backoff(5, "13ms", "70ms", 2)
        options = {"attempt_timeout": "331ms", "retry": retry, "timeout": "30s"}
        found = rows(function, list(range(21)), **options)

        assert [(row["x"], row["v"]) for row in found] == [(x, 2 * x) for x in range(21)]
        assert carried_out == dict.fromkeys(range(21), 1)
        assert len({key for key, _ in asked}) == 3


def test_only_what_the_service_said_of_a_row_splits_a_request():
    said: set[int] = set()

    def reply(request: Request, before: int) -> Answer:
        if before == 0:
            return None
        items = []
        for x in inputs(request):
            is_busy = x % 5 == 3 and x not in said
            items.append({"status": 429} if is_busy else {"status": 200, "v": 2 * x})
            said.add(x)
        return ok(items)

    with serve(reply) as server:
        function = lookup(
            server, idempotency_key=True, batch=20, items=sa.http.items(status="status")
        )
        found = rows(function, list(range(20)), retry=RETRY)

        assert [row["v"] for row in found] == [2 * x for x in range(20)]
        asked = [inputs(request) for request in server.requests]
        assert asked[:2] == [list(range(20))] * 2
        assert sorted(x for part in asked[2:] for x in part) == [3, 8, 13, 18]
        keys = [request.headers["idempotency-key"] for request in server.requests]
        assert keys[0] == keys[1] not in keys[2:]


@pytest.mark.parametrize("key", [True, False])
def test_what_ends_with_a_kept_connection_is_a_call_more_of_each_of_its_rows(key: bool):
    thread = threading.local()

    def reply(request: Request, _: int) -> Answer:
        # A thread serves one connection, and ends it under its second request.
        is_kept, thread.is_kept = getattr(thread, "is_kept", False), True
        return None if is_kept else ok(doubled(inputs(request)))

    with serve(reply) as server:
        function = lookup(server, idempotency_key=key, batch=3, method="POST" if key else "PUT")
        found = rows(function, list(range(39)), retry=0, max_concurrency=9, info="call")
        asked = [(it.headers.get("idempotency-key"), *inputs(it)) for it in server.requests]
    assert [row["v"] for row in found] == [2 * it for it in range(39)]
    # The same rows, under the same key if there is one.
    assert len(asked) > len(set(asked)) == 13
    of_rows = Counter(row for _, *of_request in asked for row in of_request)
    assert {row["x"]: row["call"]["attempts"] for row in found} == of_rows


@pytest.mark.parametrize("key", [None, True])
@pytest.mark.parametrize("budget", [None, sa.retry.Budget()])
def test_a_request_that_is_refused_comes_back_as_it_was(budget: Any, key: Any):
    with serve(lambda *_: (503, {}, b"")) as server:
        retry = sa.retry.exponential_backoff(2, "3ms", "70ms", 2, budget=budget)
        # More than have tokens at once.
        function = lookup(server, batch=17, idempotency_key=key)
        found = rows(function, list(range(17)), retry=retry, on_error="capture")

        assert [row["error"]["attempts"] for row in found] == [3] * 17
        asked = [inputs(request) for request in server.requests]
        # Where a key is told by the order, that is the same, too.
        assert (asked if key else [sorted(it) for it in asked]) == [list(range(17))] * 3


@pytest.mark.parametrize("option", ["idempotency_key", "headers"])
def test_a_row_of_a_request_with_a_key_has_no_second_call(option: str):
    key: Any = "order-{x}" if option == "idempotency_key" else {"Idempotency-Key": "order-{x}"}
    with serve(lambda request, _: ok(doubled(inputs(request)))) as server:
        function = lookup(server, **{option: key})
        with pytest.raises(sa.ConfigurationError, match="leave `batch` out or `hedge`"):
            rows(function, [1, 2, 3], hedge="13ms")


@pytest.mark.parametrize("breaker", [None, True])
def test_an_outage_is_not_multiplied(breaker: bool | None):
    with serve(lambda *_: (500, {}, b"out of order")) as server:
        batch = sa.Batch(max_rows=64, split_on_error=True)
        count = 64 if breaker is None else 256
        options = {"circuit_breaker": breaker, "on_error": "capture", "timeout": "2s"}
        found = rows(lookup(server, batch=batch), list(range(count)), **options)

        assert [row["x"] for row in found if row["error"]] == list(range(count))
        assert len(server.requests) <= (8 if breaker is None else 30)
        # Nearly all rows were sent once.
        sent = Counter(x for request in server.requests for x in inputs(request))
        assert set(sent) == set(range(count))
        assert max(sent.values()) == 2


def test_an_outage_of_a_keyed_service_ends_with_the_key_that_it_began_with():
    def reply(request: Request, before: int) -> Answer:
        return (500, {}, b"") if before < 7 else ok(doubled(inputs(request)))

    with serve(reply) as server:
        batch = sa.Batch(max_rows=64, split_on_error=True)
        function = lookup(server, batch=batch, idempotency_key=True)
        found = rows(function, list(range(64)), retry=RETRY)

        assert [row["v"] for row in found] == [2 * x for x in range(64)]
        whole = [it.headers["idempotency-key"] for it in server.requests if len(inputs(it)) == 64]
        assert len(whole) == 2
        assert len(set(whole)) == 1


@pytest.mark.parametrize("at_fault", [{0}, {13}, {63}, {0, 1}, {5, 31, 32}, set(range(0, 64, 3))])
def test_a_500_is_of_the_rows_where_a_part_of_the_request_is_answered(at_fault: set[int]):
    def reply(request: Request, _: int) -> Answer:
        items = inputs(request)
        return (500, {}, b"bad row") if at_fault & set(items) else ok(doubled(items))

    with serve(reply) as server:
        batch = sa.Batch(max_rows=64, split_on_error=True)
        limits = [
            sa.RateLimit("90001/s", burst=61, cost=3, name="rows"),
            sa.RateLimit("70001/s", burst=7, cost=2, name="requests", per="request"),
        ]
        many = pa.record_batch({"x": list(range(64))})
        given = {"rate_limit": limits, "on_error": "capture"}
        found, permits = paid(lookup(server, batch=batch), many, **given)

        assert {row["x"] for row in found if row["error"]} == at_fault
        assert {row["x"]: row["v"] for row in found if not row["error"]} == {
            x: 2 * x for x in set(range(64)) - at_fault
        }
        sizes = [len(inputs(request)) for request in server.requests]
        assert permits == {"rows": 3 * sum(sizes), "requests": 2 * len(sizes)}


def test_a_connection_that_ends_under_a_row_asked_for_alone_says_nothing_of_the_service():
    ended = threading.Event()

    def reply(request: Request, _: int) -> Answer:
        items = inputs(request)
        if items == [0] and not ended.is_set():
            # Over a connection that was kept.
            ended.set()
            return None
        return (500, {}, b"bad row") if 2 in items else ok(doubled(items))

    with serve(reply) as server:
        batch = sa.Batch(max_rows=4, linger="20s", split_on_error=True)
        function = lookup(server, batch=batch, method="PUT")
        found = rows(function, list(range(4)), retry=0, on_error="capture")

        assert [row["x"] for row in found if row["error"]] == [2]
        assert [row["v"] for row in found] == [0, 2, None, 6]
