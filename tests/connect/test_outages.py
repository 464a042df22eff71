# SPDX-License-Identifier: Apache-2.0
"""A service that is down, and a circuit breaker that holds the rows.

The server counts its calls, and that is what opens it again: no test waits for a time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.scripted_server import Answer, ScriptedServer

BREAKER = sa.CircuitBreaker(initial="7ms", maximum="31ms")
AGAIN = sa.retry.fixed_delay(3, "3ms", budget=None)


def look_up(server: ScriptedServer, rows: int, wait: Any, **options: Any) -> list[dict[str, Any]]:
    """Returns the rows that come out, as many as go in."""
    batch = pa.record_batch({"x": range(rows), "key": [x % 3 for x in range(rows)]})
    function = sa.http.get(server.url + "/{x}", "v bigint")
    key = {"key": "key"} if wait is sa.arrow.key_ordered_wait else {}
    out = wait([batch], function, retry=AGAIN, on_error="capture", info="call", **key, **options)
    found = [row for part in out for row in part.to_pylist()]
    assert sorted(row["x"] for row in found) == [*range(rows)]
    return found


@pytest.mark.parametrize("rows", [1, 4, 13])
@pytest.mark.parametrize(
    "wait", [sa.arrow.ordered_wait, sa.arrow.unordered_wait, sa.arrow.key_ordered_wait]
)
def test_no_row_in_flight_ends_while_a_service_is_down(wait: Any, rows: int):
    down = 37

    def answer(target: str, before: int) -> Answer:
        if before < down:
            return 503, {}, b""
        return 200, {}, b'{"v": %d}' % (2 * int(target[1:]))

    with ScriptedServer(answer) as server:
        found = look_up(server, rows, wait, circuit_breaker=BREAKER)

    assert [row["error"] for row in found] == [None] * rows
    assert {row["x"]: row["v"] for row in found} == {x: 2 * x for x in range(rows)}
    # A call of each row that is answered, and those that were not: none of them was made twice.
    calls = Counter(int(it[1:]) for it in server.targets)
    assert sum(calls.values()) <= down + 2 * rows
    assert {row["x"]: row["call"]["attempts"] for row in found} == calls


def test_each_failure_takes_a_try_without_a_circuit_breaker():
    with ScriptedServer(lambda *_: (503, {}, b"")) as server:
        found = look_up(server, 4, sa.arrow.ordered_wait)

    assert {row["error"]["kind"] for row in found} == {"retries-exhausted"}
    assert len(server.targets) == 16


def test_a_row_that_is_at_fault_itself_ends_after_its_retries():
    def answer(target: str, _: int) -> Answer:
        return (503, {}, b"") if target == "/5" else (200, {}, b'{"v": 7}')

    with ScriptedServer(answer) as server:
        found = look_up(
            server,
            401,
            sa.arrow.unordered_wait,
            max_wait="7s",
            max_concurrency=2,
            circuit_breaker=BREAKER,
        )

    (failed,) = [row for row in found if row["error"]]
    assert (failed["x"], failed["error"]["kind"]) == (5, "retries-exhausted")
    assert 4 <= Counter(server.targets)["/5"] <= 17
