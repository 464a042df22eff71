# SPDX-License-Identifier: Apache-2.0
"""One request for many rows: each row gets its own result, whatever becomes of the others."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.batches import (
    RETRY,
    bulk,
    doubled,
    inputs,
    lookup,
    ok,
    paid,
    rows,
    serve,
)
from tests.support.scripted_server import Answer, Request


def test_rows_go_together_and_each_has_its_own_result():
    with serve(lambda request, _: ok(doubled(inputs(request)))) as server:
        found = rows(lookup(server), list(range(100)))

        assert found == [{"x": x, "v": 2 * x} for x in range(100)]
        sizes = [len(inputs(request)) for request in server.requests]
        assert sum(sizes) == 100
        assert sizes.count(8) == 12


def test_results_that_name_a_position_may_come_in_any_order():
    def reply(request: Request, before: int) -> Answer:
        items = [{"index": i, "e": [x, x / 2]} for i, x in enumerate(inputs(request))]
        random.Random(before).shuffle(items)  # noqa: S311 - an order
        return ok({"object": "list", "data": items})

    with serve(reply) as server:
        function = lookup(
            server,
            "e array<float>",
            rows="$.data",
            items=sa.http.items(id="index"),
            batch=sa.Batch(max_rows=16),
        )
        found = rows(function, [float(x) for x in range(64)])

        assert [row["e"] for row in found] == [[x, x / 2] for x in range(64)]
        assert len(server.requests) == 4


def test_results_that_name_their_rows_and_rows_of_one_name_apart():
    def reply(request: Request, _: int) -> Answer:
        keys = inputs(request)
        assert len(set(keys)) == len(keys)
        return ok({"found": [{"key": key, "v": int(key[1:])} for key in reversed(keys)]})

    with serve(reply) as server:
        function = lookup(server, rows="found", items=sa.http.items(id={"key": "{x}"}))
        found = rows(function, ["k1", "k2", "k1", "k3", "k1"])

        assert [row["v"] for row in found] == [1, 2, 1, 3, 1]


def test_a_plain_array_goes_in_and_a_plain_array_comes_out():
    with serve(lambda request, _: ok([x + 0.5 for x in json.loads(request.body)])) as server:
        function = lookup(server, "v double", json=sa.http.each("{x}"), paths={"v": "$"})

        assert [row["v"] for row in rows(function, [1, 2, 3])] == [1.5, 2.5, 3.5]
        assert json.loads(server.requests[0].body) == [1, 2, 3]
        assert server.requests[0].headers["content-type"] == "application/json"


def test_an_array_that_is_the_result_of_one_row_is_one_value():
    with serve(lambda request, _: ok([[x, x] for x in inputs(request)])) as server:
        function = lookup(server, "v array<bigint>", paths={"v": "$"})

        assert [row["v"] for row in rows(function, [1, 2])] == [[1, 1], [2, 2]]


def test_lines_of_json_and_only_the_rows_that_were_refused_go_again():
    tries: Counter[int] = Counter()

    def reply(request: Request, _: int) -> Answer:
        items = []
        for action, document in bulk(request):
            key = action["index"]["_id"]
            tries[key] += 1
            item: dict[str, Any] = {"_id": key, "status": 201, "result": f"v{document['n']}"}
            if key % 5 == 0 and tries[key] < 3:
                error = {"type": "es_rejected_execution_exception", "reason": "full"}
                item = {"_id": key, "status": 429, "error": error}
            if key % 7 == 3:
                error = {"type": "mapper_parsing_exception", "reason": "bad field"}
                item = {"_id": key, "status": 400, "error": error}
            items.append({"index": item})
        return ok({"errors": True, "items": items})

    with serve(reply) as server:
        function = lookup(
            server,
            "result string",
            json=None,
            body=sa.http.lines({"index": {"_id": "{id}"}}, "{doc}"),
            rows="items",
            paths={"result": "index.result"},
            items=sa.http.items(status="index.status", error="index.error"),
            batch=sa.Batch(max_rows=10),
        )
        doc = pa.StructArray.from_arrays([pa.array(range(40))], ["n"])
        batch = pa.record_batch({"id": pa.array(range(40)), "doc": doc})
        found = rows(function, batch, retry=RETRY, on_error="capture")

        for row in found:
            if row["id"] % 7 == 3:
                assert row["error"]["attempts"] == 1
                assert "400 Bad Request" in row["error"]["message"]
                assert "bad field" in row["error"]["message"]
            else:
                assert (row["result"], row["error"]) == (f"v{row['id']}", None)
        expected = {i: 3 if i % 5 == 0 and i % 7 != 3 else 1 for i in range(40)}
        assert tries == expected


def test_the_errors_that_are_worth_another_attempt_are_said():
    tries: Counter[int] = Counter()

    def reply(request: Request, _: int) -> Answer:
        items: list[Any] = []
        for x in inputs(request):
            tries[x] += 1
            code = ["rate_limited", "invalid"][x % 2]
            fails = x >= 4 and (tries[x] < 3 or x % 2 == 1)
            items.append({"error": {"code": code, "message": "m"}} if fails else {"v": x})
        return ok({"data": items})

    with serve(reply) as server:
        function = lookup(
            server, rows="data", items=sa.http.items(error="error", retry=["rate_limited"])
        )
        found = rows(function, list(range(8)), retry=RETRY, on_error="capture")

        assert [row["v"] for row in found] == [0, 1, 2, 3, 4, None, 6, None]
        assert found[5]["error"]["message"].endswith(
            'is an error: {"code": "invalid", "message": "m"}'
        )
        assert tries == {0: 1, 1: 1, 2: 1, 3: 1, 4: 3, 5: 1, 6: 3, 7: 1}


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ([{"v": 1}], "the request had 2 rows, and the reply has 1 results"),
        ([{"v": 1}, {"v": 2}, {"v": 3}], "the request had 2 rows, and the reply has 3 results"),
        ({"data": []}, "the document is not an array; `rows` says where there is one"),
        ("secret", "not an array"),
    ],
)
def test_a_reply_that_does_not_fit_fails_its_rows_and_is_not_asked_for_again(reply, message):
    with serve(lambda *_: ok(reply)) as server:
        found = rows(lookup(server), [1, 2], retry=RETRY, on_error="capture")

        assert len(server.requests) == 1
        for row in found:
            assert row["v"] is None
            assert message in row["error"]["message"]
            assert "secret" not in row["error"]["message"]


def test_an_item_that_does_not_fit_fails_its_row_alone():
    with serve(lambda *_: ok([{"v": 1}, {"v": "x"}, 7, None])) as server:
        found = rows(lookup(server), [1, 2, 3, 4], on_error="capture")

        assert [row["v"] for row in found] == [1, None, None, None]
        assert [bool(row["error"]) for row in found] == [False, True, True, False]
        # Null is a miss.
        assert [
            row["x"] for row in rows(lookup(server, how="inner"), [1, 2, 3, 4], on_error="drop")
        ] == [1]


def test_half_of_a_character_fails_the_row_whose_column_has_it_and_no_other():
    def reply(request: Request, _: int) -> Answer:
        items = [{"v": 2 * x, "t": f"{x}", "unread": "H"} for x in inputs(request)]
        text = json.dumps(items).replace('"H"', r'"\ud800"').replace('"t": "3"', r'"t": "\ud83d"')
        return 200, {"Content-Type": "application/json"}, text.encode()

    with serve(reply) as server:
        found = rows(
            lookup(server, "v bigint, t string"), list(range(8)), on_error="capture", retry=RETRY
        )

        assert [row["v"] for row in found] == [None if x == 3 else 2 * x for x in range(8)]
        assert "`t` should be `string`" in found[3]["error"]["message"]
        assert len(server.requests) == 1


def test_a_request_that_fails_has_all_of_its_rows_go_again():
    def reply(request: Request, before: int) -> Answer:
        return (503, {}, b"") if before % 2 == 0 else ok(doubled(inputs(request)))

    with serve(reply) as server:
        found = rows(lookup(server), list(range(8)), retry=RETRY)

        assert [row["v"] for row in found] == [2 * x for x in range(8)]


def test_a_request_that_fails_for_good_fails_its_rows():
    with serve(lambda *_: (400, {}, b"too bad")) as server:
        found = rows(lookup(server), [1, 2], retry=RETRY, on_error="capture")

        assert [row["error"]["attempts"] for row in found] == [1, 1]
        assert all("400 Bad Request: too bad" in row["error"]["message"] for row in found)
        assert len(server.requests) == 1


def test_a_row_at_fault_is_found_where_that_is_asked_for():
    def reply(request: Request, _: int) -> Answer:
        items = inputs(request)
        return (422, {}, b"13 is not allowed") if 13 in items else ok(doubled(items))

    with serve(reply) as server:
        batch = sa.Batch(max_rows=16, split_on_error=True)
        found = rows(lookup(server, batch=batch), list(range(16)), on_error="capture")

        assert [row["v"] for row in found] == [None if x == 13 else 2 * x for x in range(16)]
        assert "13 is not allowed" in found[13]["error"]["message"]
        # The request, and two for each halving.
        assert len(server.requests) == 9


@pytest.mark.parametrize("key", [None, True])
def test_a_request_that_was_carried_out_is_divided_only_where_twice_is_harmless(key: Any):
    def reply(request: Request, _: int) -> Answer:
        return ok([{"v": x, "pad": "x" * 700} for x in inputs(request)])

    with serve(reply) as server:
        batch = sa.Batch(max_rows=4, split_on_error=True)
        client = sa.http.Client(proxy=False, max_reply_bytes=1000)
        function = lookup(server, batch=batch, idempotency_key=key, client=client)
        found = rows(function, list(range(4)), on_error="capture", retry=RETRY)

        asked = [x for request in server.requests for x in inputs(request)]
        if key is None:
            assert asked == list(range(4))
            assert all("`max_reply_bytes`" in row["error"]["message"] for row in found)
        else:
            assert [row["v"] for row in found] == list(range(4))
            assert Counter(asked) == dict.fromkeys(range(4), 3)


@pytest.mark.parametrize("channel", [None, "c"])
def test_the_parts_of_a_request_that_fails_pay_as_any_request(channel: str | None):
    def reply(request: Request, _: int) -> Answer:
        items = inputs(request)
        return (422, {}, b"no") if any(x % 16 == 7 for x in items) else ok(doubled(items))

    with serve(reply) as server:
        limits = [
            sa.RateLimit("90001/s", burst=61, cost=3, name="rows"),
            sa.RateLimit("70001/s", burst=7, cost=2, name="requests", per="request"),
        ]
        batch = sa.Batch(max_rows=61, linger="1ms", split_on_error=True)
        many = pa.record_batch({"x": list(range(331)), "c": [x % 3 for x in range(331)]})
        given = {"channel": channel, "rate_limit": limits, "on_error": "capture"}
        found, permits = paid(lookup(server, batch=batch), many, **given)

        failed = [x for x in range(331) if x % 16 == 7]
        assert [row["x"] for row in found if row["error"]] == failed
        assert {row["error"]["kind"] for row in found if row["error"]} == {"request-refused"}
        sizes = [len(inputs(request)) for request in server.requests]
        assert permits == {"rows": 3 * sum(sizes), "requests": 2 * len(sizes)}
        assert sum(sizes) > 331
        # Each row at fault has been asked for alone, and no row more often than halving takes.
        asked = Counter(x for request in server.requests for x in inputs(request))
        assert sizes.count(1) >= len(failed)
        assert max(asked.values()) <= 7


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_a_request_that_would_fail_for_any_of_its_rows_is_not_divided(status: int):
    with serve(lambda *_: (status, {}, b"")) as server:
        batch = sa.Batch(max_rows=16, split_on_error=True)
        found = rows(lookup(server, batch=batch), list(range(16)), on_error="capture", retry=0)

        assert all(row["error"] for row in found)
        assert len(server.requests) == 1


def test_a_request_has_no_more_bytes_than_allowed():
    with serve(lambda request, _: ok([{"v": len(x)} for x in inputs(request)])) as server:
        batch = sa.Batch(max_rows=100, max_bytes=50, linger="5ms")
        found = rows(lookup(server, batch=batch), ["a" * 20] * 5 + ["b" * 100])

        assert [row["v"] for row in found] == [20] * 5 + [100]
        for request in server.requests:
            sent = [len(json.dumps(x)) for x in inputs(request)]
            assert sum(sent) <= 50 or len(sent) == 1


def test_rows_of_a_request_are_alike_in_all_that_stands_beside_their_items():
    def reply(request: Request, _: int) -> Answer:
        body = json.loads(request.body)
        told = {request.target.split("/")[1], request.headers["x-tenant"], body["tenant"]}
        assert len(told) == 1
        assert {f"t{x % 3}" for x in body["input"]} == told
        return ok(doubled(body["input"]))

    with serve(reply) as server:
        function = lookup(
            server,
            path="/{t}",
            headers={"X-Tenant": "{t}"},
            json={"tenant": "{t}", "input": sa.http.each("{x}")},
        )
        xs = list(range(60))
        batch = pa.record_batch({"x": xs, "t": [f"t{x % 3}" for x in xs]})

        assert [row["v"] for row in rows(function, batch)] == [2 * x for x in xs]
        assert len(server.requests) <= 12


def test_rows_of_a_request_are_of_one_channel():
    channels: list[set[int]] = []

    def reply(request: Request, _: int) -> Answer:
        items = inputs(request)
        channels.append({x % 4 for x in items})
        return ok(doubled(items))

    with serve(reply) as server:
        xs = list(range(64))
        batch = pa.record_batch({"x": xs, "c": [x % 4 for x in xs]})
        found = rows(lookup(server), batch, channel="c")

        assert [row["v"] for row in found] == [2 * x for x in xs]
        assert all(len(found) == 1 for found in channels)


def test_no_more_requests_are_made_at_a_time_than_allowed():
    lock, running, most = threading.Lock(), 0, 0
    go = threading.Barrier(2, timeout=20)

    def reply(request: Request, _: int) -> Answer:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go.wait()
        with lock:
            running -= 1
        return ok(doubled(inputs(request)))

    with serve(reply) as server:
        # Pairs only: one alone would wait for another one in vain.
        found = rows(lookup(server, max_requests=2), list(range(64)))

        assert [row["v"] for row in found] == [2 * x for x in range(64)]
        assert most == 2


def test_a_row_with_a_null_is_a_miss_without_a_call():
    with serve(lambda request, _: ok(doubled(inputs(request)))) as server:
        found = rows(lookup(server), [1, None, 3])

        assert [row["v"] for row in found] == [2, None, 6]
        assert [inputs(request) for request in server.requests] == [[1, 3]]


def test_statuses_and_headers_of_the_response_are_those_of_each_of_its_rows():
    with serve(lambda *_: (202, {"X-Id": "r"}, b"taken")) as server:
        function = lookup(
            server, None, returns="nothing", status="s", response_headers={"id": "X-Id"}
        )

        assert rows(function, [1, 2]) == [{"x": x, "s": 202, "id": "r"} for x in (1, 2)]
        assert len(server.requests) == 1


def test_rows_with_equal_keys_share_one_item_through_the_cache():
    with serve(lambda request, _: ok(doubled(inputs(request)))) as server:
        cache = sa.Cache(max_rows=100)
        found = rows(lookup(server), [x % 5 for x in range(40)], cache=cache)

        assert [row["v"] for row in found] == [2 * (x % 5) for x in range(40)]
        assert sum(len(inputs(request)) for request in server.requests) == 5


@pytest.mark.parametrize("key", [True, "order-{x}"])
def test_a_request_has_one_key_that_is_made_of_its_rows(key: Any):
    def reply(request: Request, before: int) -> Answer:
        return (503, {}, b"") if before < 2 else ok(doubled(inputs(request)))

    with serve(reply) as server:
        function = lookup(server, idempotency_key=key, batch=sa.Batch(max_rows=4, linger="50ms"))
        found = rows(function, list(range(8)), retry=sa.retry.fixed_delay(5, "5ms"))

        assert [row["v"] for row in found] == [2 * x for x in range(8)]
        keys: dict[tuple[int, ...], set[str]] = {}
        for request in server.requests:
            keys.setdefault(tuple(inputs(request)), set()).add(request.headers["idempotency-key"])
        assert all(len(each) == 1 for each in keys.values())
        assert len({key for each in keys.values() for key in each}) == len(keys)


def test_a_request_without_a_key_that_may_have_been_carried_out_is_not_sent_again():
    with serve(lambda *_: None) as server:
        found = rows(lookup(server), [1, 2], retry=RETRY, on_error="capture")

        assert all("not made again" in row["error"]["message"] for row in found)
        assert len(server.requests) == 1


def test_the_time_of_an_attempt_begins_with_its_request():
    release = threading.Event()

    def reply(request: Request, before: int) -> Answer:
        if before == 0:
            release.wait(20)
        return ok(doubled(inputs(request)))

    with serve(reply) as server:
        # Two rows that do not go together, of which the second waits for the request of the first.
        function = lookup(
            server, max_requests=1, headers={"X-Row": "{x}"}, batch=sa.Batch(max_rows=2, linger=0)
        )
        try:
            found = rows(function, [1, 2], attempt_timeout="2s", on_error="capture")
        finally:
            release.set()

        assert [row["v"] for row in found] == [None, 4]
        assert found[0]["error"]["kind"] == "element-timed-out"


def test_a_task_that_ends_early_ends_its_requests():
    release = threading.Event()

    def reply(request: Request, _: int) -> Answer:
        if 0 not in inputs(request):
            release.wait(20)
        return ok(doubled(inputs(request)))

    with serve(reply) as server:
        batches = sa.arrow.ordered_wait(
            [pa.record_batch({"x": list(range(64))})],
            lookup(server),
            tuning=sa.Tuning(max_rows=8),
        )
        assert next(batches)["v"].to_pylist()[0] == 0
        batches.close()
        release.set()


def wrong() -> Iterator[tuple[dict[str, Any], str]]:
    each, batch = sa.http.each("{x}"), sa.Batch()
    yield {"json": {"i": each}}, "`each` needs `batch`"
    yield {"body": sa.http.lines("{x}")}, "`lines` needs `batch`"
    yield {"json": {"i": "{x}"}, "batch": batch}, "`batch` needs one place for the rows"
    yield {"json": [each, each], "batch": batch}, "`batch` needs one place for the rows"
    yield {"json": sa.http.each([each]), "batch": batch}, "`each` cannot stand within another"
    yield {"body": sa.http.lines(each), "batch": batch}, "`each` cannot stand within another"
    yield {"json": each, "batch": "64"}, "`batch` must be a sparkawait.Batch, or an int"
    named = sa.http.items
    yield {"json": "{x}", "items": named(id="index")}, "`items` belongs to `batch`"
    yield {"json": each, "batch": batch, "items": "index"}, "made by sparkawait.http.items"
    yield {"json": each, "batch": batch, "items": named(id="$..a")}, "`$..a` is not a JSON path"
    wrong = named(id={"k": "{x"})
    yield {"json": each, "batch": batch, "items": wrong}, "`id`: `{` without `}`"
    yield {"json": each, "batch": batch, "returns": "text"}, '`batch` needs returns="json"'
    yield {"json": sa.http.each("{}"), "batch": batch}, "braces without a column name"
    yield {"json": sa.http.each(1j), "batch": batch}, "not a JSON value"


@pytest.mark.parametrize(("options", "message"), [*wrong()])
def test_wrong_use_is_refused_where_the_function_is_made(options: dict[str, Any], message: str):
    schema = None if options.get("returns") == "text" else "v bigint"
    with pytest.raises(sa.ConfigurationError) as raised:
        sa.http.post("https://api.example.com/b", schema, **options)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": {}}, "`id` must have one member"),
        ({"id": 7}, "`id` must be"),
        ({"error": 7}, "`error` must be a JSON path"),
        ({"retry": ["a"]}, "`retry` of items needs `error`"),
        ({"retry": "a"}, "`retry` of items must be a list"),
        ({"error": "e", "retry": [None]}, "`retry` of items must be"),
    ],
)
def test_wrong_items_are_refused(given: dict[str, Any], message: str):
    with pytest.raises(sa.ConfigurationError) as raised:
        sa.http.items(**given)
    assert message in str(raised.value)


def test_lines_without_a_value_are_refused():
    with pytest.raises(sa.ConfigurationError, match="at least one value"):
        sa.http.lines()


def test_a_secret_in_an_item_is_sent_to_known_hosts_only():
    item = sa.http.each({"token": sa.secret("TOKEN"), "x": "{x}"})
    with pytest.raises(sa.ConfigurationError, match="allow_hosts"):
        sa.http.post("https://{host}/b", "v bigint", json=item, batch=sa.Batch())
