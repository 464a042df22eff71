# SPDX-License-Identifier: Apache-2.0
"""Connections that age: servers close the kept ones, move on and have limits of their own."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import retry
from tests.support.certificates import Certificates
from tests.support.nginx import Nginx
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.servers import LOOPBACK, free_port

ROWS = 41
DIRECT = sa.http.Client(proxy=False)
FOUND = (200, {}, b'{"n": 7}')
SAYS_ID = """location / { return 200 '{"n": $arg_id}'; }"""


def rows_of(count: int, function, **options) -> list[dict]:
    rows = pa.record_batch({"id": range(count)})
    options = {"on_error": "capture", "retry": 0} | options
    out = sa.arrow.ordered_wait([rows], function, **options)
    found = pa.Table.from_batches(out).to_pylist()
    assert [row["id"] for row in found] == list(range(count))
    return found


def request(method: str, url: str, **options):
    options = {"client": DIRECT} | options
    return sa.http.request(method, f"{url}?id={{id}}", "n bigint", **options)


class ClosesKept:
    """Ends each connection under its second request, which it has read."""

    def __init__(self) -> None:
        self.thread = threading.local()

    def __call__(self, _target: str, _before: int) -> Answer:
        # A thread serves one connection.
        is_kept, self.thread.is_kept = getattr(self.thread, "is_kept", False), True
        return None if is_kept else FOUND


@pytest.mark.parametrize("way", ["lost", "many headers", "refused"])
def test_an_order_is_made_once_whatever_becomes_of_the_request_that_it_leads_to(way):
    first = {
        "lost": None,
        "many headers": (200, {f"x-{number}": "7" for number in range(151)}, b'{"n": 7}'),
        "refused": (401, {}, b""),
    }[way]
    asked: Counter[str] = Counter()

    def answers(target: str, _before: int) -> Answer:
        if target.startswith("/order"):
            return 303, {"location": "/result"}, b""
        asked[target] += 1
        return first if asked[target] == 1 else FOUND

    tokens = iter(range(13))
    auth = sa.http.bearer(sa.secret(provider=lambda: f"token {next(tokens)}"))
    with ScriptedServer(answers) as server:
        order = request("POST", f"{server.url}/order", body="{id}", auth=auth)
        (row,) = rows_of(1, order)
    assert (row["n"], row["error"]) == (7, None)
    assert server.targets == ["/order?id=0", "/result", "/result"]


@pytest.mark.parametrize(
    ("method", "options"),
    [("GET", {}), ("PUT", {"body": "{id}"}), ("POST", {"body": "{id}", "idempotency_key": True})],
    ids=["get", "put", "post-with-key"],
)
def test_what_may_be_repeated_is_not_lost_with_the_connection_that_was_kept(method, options):
    with ScriptedServer(ClosesKept()) as server:
        function = request(method, server.url, **options)
        found = rows_of(ROWS, function, max_concurrency=3, info="call")
        asked = Counter(it.target for it in server.requests)
        bodies = {(it.target, it.body, it.headers.get("idempotency-key")) for it in server.requests}
    assert [row["n"] for row in found] == [7] * ROWS
    # Once more, over a connection of its own, and the same request.
    assert len(server.requests) > ROWS
    assert set(asked.values()) <= {1, 2}
    assert len(bodies) == len(asked) == ROWS
    # That is a call more.
    assert {f"/?id={row['id']}": row["call"]["attempts"] for row in found} == asked


def test_what_is_sent_again_is_paid_for_like_any_call():
    budget = sa.Budget(ROWS + 7, cost=1)
    with ScriptedServer(ClosesKept()) as server:
        found = rows_of(ROWS, request("GET", server.url), max_concurrency=3, rate_limit=budget)
        asked = len(server.requests)
    assert asked == ROWS + 7
    assert {row["n"] for row in found} == {7, None}
    assert {row["error"]["kind"] for row in found if row["error"]} == {"budget-spent"}


def test_a_request_that_ends_each_connection_is_not_sent_for_ever():
    """Others are answered all the time, so that there are kept connections."""

    def answer(target: str, _before: int) -> Answer:
        return None if target == "/?id=13" else FOUND

    with ScriptedServer(answer) as server:
        again = retry.fixed_delay(2, "1ms")
        found = rows_of(ROWS, request("GET", server.url), max_concurrency=3, retry=again)
        asked = Counter(server.targets)
    assert [row["id"] for row in found if row["error"]] == [13]
    assert asked.total() == ROWS - 1 + asked["/?id=13"]
    # Three tries, each of which may meet a kept connection first.
    assert 3 <= asked["/?id=13"] <= 6


def test_what_must_not_be_done_twice_is_sent_once_and_fails():
    with ScriptedServer(ClosesKept()) as server:
        again = retry.fixed_delay(3, "1ms")
        found = rows_of(ROWS, request("POST", server.url, body="{id}"), retry=again)
        asked = Counter(it.target for it in server.requests)
    lost = [row for row in found if row["n"] is None]
    assert lost
    assert all("broke off" in row["error"]["message"] for row in lost)
    assert asked == {f"/?id={i}": 1 for i in range(ROWS)}


def test_a_server_that_answers_nobody_is_not_asked_for_ever():
    with ScriptedServer(lambda *_: None) as server:
        found = rows_of(3, request("GET", server.url), max_concurrency=1)
    assert [row["n"] for row in found] == [None] * 3
    # No connection of theirs was kept.
    assert len(server.requests) == 3


def test_a_reload_under_load_loses_no_row(tmp_path):
    rows, count = 3001, 0
    with Nginx(tmp_path, SAYS_ID, can_reload=True) as nginx:

        def batches():
            for start in range(0, rows, 307):
                yield pa.record_batch({"id": range(start, min(start + 307, rows))})
                nginx.reload()

        function = request("GET", nginx.url)
        out = sa.arrow.ordered_wait(batches(), function, retry=0, max_concurrency=53)
        for batch in out:
            assert batch["n"].to_pylist() == batch["id"].to_pylist()
            count += len(batch)
        # Those that a server saw twice are more.
        assert len(nginx.requests) >= rows
    assert count == rows


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_ends_connections_after_some_requests_gets_them_over_few(
    tmp_path, certificates, method
):
    lines = f"keepalive_requests 100; {SAYS_ID}"
    options = {"certificates": certificates, "listen": "http2", "log": "$connection $args"}
    rows = 3001
    with Nginx(tmp_path, lines, **options) as nginx:
        function = request(
            method, nginx.url, client=sa.http.Client(proxy=False, ca=certificates.ca)
        )
        found = rows_of(rows, function, max_concurrency=97, tuning=sa.Tuning(warm_up=False))
        seen = [line.split() for line in nginx.requests]
    assert [row["n"] for row in found] == list(range(rows))
    assert Counter(args for _, args in seen) == {f"id={i}": 1 for i in range(rows)}
    # 31 would do if each was filled to its last request.
    assert len({connection for connection, _ in seen}) <= 62


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_with_few_streams_takes_all_requests(tmp_path, certificates, method):
    lines = f"keepalive_requests 100; http2_max_concurrent_streams 8; {SAYS_ID}"
    options = {"certificates": certificates, "listen": "http2", "log": "$connection $args"}
    with Nginx(tmp_path, lines, **options) as nginx:
        function = request(
            method, nginx.url, client=sa.http.Client(proxy=False, ca=certificates.ca)
        )
        found = rows_of(1009, function, max_concurrency=97, tuning=sa.Tuning(warm_up=False))
        seen = [line.split() for line in nginx.requests]
    assert [row["n"] for row in found] == list(range(1009))
    assert Counter(args for _, args in seen) == {f"id={i}": 1 for i in range(1009)}


# -- where rows may lead


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://{host}:{port}/", "localhost"),
        ("http://{host}:{port}/", LOOPBACK),
        ("{host}:{port}/", "http://0.0.0.0"),
        ("{host}:{port}/", "http://[::ffff:127.0.0.1]"),
    ],
)
@pytest.mark.parametrize("on_error", ["fail", "null"])
def test_a_row_that_leads_into_this_machine_ends_its_task(url, host, on_error):
    with ScriptedServer(lambda *_: FOUND) as server:
        rows = pa.record_batch({"host": [host], "port": [server.url.rpartition(":")[2]]})
        function = sa.http.get(url, "n bigint", client=DIRECT)
        with pytest.raises(sa.ConfigurationError, match=r"allow_hosts=\[") as raised:
            list(sa.arrow.ordered_wait([rows], function, on_error=on_error, retry=0))
    assert "an address of this machine" in str(raised.value)
    assert server.targets == []


def test_a_row_of_a_batch_that_leads_into_this_machine_ends_its_task_too():
    item = sa.http.each("{id}")
    function = sa.http.post("{url}", "n bigint", json=item, batch=3, client=DIRECT)
    rows = pa.record_batch({"id": range(5), "url": [f"http://{LOOPBACK}:9/"] * 5})
    with pytest.raises(sa.ConfigurationError, match=r'allow_hosts=\["http://127.0.0.1:9"\]'):
        list(sa.arrow.ordered_wait([rows], function, on_error="null"))


def test_a_host_that_the_user_has_written_or_allowed_may_be_anywhere():
    with ScriptedServer(lambda *_: FOUND) as server:
        port = int(server.url.rpartition(":")[2])
        written = sa.http.get(f"http://{LOOPBACK}:{{port}}/", "n bigint", client=DIRECT)
        options = {"client": DIRECT, "allow_hosts": ["http://.localhost", f"http://{LOOPBACK}"]}
        allowed = sa.http.get("{url}", "n bigint", **options)
        rows = pa.record_batch({"port": [port], "url": [f"http://{LOOPBACK}:{port}/a"]})
        for function in (written, allowed):
            (batch,) = sa.arrow.ordered_wait([rows], function)
            assert batch["n"].to_pylist() == [7]
    assert server.targets == ["/", "/a"]


@pytest.mark.parametrize(("status", "posts"), [(301, 1), (302, 1), (303, 1), (307, 4), (308, 4)])
@pytest.mark.parametrize("answered", [(503, {}, b""), (429, {"Retry-After": "0"}, b"")])
def test_a_post_that_was_carried_out_is_not_made_again_where_its_result_cannot_be_had(
    status: int, posts: int, answered: Answer
):
    def answer(target: str, _: int) -> Answer:
        return answered if target == "/result" else (status, {"Location": "/result"}, b"")

    with ScriptedServer(answer) as server:
        function = request("POST", f"{server.url}/order", body="{id}")
        (row,) = rows_of(1, function, retry=retry.fixed_delay(3, "1ms"))
        assert row["error"]["status"] == answered[0]
        assert sum(it.startswith("/order") for it in server.targets) == posts


def test_a_redirection_leads_into_no_network_that_the_user_has_not_written():
    def answer(target: str, _: int) -> Answer:
        return 302, {"Location": f"http://127.0.0.9:{port}/inside"}, b""

    with ScriptedServer(answer) as server:
        port = server.url.rpartition(":")[2]
        found = rows_of(1, request("GET", server.url))
    assert "it redirected to `127.0.0.9`" in found[0]["error"]["message"]
    assert "allow_hosts" in found[0]["error"]["message"]


# -- files

MANY_HOSTS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
import pyarrow as pa
import sparkawait as sa
hosts = [f"127.0.{i % 3 + 1}.{i // 3 + 1}" for i in range(600)]
url, client = "http://{host}:" + sys.argv[1] + "/?id=7", sa.http.Client(proxy=False)
function = sa.http.get(url, "n int", client=client, allow_hosts=hosts)
rows = pa.record_batch({"host": hosts})
out = sa.arrow.ordered_wait([rows], function, retry=0, on_error="null", max_concurrency=20)
print(sum(value == 7 for batch in out for value in batch["n"].to_pylist()))
"""


def test_rows_that_name_more_hosts_than_the_process_may_have_files_are_all_answered(tmp_path):
    port = free_port()
    with Nginx(tmp_path, f"listen 0.0.0.0:{port}; {SAYS_ID}", log="$connection"):
        command = [sys.executable, "-c", MANY_HOSTS, str(port)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "600\n"
