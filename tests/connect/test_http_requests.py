# SPDX-License-Identifier: Apache-2.0
"""What leaves a process in an HTTP request, where it goes, and how often it is sent."""

from __future__ import annotations

import os
import traceback

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import retry
from tests.support.scripted_server import ScriptedServer

FOUND = (200, {}, b'{"n": 7}')
AGAIN = retry.fixed_delay(2, "1ms")


def answer_found(_target, _before):
    return FOUND


def redirect_to(url: str, status: int = 302):
    return lambda target, _before: (status, {"Location": url}, b"") if target == "/go" else FOUND


def run(function, columns: dict, **options) -> list[dict]:
    out = sa.arrow.ordered_wait(
        [pa.RecordBatch.from_pydict(columns)], function, on_error="capture", **options
    )
    return [row for batch in out for row in batch.to_pylist()]


def message_of(row: dict) -> str:
    return row["error"]["message"] if row["error"] else ""


def request(method: str, url: str, **options):
    return sa.http.request(method, url, "n bigint", client=sa.http.Client(proxy=False), **options)


# -- redirections


HEADERS = {"X-Api-Key": "k", "Authorization": "a", "X-Row": "{id}", "Accept": "text/x"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_another_server_sees_no_header_that_was_given(status, monkeypatch):
    monkeypatch.setenv("TEST_KEY", "s3cret")
    headers = HEADERS | {"X-Secret": sa.secret("TEST_KEY")}
    with (
        ScriptedServer(answer_found) as other,
        ScriptedServer(redirect_to(f"{other.url}/found", status)) as server,
    ):
        function = request("GET", f"{server.url}/go", headers=headers, idempotency_key=True)
        (row,) = run(function, {"id": [1]})
    assert row["n"] == 7
    assert {"x-api-key", "x-row", "x-secret", "idempotency-key"} <= set(server.requests[0].headers)
    (seen,) = other.requests
    assert seen.headers["accept"] == "text/x"
    assert set(seen.headers) <= {"accept", "accept-encoding", "host", "user-agent"}


def test_the_same_server_sees_all_of_it():
    def answer(target, _before):
        return (307, {"Location": "/found"}, b"") if target == "/go" else FOUND

    with ScriptedServer(answer) as server:
        function = request(
            "POST", f"{server.url}/go", headers=HEADERS, json={"x": "{id}"}, idempotency_key=True
        )
        (row,) = run(function, {"id": [1]})
    assert row["n"] == 7
    first, second = server.requests
    assert (second.method, second.target, second.body) == ("POST", "/found", b'{"x":1}')
    assert dict(second.headers) == dict(first.headers)
    assert server.connections == 1


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_goes_to_no_other_server(status):
    with (
        ScriptedServer(answer_found) as other,
        ScriptedServer(redirect_to(f"{other.url}/found", status)) as server,
    ):
        (row,) = run(request("POST", f"{server.url}/go", body="{id}"), {"id": [1]}, retry=AGAIN)
    assert "a request with a body to another server" in message_of(row)
    assert (len(server.requests), other.requests) == (1, [])


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_post_turns_into_a_get_without_a_body(status):
    with (
        ScriptedServer(answer_found) as other,
        ScriptedServer(redirect_to(f"{other.url}/found", status)) as server,
    ):
        (row,) = run(request("POST", f"{server.url}/go", json={"x": 1}), {"id": [1]})
    assert row["n"] == 7
    (seen,) = other.requests
    assert (seen.method, seen.body) == ("GET", b"")
    assert not {"content-type", "content-length"} & set(seen.headers)


def test_headers_do_not_come_back_by_way_of_another_server():
    home: list[str] = []
    with (
        ScriptedServer(lambda *_: (302, {"Location": f"{home[0]}/back"}, b"")) as other,
        ScriptedServer(redirect_to(f"{other.url}/")) as server,
    ):
        home.append(server.url)
        (row,) = run(request("GET", f"{server.url}/go", headers=HEADERS), {"id": [1]})
    assert row["n"] == 7
    assert server.targets == ["/go", "/back"]
    assert "x-api-key" not in server.requests[1].headers


def test_a_redirection_to_what_is_no_web_address_fails_the_row():
    with ScriptedServer(redirect_to("ftp://example.com/")) as server:
        (row,) = run(request("GET", f"{server.url}/go"), {"id": [1]})
    assert "redirected to something that is not an http or https URL" in message_of(row)


# -- hosts that rows name


def test_a_redirection_leads_to_no_host_that_is_not_allowed():
    with (
        ScriptedServer(answer_found) as other,
        ScriptedServer(redirect_to(f"{other.url}/secret")) as server,
    ):
        urls = {"url": [f"{server.url}/go", f"{server.url}/a"]}
        refused, found = run(request("GET", "{url}", allow_hosts=[server.url]), urls, retry=AGAIN)
        both = request("GET", "{url}", allow_hosts=[server.url, other.url])
        (followed, _) = run(both, urls)
    assert "redirected to an address that `allow_hosts` does not have" in message_of(refused)
    assert (refused["n"], found["n"], followed["n"]) == (None, 7, 7)
    assert other.targets == ["/secret"]


def test_a_row_that_names_another_host_makes_no_call():
    with ScriptedServer(answer_found) as other, ScriptedServer(answer_found) as server:
        function = request("GET", "{url}", headers={"X-Api-Key": "k"}, allow_hosts=[server.url])
        rows = run(function, {"url": [f"{server.url}/a", f"{other.url}/b", "http://x@y/"]})
    assert [row["n"] for row in rows] == [7, None, None]
    assert "names a host that `allow_hosts` does not have" in message_of(rows[1])
    assert server.targets == ["/a"]
    assert other.targets == []


def test_a_row_that_names_a_host_without_encryption_makes_no_call_unless_that_was_said():
    with ScriptedServer(answer_found) as server:
        host = server.url.removeprefix("http://")
        options = {"headers": {"X-Api-Key": "k"}, "allow_hosts": [host]}
        (refused,) = run(request("GET", "{url}", **options), {"url": [f"{server.url}/a"]})
        name, _, port = host.rpartition(":")
        (said,) = run(request("GET", f"http://{name}:{{port}}/b", **options), {"port": [port]})
    assert "by http, which is not encrypted; use https" in message_of(refused)
    assert said["n"] == 7
    assert server.targets == ["/b"]


# -- addresses


def test_a_value_that_would_leave_its_place_fails_its_row_alone():
    with ScriptedServer(answer_found) as server:
        function = request("GET", f"{server.url}/tenants/{{id}}/users/{{id}}")
        rows = run(function, {"id": ["a/b", "..", ".", "", "c"]})
    assert sorted(server.targets) == ["/tenants/a%2Fb/users/a%2Fb", "/tenants/c/users/c"]
    assert [row["n"] for row in rows] == [7, None, None, None, 7]
    assert all("the path of `url`" in message_of(row) for row in rows[1:4])


def test_a_query_joins_that_of_a_row():
    with ScriptedServer(answer_found) as server:
        function = request("GET", "{url}", query={"k": "{id}"}, allow_hosts=[server.url])
        run(function, {"url": [f"{server.url}/a?o=1#f", f"{server.url}/b"], "id": ["x&", "y"]})
    assert sorted(server.targets) == ["/a?o=1&k=x%26", "/b?k=y"]


def test_a_header_that_a_server_would_trim_fails_the_row():
    with ScriptedServer(answer_found) as server:
        rows = run(request("GET", server.url, headers={"X": "{id}"}), {"id": ["a b", " a", "a\t"]})
    assert [row["n"] for row in rows] == [7, None, None]
    assert "spaces around it" in message_of(rows[1])


# -- what is sent again


@pytest.mark.parametrize(
    ("method", "options", "status", "calls"),
    [
        ("GET", {}, 408, 3),
        ("POST", {}, 408, 3),
        ("POST", {}, 425, 3),
        ("POST", {}, 429, 3),
        ("POST", {}, 503, 3),
        *(("POST", {}, status, 3) for status in (521, 523, 525, 526, 529)),
        *(("POST", {}, status, 1) for status in (500, 520, 522, 524)),
        ("POST", {}, 504, 1),
        ("GET", {}, 504, 3),
        ("POST", {"idempotency_key": True}, 504, 3),
        ("GET", {}, 409, 1),
        ("POST", {"idempotency_key": "{id}"}, 409, 3),
        ("POST", {}, 418, 1),
        # Of some services a token that is not valid; what else it may say is in the body.
        ("POST", {}, 498, 1),
    ],
)
def test_a_status_is_tried_again_where_that_can_help_and_does_no_harm(
    method, options, status, calls
):
    with ScriptedServer(lambda *_: (status, {}, b"")) as server:
        run(request(method, server.url, **options), {"id": [1]}, retry=AGAIN)
    assert len(server.requests) == calls


@pytest.mark.parametrize(
    ("method", "options", "calls"),
    [("GET", {}, 3), ("DELETE", {}, 3), ("POST", {}, 1), ("POST", {"idempotency_key": True}, 3)],
)
def test_a_call_that_may_have_been_made_is_made_again_only_where_twice_is_harmless(
    method, options, calls
):
    with ScriptedServer(lambda *_: None) as server:
        (row,) = run(request(method, server.url, **options), {"id": [1]}, retry=AGAIN)
    assert len(server.requests) == calls
    assert ("give `idempotency_key`" in message_of(row)) == (calls == 1)


# -- bodies of failures


def test_a_long_answer_to_a_failed_call_keeps_its_message_and_its_connection():
    body = b"quota of tenant is used up; " + b"x" * 100_000

    def answer(_target, before):
        return FOUND if before else (400, {}, body)

    with ScriptedServer(answer) as server:
        rows = run(request("GET", server.url), {"id": [1, 2]}, max_concurrency=1)
    assert "quota of tenant is used up" in message_of(rows[0])
    assert len(message_of(rows[0])) < 1000
    assert rows[1]["n"] == 7
    assert server.connections == 1


def test_a_long_page_of_a_miss_keeps_its_connection():
    with ScriptedServer(lambda *_: (404, {}, b"x" * 100_000)) as server:
        rows = run(request("GET", server.url), {"id": [1, 2, 3]}, max_concurrency=1)
    assert [(row["n"], row["error"]) for row in rows] == [(None, None)] * 3
    assert server.connections == 1


def test_of_an_endless_answer_only_the_start_is_read():
    body = b"what happened" + b"x" * 10_000_000

    with ScriptedServer(lambda *_: (400, {}, body)) as server:
        (row,) = run(request("GET", server.url), {"id": [1]})
    assert "what happened" in message_of(row)


# -- keys that say that a request is the same


def test_forked_children_do_not_repeat_a_key():
    with ScriptedServer(answer_found) as server:
        function = request("POST", server.url, idempotency_key=True)
        run(function, {"id": [1]})
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    run(function, {"id": [1]})
                    code = 0
                except BaseException:  # noqa: BLE001 - a child must not go on with the tests
                    traceback.print_exc()
                os._exit(code)
            children.append(child)
        codes = [os.waitpid(child, 0)[1] for child in children]
    assert codes == [0, 0]
    keys = [seen.headers["idempotency-key"] for seen in server.requests]
    assert len(set(keys)) == len(keys) == 3
