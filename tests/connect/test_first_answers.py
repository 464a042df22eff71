# SPDX-License-Identifier: Apache-2.0
"""What a task says, once, of its first answers: that all are failures, or lack a column."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import wait_until

CLIENT = sa.http.Client(proxy=False)


def look_up(server, ids, schema="n int, town string", **options) -> list[dict]:
    paths = {"town": "$.adress.town"} if "town" in schema else {}
    function = sa.http.get(server.url + "/{id}", schema, client=CLIENT, paths=paths)
    out = list(sa.arrow.ordered_wait([pa.record_batch({"id": ids})], function, **options))
    rows = [row for batch in out for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == ids
    return rows


def warned(caplog) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.levelno == logging.WARNING]


@pytest.mark.parametrize("on_error", ["capture", "null"])
def test_a_wrong_key_is_told_once_after_twenty_rows(caplog, on_error):
    with ScriptedServer(lambda target, before: (401, {}, b"")) as server:
        look_up(server, list(range(61)), on_error=on_error, max_concurrency=7)

    assert len(server.requests) == 61
    (line,) = warned(caplog)
    assert "first 20 rows of `http.get` in partition 0 have failed for good, and alike" in line
    assert "(unauthorized, status 401)" in line


@pytest.mark.parametrize(("good", "rows"), [(13, 61), (61, 19)])
def test_a_row_that_did_not_fail_and_fewer_rows_are_no_reason(caplog, good, rows):
    def answer(target, before):
        return (200, {}, b'{"n": 1}') if target == f"/{good}" else (401, {}, b"")

    with ScriptedServer(answer) as server:
        look_up(server, list(range(rows)), "n int", on_error="capture")

    assert warned(caplog) == []


@pytest.mark.parametrize("how", ["left", "inner"])
def test_calls_that_all_find_nothing_are_told_once_after_twenty(caplog, how):
    with ScriptedServer(lambda target, before: (404, {}, b"")) as server:
        function = sa.http.get(server.url + "/{id}", "n int", client=CLIENT, how=how)
        # A null makes no call.
        rows = pa.record_batch({"id": [None, *range(61)]})
        list(sa.arrow.ordered_wait([rows], function, max_concurrency=7))

    assert len(server.requests) == 61
    (line,) = warned(caplog)
    assert "the first 20 calls of `http.get` in partition 0 have all found nothing" in line


@pytest.mark.parametrize(("good", "rows", "status"), [(13, 61, 200), (61, 19, 404), (17, 61, 401)])
def test_a_call_that_found_something_and_fewer_calls_are_no_reason(caplog, good, rows, status):
    def answer(target, before):
        return (status, {}, b'{"n": 1}') if target == f"/{good}" else (404, {}, b"")

    with ScriptedServer(answer) as server:
        look_up(server, list(range(rows)), "n int", on_error="capture", max_concurrency=1)

    assert warned(caplog) == []


def test_a_python_function_that_always_raises_the_same_is_told_too(caplog):
    @sa.async_function("y int")
    async def broken(row):
        raise KeyError(row["id"])

    rows = pa.record_batch({"id": list(range(31))})
    list(sa.arrow.ordered_wait([rows], broken, on_error="null"))

    (line,) = warned(caplog)
    assert "broken` in partition 0 have failed for good, and alike (user-function-failed)" in line


def test_a_column_that_no_answer_has_is_told_with_its_path(caplog):
    body = json.dumps({"n": None, "address": {"town": "Ulm"}}).encode()
    with ScriptedServer(lambda target, before: (200, {}, body)) as server:
        rows = look_up(server, list(range(61)))

    assert {(row["n"], row["town"]) for row in rows} == {(None, None)}
    (line,) = warned(caplog)
    assert "answers has column `town` at `$.adress.town`: null in all of their rows" in line
    assert "`n`" not in line


def test_a_column_that_one_of_the_first_answers_has_is_there(caplog):
    def answer(target, before):
        town = {"adress": {"town": "Ulm"}} if target == "/7" else {}
        return 200, {}, json.dumps({"n": 1, **town}).encode()

    with ScriptedServer(answer) as server:
        look_up(server, list(range(61)), max_concurrency=1)

    assert warned(caplog) == []


def test_few_answers_are_enough_if_they_have_nothing_of_the_schema(caplog):
    with ScriptedServer(lambda target, before: (200, {}, b'{"m": 1}')) as server:
        look_up(server, [1, 2, 3])

    # Told when the engine of the task ends, which nobody waits for.
    wait_until(lambda: warned(caplog))
    (line,) = warned(caplog)
    assert "none of the first 3 answers has column `n` at `$.n`, column `town`" in line
