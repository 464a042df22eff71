# SPDX-License-Identifier: Apache-2.0
"""Replies that are large together are split, and no row notices."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.resp_server import RespServer, bulk
from tests.support.scripted_server import ScriptedServer

MEGABYTE = 1 << 20
ROWS = 60


def look_up(function, rows=ROWS, wait=sa.arrow.ordered_wait, **options):
    batch = pa.RecordBatch.from_pydict({"id": list(range(rows))})
    table = pa.Table.from_batches(list(wait([batch], function, **options)))
    return table.sort_by("id").to_pydict()


def text(key: str | int) -> str:
    """A megabyte that tells its key."""
    return f"{int(key):08}" * (MEGABYTE // 8)


def document(key: str | int) -> str:
    return json.dumps({"n": int(key), "v": text(key)})


def array(*elements: bytes) -> bytes:
    return b"*%d\r\n" % len(elements) + b"".join(elements)


TEXTS = [text(row) for row in range(ROWS)]


@pytest.mark.parametrize(
    ("function", "reply"),
    [
        (lambda url: sa.redis.get(url, "{id}", schema="v string"), lambda key: bulk(text(key))),
        (
            lambda url: sa.redis.command(
                url, "LRANGE", "{id}", "0", "-1", schema="v string", explode=True
            ),
            lambda key: array(bulk(text(key))),
        ),
        (
            lambda url: sa.redis.json(url, "{id}", schema="v string, n int"),
            lambda key: bulk(document(key)),
        ),
        (
            lambda url: sa.redis.hash(url, "{id}", schema="v map<string, string>", fields="all"),
            lambda key: array(bulk("k"), bulk(text(key))),
        ),
    ],
    ids=["get", "rows", "json", "map"],
)
def test_large_replies_of_redis_keep_their_rows(function, reply):
    with RespServer(lambda _, command: reply(command[1])) as server:
        found = look_up(function(server.url), max_concurrency=ROWS, on_error="drop")
    assert found["id"] == list(range(ROWS))
    values = [dict(value)["k"] if isinstance(value, list) else value for value in found["v"]]
    assert values == TEXTS


def test_large_commands_are_sent_in_several_jobs():
    with RespServer(lambda _, command: bulk(command[1][:8])) as server:
        function = sa.redis.get(server.url, "{key}", schema="v string")
        batch = pa.RecordBatch.from_pydict({"key": TEXTS})
        out = sa.arrow.ordered_wait([batch], function, max_concurrency=ROWS)
        values = [row["v"] for one in out for row in one.to_pylist()]
    assert values == [f"{row:08}" for row in range(ROWS)]


@pytest.mark.parametrize("returns", ["json", "text"])
def test_large_bodies_keep_their_rows(returns):
    def answer(target, _before):
        key = target.rsplit("/", 1)[1]
        return 200, {}, (document(key) if returns == "json" else text(key)).encode()

    with ScriptedServer(answer) as server:
        options = {"schema": "body string", "paths": {"body": "$.v"}} if returns == "json" else {}
        url = f"{server.url}/{{id}}"
        function = sa.http.get(
            url, returns=returns, client=sa.http.Client(proxy=False), max_requests=ROWS, **options
        )
        found = look_up(function, max_concurrency=ROWS)
    assert found == {"id": list(range(ROWS)), "body": TEXTS}


@pytest.mark.parametrize("inside", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_small_reply_that_makes_many_rows_fails_its_row_alone(inside):
    columns = ", ".join(f"c{index} decimal(38, 2)" for index in range(400))
    elements = ", ".join(["{}"] * 40_000)

    def answer(target, _before):
        body = f"[{elements}]" if target.endswith("/3") else "[{}]"
        return 200, {}, (f'{{"v": {body}}}' if inside else body).encode()

    types = columns.replace(" decimal", ": decimal")
    schema = f"v array<struct<{types}>>" if inside else columns
    with ScriptedServer(answer) as server:
        function = sa.http.get(f"{server.url}/{{id}}", schema, client=sa.http.Client(proxy=False))
        batch = pa.record_batch({"id": list(range(7))})
        out = sa.arrow.ordered_wait([batch], function, on_error="capture")
        found = pa.Table.from_batches(out).select(["id", "error"]).to_pylist()
    assert [row["id"] for row in found] == list(range(7))
    assert {row["id"]: row["error"]["kind"] for row in found if row["error"]} == {
        3: "result-too-large"
    }


@pytest.mark.parametrize("calls", [1, ROWS])
def test_large_hits_and_those_that_wait_for_one_call_keep_their_rows(calls):
    @sa.async_function("v string")
    async def function(row):
        return {"v": text(row["id"] % calls)}

    cache = sa.Cache(key="id") if calls == ROWS else sa.Cache(key="one")
    batch = pa.RecordBatch.from_pydict({"id": list(range(ROWS)), "one": [1] * ROWS})
    expected = TEXTS if calls == ROWS else None
    for _ in range(2):
        out = list(sa.arrow.ordered_wait([batch], function, cache=cache))
        values = pa.Table.from_batches(out)["v"].to_pylist()
        assert values == (expected or [text(0)] * ROWS)
