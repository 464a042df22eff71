# SPDX-License-Identifier: Apache-2.0
"""What `info=` tells of the calls of native functions is what their servers saw."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.batches import doubled, inputs, lookup, ok, serve
from tests.support.counted_answers import Answers, status_of
from tests.support.postgres_server import PostgresServer
from tests.support.resp_server import RespServer, bulk
from tests.support.scripted_server import Answer, ScriptedServer

ROWS = 61
CLIENT = sa.http.Client(proxy=False)
AGAIN = sa.retry.fixed_delay(2, "1ms", budget=None)


def called(function: Any, ids: list[Any], mode: str = "ordered", **options: Any) -> list[Any]:
    key = {"key": "x"} if mode == "key_ordered" else {}
    wait = getattr(sa.arrow, f"{mode}_wait")
    batch = pa.record_batch({"x": ids})
    return wait([batch], function, info="call", **key, **options).to_table().to_pylist()


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("mode", ["ordered", "unordered", "key_ordered"])
def test_statuses_are_those_that_the_server_answered_last(mode: str, how: str) -> None:
    answers = Answers()
    with ScriptedServer(answers) as server:
        get = sa.http.get(server.url + "/{x}", "v bigint", client=CLIENT, how=how)
        rows = called(get, list(range(ROWS)), mode, retry=AGAIN, max_concurrency=7)

    # A 404 is a miss, which has no row in an inner lookup.
    found = [x for x in range(ROWS) if how == "left" or x % 5 != 4]
    assert sorted(row["x"] for row in rows) == found
    for row in rows:
        told, x = row["call"], row["x"]
        assert row["v"] == (None if x % 5 == 4 else 2 * x)
        assert (told["attempts"], told["status"]) == (answers.calls[x], status_of(x))
        assert (told["cached"], told["hedged"], told["cost"]) == (False, False, None)
        assert told["seconds"] >= 0 <= told["waited"]
    assert len(server.targets) == sum(1 + x % 3 for x in range(ROWS))


@pytest.mark.parametrize("on_error", ["null", "capture"])
def test_a_row_that_failed_has_the_status_of_its_failure(on_error: str) -> None:
    answers = Answers()
    with ScriptedServer(answers) as server:
        get = sa.http.get(server.url + "/{x}", "v bigint", client=CLIENT)
        rows = called(get, list(range(ROWS)), retry=0, on_error=on_error)

    assert [row["x"] for row in rows] == list(range(ROWS))
    assert [row["call"]["status"] for row in rows] == [
        503 if x % 3 else status_of(x) for x in range(ROWS)
    ]
    assert {row["call"]["attempts"] for row in rows} == {1} == set(answers.calls.values())


def test_rows_that_share_an_answer_are_told_from_those_that_were_called() -> None:
    answers = Answers()
    with ScriptedServer(answers) as server:
        get = sa.http.get(server.url + "/{x}", "v bigint", client=CLIENT)
        ids = [x % 13 for x in range(ROWS)]
        rows = called(get, ids, retry=AGAIN, cache=True)

    assert [row["x"] for row in rows] == ids
    assert sum(row["call"]["attempts"] for row in rows) == len(server.targets)
    for row in rows:
        told = row["call"]
        if told["cached"]:
            assert told["status"] in (None, 503)
        else:
            assert told["status"] == status_of(row["x"])


def test_each_row_of_a_request_for_many_has_its_status() -> None:
    refused = [1, 2]

    def reply(request: Any, before: int) -> Answer:
        return (503, {}, b"") if before in refused else ok(doubled(inputs(request)))

    with serve(reply) as server:
        ids = list(range(ROWS))
        rows = called(lookup(server), ids, "unordered", retry=AGAIN, max_concurrency=3)

    assert sorted((row["x"], row["v"]) for row in rows) == [(x, 2 * x) for x in range(ROWS)]
    asked = Counter(x for request in server.requests for x in inputs(request))
    assert {row["x"]: row["call"]["attempts"] for row in rows} == dict(asked)
    assert {row["call"]["status"] for row in rows} == {200}


def test_a_row_without_a_key_is_not_called() -> None:
    answers = Answers()
    with ScriptedServer(answers) as server:
        get = sa.http.get(server.url + "/{x}", "v bigint", client=CLIENT)
        rows = called(get, [3, None, 6], retry=AGAIN)

    assert [row["v"] for row in rows] == [6, None, 12]
    assert [row["call"]["attempts"] for row in rows] == [1, 0, 1]
    told = rows[1]["call"]
    assert (told["seconds"], told["waited"], told["status"]) == (None, None, None)
    assert (told["cached"], told["hedged"]) == (False, False)


def test_commands_of_redis_are_told_without_a_status() -> None:
    calls: Counter[str] = Counter()

    def answer(_: int, command: list[str]) -> bytes:
        calls[command[1]] += 1
        if calls[command[1]] <= int(command[1]) % 3:
            return b"-LOADING Redis is loading the dataset in memory\r\n"
        return bulk(command[1])

    with RespServer(answer) as server:
        get = sa.redis.get(server.url, "{x}", schema="v string")
        rows = called(get, list(range(ROWS)), "unordered", retry=AGAIN, max_concurrency=7)

    assert sorted((row["x"], row["v"]) for row in rows) == [(x, str(x)) for x in range(ROWS)]
    assert {str(row["x"]): row["call"]["attempts"] for row in rows} == dict(calls)
    assert {row["call"]["status"] for row in rows} == {None}
    assert min(row["call"]["seconds"] for row in rows) >= 0


def test_rows_of_postgres_tell_of_each_query_that_they_were_in() -> None:
    with PostgresServer() as server:
        server.run("create sequence seen")
        sql = "select $1::int * 2 as v, nextval('seen') as seen"
        function = sa.postgres.lookup(
            server.dsn, sql, ["x"], writes=True, schema="v int, seen bigint"
        )
        rows = called(function, list(range(ROWS)), "unordered", max_concurrency=3)
        evaluated = int(server.run("select last_value from seen"))

    assert sorted((row["x"], row["v"]) for row in rows) == [(x, 2 * x) for x in range(ROWS)]
    assert sum(row["call"]["attempts"] for row in rows) == evaluated == ROWS
    assert {row["call"]["status"] for row in rows} == {None}
    assert min(row["call"]["waited"] for row in rows) >= 0


def test_a_server_that_is_not_there_has_no_status_and_costs_nothing() -> None:
    with ScriptedServer(Answers()) as server:
        url = server.url
    get = sa.http.get(url + "/{x}", "v bigint", client=CLIENT)
    limit = sa.RateLimit("9000/s", cost=5)
    rows = called(get, [0, 3, 6], retry=AGAIN, on_error="capture", rate_limit=limit)

    assert [row["error"]["attempts"] for row in rows] == [3, 3, 3]
    told = [(it["attempts"], it["status"], it["cost"]) for it in (row["call"] for row in rows)]
    assert told == [(3, None, 0.0)] * 3
