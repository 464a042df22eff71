# SPDX-License-Identifier: Apache-2.0
"""Calls that were not sent cost their limits nothing, whichever connector says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from tests.support.batches import serve
from tests.support.resp_server import RespServer, bulk
from tests.support.servers import LOOPBACK, free_port

ROWS = 7


def http(address: str) -> Any:
    client = sa.http.Client(proxy=False)
    return sa.http.post(f"http://{address}/{{x}}", "v bigint", body="{x}", client=client)


def redis(address: str) -> Any:
    return sa.redis.get(f"redis://{address}", "key:{x}", "v bigint")


def postgres(address: str) -> Any:
    statement = "select $1::bigint as v"
    return sa.postgres.lookup(
        f"postgresql://u:p@{address}/d?sslmode=disable", statement, args=["x"], schema="v bigint"
    )


def permits_of(function: Any) -> tuple[int, list[str]]:
    """The permits that seven rows have cost, and why they failed."""
    totals: dict[str, Any] = {}
    plan = resolve_unpickled(
        "ordered",
        function,
        input_schema=None,
        rate_limit=sa.RateLimit("13/s", burst=11, name="calls"),
        on_error="capture",
        retry=0,
        timeout="20s",
    )
    out = arrow.run(plan, iter([pa.record_batch({"x": range(ROWS)})]), on_metrics=totals.update)
    found = [row for part in out for row in part.to_pylist()]
    assert [row["x"] for row in found] == list(range(ROWS))
    messages = [row["error"]["message"] for row in found if row["error"]]
    return totals["rate_limits"]["calls"]["permits"], messages


@pytest.mark.parametrize("connector", [http, redis, postgres])
def test_a_service_that_is_not_there_costs_no_permits(connector: Callable[[str], Any]) -> None:
    permits, messages = permits_of(connector(f"{LOOPBACK}:{free_port()}"))

    assert permits == 0
    assert all("refused" in message for message in messages), messages


def test_a_call_whose_answer_is_lost_has_cost_its_permits() -> None:
    with serve(lambda *_: None) as server:
        permits, messages = permits_of(http(server.url.removeprefix("http://")))

    assert permits == ROWS == len(server.requests)
    assert all("broke off" in message for message in messages), messages


def test_reads_that_were_sent_have_cost_their_permits_where_no_connection_follows() -> None:
    def answer(connection: int, command: list[str]) -> bytes | None:
        if command == ["PING"]:
            return b"+PONG\r\n" if connection == 0 else None
        row = int(command[1].removeprefix("key:"))
        if row == ROWS - 1:
            server.hang_up(0)
        return bulk("5") if row < 3 else b""

    with RespServer(answer, is_told_pings=True) as server:
        permits, messages = permits_of(redis(server.url.removeprefix("redis://")))

    assert permits == ROWS
    assert len(messages) == ROWS - 3
