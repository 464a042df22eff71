# SPDX-License-Identifier: Apache-2.0
"""A service that takes many rows in one request, and functions that call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from tests.support.scripted_server import Answer, Request, ScriptedServer

__all__ = ["RETRY", "bulk", "doubled", "inputs", "lookup", "ok", "paid", "rows", "serve"]

RETRY = sa.retry.fixed_delay(9, "1ms")


def serve(reply: Callable[[Request, int], Answer]) -> ScriptedServer:
    server: ScriptedServer

    def answer(target: str, before: int) -> Answer:
        # Those that came at the same moment are told apart by their positions.
        return reply(server.requests[before], before)

    server = ScriptedServer(answer)
    return server


def ok(document: Any) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()


def inputs(request: Request) -> list[Any]:
    return json.loads(request.body)["input"]


def lookup(server: ScriptedServer, schema: str = "v bigint", **options: Any) -> Any:
    options.setdefault("json", {"input": sa.http.each("{x}")})
    options.setdefault("batch", sa.Batch(max_rows=8, linger="5ms"))
    return sa.http.request(
        options.pop("method", "POST"),
        server.url + options.pop("path", "/b"),
        schema,
        **{"client": sa.http.Client(proxy=False), **options},
    )


def rows(function: Any, column: Any, **options: Any) -> list[dict[str, Any]]:
    batch = pa.record_batch({"x": column}) if isinstance(column, list) else column
    out = sa.arrow.ordered_wait([batch], function, **options)
    return pa.Table.from_batches(out).to_pylist()


def paid(function: Any, batch: pa.RecordBatch, **options: Any) -> tuple[list[Any], dict[str, int]]:
    """Returns the rows, and the permits that were taken of each limit."""
    totals: dict[str, Any] = {}
    plan = resolve_unpickled("ordered", function, input_schema=None, capacity=331, **options)
    out = arrow.run(plan, iter([batch]), on_metrics=totals.update)
    found = [row for part in out for row in part.to_pylist()]
    return found, {name: it["permits"] for name, it in totals["rate_limits"].items()}


def doubled(items: list[Any]) -> list[Any]:
    return [{"v": 2 * item} for item in items]


def bulk(request: Request) -> list[tuple[dict, dict]]:
    lines = [json.loads(line) for line in request.body.decode().splitlines()]
    assert request.body.endswith(b"\n")
    assert request.headers["content-type"] == "application/x-ndjson"
    return list(zip(lines[::2], lines[1::2], strict=True))
