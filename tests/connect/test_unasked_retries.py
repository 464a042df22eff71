# SPDX-License-Identifier: Apache-2.0
"""What is called again without ``retry=``: what was not carried out, and nothing else.

The servers count. What they have answered is what somebody may have paid for.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.postgres_server import PostgresServer
from tests.support.resp_server import RespServer, bulk
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.servers import free_port

ROWS = 7
REFUSED = [408, 425, 429, 503]
UNKNOWN = [500, 502, 504, 507]
FINAL = [400, 401, 403, 404, 409, 422]
BROKEN = 0
"""The connection ends instead of an answer."""

MAKERS = {
    "GET": lambda url, **given: sa.http.get(url, "v bigint", missing=(), **given),
    "POST": lambda url, **given: sa.http.post(url, "v bigint", json={"x": "{x}"}, **given),
}


def look_up(function: Any, rows: int = ROWS, **options: Any) -> list[dict[str, Any]]:
    """Returns the rows that come out, as many as go in."""
    batch = pa.record_batch({"x": range(rows)})
    out = sa.arrow.ordered_wait([batch], function, on_error="capture", **options)
    found = [row for part in out for row in part.to_pylist()]
    assert [row["x"] for row in found] == [*range(rows)]
    return found


def requests_a_row(method: str, status: int, given: dict[str, Any], **options: Any) -> int:
    """Returns how many requests a server gets for each row that it answers so."""

    def answer(target: str, _: int) -> Answer:
        return (status, {}, b"no") if status else None

    with ScriptedServer(answer) as server:
        found = look_up(MAKERS[method](server.url + "/{x}", **given), **options)
    counts = Counter(server.targets)
    assert len(counts) == ROWS
    (count,) = set(counts.values())
    assert {row["error"]["attempts"] for row in found} == {count}
    return count


@pytest.mark.parametrize("method", [pytest.param("GET", marks=pytest.mark.nightly), "POST"])
@pytest.mark.parametrize(
    ("statuses", "expected"), [(REFUSED, 4), (UNKNOWN, 1), (FINAL, 1), ([BROKEN], 1)]
)
def test_only_what_was_refused_is_sent_again_and_three_times(method, statuses, expected):
    for status in statuses:
        assert requests_a_row(method, status, {}) == expected, status


@pytest.mark.parametrize(
    ("method", "given", "expected"),
    [("GET", {}, 3), ("POST", {}, 1), ("POST", {"idempotency_key": True}, 3)],
)
def test_with_retry_the_rest_is_sent_again_where_twice_is_harmless(method, given, expected):
    again = sa.retry.fixed_delay(2, "1ms", budget=None)
    for status in [*UNKNOWN, BROKEN]:
        assert requests_a_row(method, status, given, retry=again) == expected, status
    for status in REFUSED:
        assert requests_a_row(method, status, given, retry=again) == 3, status


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_statuses_that_are_named_are_sent_again_and_no_others(method):
    given = {"retry_status": [500, range(501, 503), 404]}
    again = sa.retry.fixed_delay(1, "1ms", budget=None)
    for status in [500, 501, 502, 404]:
        assert requests_a_row(method, status, given, retry=again) == 2, status
    for status in [429, 503, 504]:
        assert requests_a_row(method, status, given, retry=again) == 1, status
    assert requests_a_row(method, 500, given) == 4


def test_nothing_is_sent_again_with_none():
    for status in [429, 503, 500, BROKEN]:
        assert requests_a_row("GET", status, {}, retry=0) == 1, status


def test_a_row_that_was_refused_once_has_its_result_and_the_log_says_how_many(caplog):
    seen: Counter[str] = Counter()

    def answer(target: str, _: int) -> Answer:
        seen[target] += 1
        busy = int(target[1:]) % 3 == 0 and seen[target] == 1
        return (503, {}, b"") if busy else (200, {}, b'{"v": %d}' % int(target[1:]))

    with ScriptedServer(answer) as server, caplog.at_level(logging.WARNING, "sparkawait"):
        found = look_up(MAKERS["GET"](server.url + "/{x}"), 13)

    assert [row["v"] for row in found] == [*range(13)]
    assert [row["error"] for row in found] == [None] * 13
    (line,) = [it for it in caplog.messages if "made again" in it]
    assert line.startswith("5 of the 18 calls of `http.get` were made again")


def test_the_message_says_what_would_make_it_again():
    with ScriptedServer(lambda *_: (500, {}, b"no")) as server:
        asked = look_up(MAKERS["POST"](server.url), 1, retry=3)
        unasked = look_up(MAKERS["POST"](server.url), 1)
    assert (
        "not made again, because it may have been carried out; where"
        in (asked[0]["error"]["message"])
    )
    assert "`idempotency_key`" in asked[0]["error"]["message"]
    assert "made again only with `retry=`" in unasked[0]["error"]["message"]


def test_a_python_function_is_called_again_where_it_asks_for_that_and_else_not():
    calls: Counter[int] = Counter()

    @sa.async_function("v bigint")
    async def function(row: sa.typing.Row) -> dict[str, int]:
        calls[row.x] += 1
        if row.x % 2:
            raise ConnectionResetError
        raise sa.RetryAfter("1ms")

    found = look_up(function)

    assert calls == {x: 1 if x % 2 else 4 for x in range(ROWS)}
    assert [row["error"]["attempts"] for row in found] == [4, 1, 4, 1, 4, 1, 4]


def test_a_redis_that_loads_is_asked_again_and_writes_only_what_was_not_carried_out():
    counts: Counter[str] = Counter()

    def answer(_: int, command: list[str]) -> bytes | None:
        counts[command[0]] += 1
        if counts[command[0]] == 1:
            return b"-LOADING Redis is loading\r\n"
        return bulk("1") if counts[command[0]] == 2 else None

    with RespServer(answer) as server:
        for name in ("GET", "INCR", "SET"):
            writes: Any = {"GET": False, "INCR": True, "SET": "idempotent"}[name]
            function = sa.redis.command(server.url, name, "{x}", schema="v string", writes=writes)
            (row,) = look_up(function, 1)
            assert (row["v"], row["error"], counts[name]) == ("1", None, 2)
            # From now on connections break: one attempt, in which a read is sent once more.
            (row,) = look_up(function, 1, retry=0)
            sends = {"GET": 2, "INCR": 1, "SET": 1}[name]
            assert (row["error"]["attempts"], counts[name]) == (1, 2 + sends)
        # Reads unasked; a write not even with `retry`, unless two of it do what one does.
        unasked = {"GET": 2 * 4, "INCR": 1, "SET": 1}
        asked = {"GET": 2 * 3, "INCR": 1, "SET": 3}
        for name, expected, options in [
            *((name, expected, {}) for name, expected in unasked.items()),
            *((name, expected, {"retry": 2}) for name, expected in asked.items()),
        ]:
            before = counts[name]
            writes = {"GET": False, "INCR": True, "SET": "idempotent"}[name]
            function = sa.redis.command(server.url, name, "{x}", schema="v string", writes=writes)
            (row,) = look_up(function, 1, **options)
            # A connection that was just lost fails some calls unsent, which count as attempts.
            sent = counts[name] - before
            assert 1 <= sent <= expected, (name, options)
            assert row["error"]["attempts"] * (2 if name == "GET" else 1) >= sent


def test_a_statement_that_may_write_is_sent_again_only_if_two_do_what_one_does():
    with PostgresServer() as server:
        # A sequence counts on whatever becomes of the transaction.
        server.run(
            "create sequence sent; create function lost(bigint) returns bigint language plpgsql as"
            " $$ begin perform nextval('sent'); perform pg_terminate_backend(pg_backend_pid());"
            " return 1; end $$"
        )
        for sent, writes, options in (
            (1, True, {}),
            (1, True, {"retry": 2}),
            (1, "idempotent", {}),
            (3, "idempotent", {"retry": 2}),
        ):
            before = int(server.run("select nextval('sent')"))
            function = sa.postgres.lookup(
                server.dsn,
                "select lost($1) as v",
                ["x"],
                schema="v bigint",
                writes=writes,
                batch=1,
            )
            (row,) = look_up(function, 1, **options)
            assert row["error"]["attempts"] == sent, (writes, options)
            assert int(server.run("select nextval('sent')")) - before - 1 == sent

        read = sa.postgres.lookup(
            server.dsn,
            "select pg_terminate_backend(pg_backend_pid()) as ended where $1 >= 0",
            ["x"],
            schema="ended boolean",
        )
        (row,) = look_up(read, 1)
        assert row["error"]["attempts"] == 4


def test_a_statement_that_was_not_sent_is_sent_again_whatever_it_does():
    nowhere = f"postgresql://localhost:{free_port()}/x"
    for writes in (False, True, "idempotent"):
        function = sa.postgres.lookup(
            nowhere, "select $1::int as v", ["x"], schema="v int", writes=writes
        )
        (row,) = look_up(function, 1)
        assert row["error"]["attempts"] == 4
