# SPDX-License-Identifier: Apache-2.0
"""HTTP functions against a real nginx: requests, responses, and what each failure comes to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import retry
from tests.support.certificates import Certificates
from tests.support.nginx import Nginx
from tests.support.servers import LOOPBACK, free_port

CUSTOMERS = {
    "a": {"name": "Ann", "address": {"city": "Oslo"}},
    "b": {"name": "Bob", "address": None},
    "c d/é": {"name": "Cid", "address": {"city": "Rome"}},
}

SERVER = """
location /customers/ { try_files $uri =404; }
location /echo { return 200 '{"method": "$request_method", "uri": "$request_uri",
  "token": "$http_x_token", "type": "$content_type"}'; }
location /moved { return 302 /customers/a; }
location /loop { return 302 /loop; }
location /busy { add_header Retry-After 0 always; return 429 "slow down"; }
location /broken { return 500 "oh no"; }
location /bad { return 400 "what?"; }
location /none { return 204; }
location /garbage { return 200 "{\\"name\\": "; }
location /zip/ { gzip on; gzip_min_length 1; gzip_types *; gzip_proxied any; alias files/; }
location /tag { add_header X-Tag "t1"; return 200 '{"name": "Ann"}'; }
"""


def put_files(nginx: Nginx) -> None:
    for key, value in CUSTOMERS.items():
        path = nginx.files / "customers" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    (nginx.files / "large").write_text(json.dumps({"name": "x" * 100_000}))


@pytest.fixture(scope="module")
def nginx(tmp_path_factory) -> Iterator[Nginx]:
    with Nginx(tmp_path_factory.mktemp("nginx"), SERVER) as server:
        put_files(server)
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def look_up(function, keys, **options) -> list[dict]:
    batch = pa.RecordBatch.from_pydict({"id": pa.array(keys, pa.string())})
    out = sa.arrow.ordered_wait([batch], function, **options)
    return pa.Table.from_batches(out).to_pylist() if (out := list(out)) else []


def get(nginx: Nginx, path: str, schema: str | None = "name string", client=None, **options):
    client = sa.http.Client(proxy=False, **(client or {}))
    return sa.http.get(nginx.url + path, schema, client=client, **options)


def error_of(function, keys=("a",), **options) -> str:
    with pytest.raises(sa.AsyncIOError) as caught:
        look_up(function, list(keys), **options)
    return str(caught.value)


def test_json_becomes_typed_columns_and_404_a_miss(nginx):
    function = get(nginx, "/customers/{id}", "name string, address struct<city:string>")

    rows = look_up(function, ["a", "b", "none", None])

    assert rows == [
        {"id": "a", "name": "Ann", "address": {"city": "Oslo"}},
        {"id": "b", "name": "Bob", "address": None},
        {"id": "none", "name": None, "address": None},
        {"id": None, "name": None, "address": None},
    ]


def test_values_in_an_address_are_percent_encoded(nginx):
    function = get(nginx, "/echo?a={id}", "uri string", query={"b c": "{id}&"})

    (row,) = look_up(function, ["c d/é?&"])

    value = "c%20d%2F%C3%A9%3F%26"
    assert row["uri"] == f"/echo?a={value}&b%20c={value}%26"


def test_a_miss_drops_the_row_with_inner(nginx):
    function = get(nginx, "/customers/{id}", how="inner")

    assert look_up(function, ["a", "none", None]) == [{"id": "a", "name": "Ann"}]


def test_404_is_a_failure_by_choice(nginx):
    message = error_of(get(nginx, "/customers/{id}", missing=()), ["none"])

    assert "answered 404 Not Found" in message


def test_a_path_finds_a_value(nginx):
    function = get(nginx, "/customers/{id}", "city string", paths={"city": "$.address.city"})

    assert look_up(function, ["a", "b"]) == [{"id": "a", "city": "Oslo"}, {"id": "b", "city": None}]


def test_body_status_and_headers_by_choice(nginx):
    options = {"status": "code", "response_headers": {"tag": "X-Tag", "none": "X-None"}}
    text = get(nginx, "/tag", None, returns="text", **options)
    (row,) = look_up(text, ["a"])
    expected = {"id": "a", "body": '{"name": "Ann"}', "code": 200, "tag": "t1", "none": None}
    assert row == expected

    (row,) = look_up(get(nginx, "/bad", None, returns="bytes", success=(400,)), ["a"])
    assert row["body"] == b"what?"

    (row,) = look_up(get(nginx, "/none", None, returns="nothing", status="code"), ["a"])
    assert row["code"] == 204


def test_secrets_and_columns_go_into_headers(nginx, monkeypatch):
    monkeypatch.setenv("HTTP_TEST_TOKEN", "{s3cret}")
    token = {"X-Token": sa.secret("HTTP_TEST_TOKEN", prefix="Bearer ")}
    function = get(nginx, "/echo", "token string", headers=token)

    assert look_up(function, ["a"])[0]["token"] == "Bearer {s3cret}"  # noqa: S105
    assert "s3cret" not in repr(function)

    function = get(nginx, "/echo", "token string", headers={"X-Token": "row {id}"})
    assert look_up(function, ["a"])[0]["token"] == "row a"  # noqa: S105


def test_redirects_are_followed_and_bounded(nginx):
    assert look_up(get(nginx, "/moved"), ["a"])[0]["name"] == "Ann"
    assert "more often than `redirects` allows" in error_of(get(nginx, "/loop"))
    assert "302 Found" in error_of(get(nginx, "/moved", client={"redirects": 0}))


def test_a_compressed_response_is_read_and_its_limit_counts_plain_bytes(nginx):
    function = get(nginx, "/zip/customers/{id}")
    assert look_up(function, ["a"])[0]["name"] == "Ann"

    small = get(nginx, "/zip/large", client={"max_reply_bytes": 50_000})
    assert "more than 50000 bytes" in error_of(small)


def test_a_response_beyond_the_limit_is_refused(nginx):
    small = get(nginx, "/large", client={"max_reply_bytes": 99_999})
    assert "raise `max_reply_bytes`" in error_of(small)


def test_a_failure_says_the_status_and_retries_what_may_pass(nginx):
    before = len(nginx.requests)
    strategy = retry.fixed_delay(2, "1ms")
    for path, attempts in [("/bad", 1), ("/broken", 3), ("/busy", 3)]:
        error_of(get(nginx, path), retry=strategy, timeout="10s")
        now = len(nginx.requests)
        assert (path, now - before) == (path, attempts)
        before = now


def test_the_words_of_the_service_are_in_the_error_column_only(nginx):
    function = get(nginx, "/broken")
    assert "oh no" not in error_of(function)

    (row,) = look_up(function, ["a"], on_error="capture")
    assert "500 Internal Server Error: oh no" in json.dumps(row, default=str)


def test_a_document_that_is_no_json_fails_its_row_alone(nginx):
    (row,) = look_up(get(nginx, "/garbage"), ["a"], on_error="null")

    assert row == {"id": "a", "name": None}
    assert "not JSON" in error_of(get(nginx, "/garbage"))
    assert "`name` should be `bigint`" in error_of(get(nginx, "/customers/{id}", "name bigint"))


def test_no_content_is_a_miss(nginx):
    assert look_up(get(nginx, "/none"), ["a"]) == [{"id": "a", "name": None}]


@pytest.mark.parametrize("version", ["1.1", "auto", "2"])
def test_tls_with_a_private_root_in_each_version(tmp_path, certificates, version):
    lines = 'location / { return 200 \'{"name": "$server_protocol"}\'; }'
    with Nginx(tmp_path, lines, certificates=certificates, listen="http2") as nginx:
        client = {"ca": certificates.ca_path, "version": version}
        (row,) = look_up(get(nginx, "/", client=client), ["a"])

    assert row["name"] == ("HTTP/1.1" if version == "1.1" else "HTTP/2.0")


def test_http2_without_tls(tmp_path):
    lines = 'location / { return 200 \'{"name": "$server_protocol"}\'; }'
    with Nginx(tmp_path, lines, listen="http2") as nginx:
        (row,) = look_up(get(nginx, "/", client={"version": "2"}), ["a"])

    assert row["name"] == "HTTP/2.0"


def test_a_certificate_of_another_root_is_refused_and_not_tried_again(tmp_path, certificates):
    other = Certificates(tmp_path)
    directory = tmp_path / "nginx"
    with Nginx(directory, certificates=certificates) as nginx:
        for ca in (other.ca, None):
            message = error_of(
                get(nginx, "/", client={"ca": ca}), retry=retry.fixed_delay(3, "1ms"), timeout="20s"
            )
            assert "after 1 attempt:" in message
            assert "certificate" in message


def test_a_client_certificate_is_shown(tmp_path, certificates):
    lines = f"""ssl_client_certificate {certificates.ca_path}; ssl_verify_client on;
        location / {{ return 200 '{{"name": "$ssl_client_verify"}}'; }}"""
    with Nginx(tmp_path, lines, certificates=certificates) as nginx:
        client = {"ca": certificates.ca, "certificate": certificates.client}
        function = get(nginx, "/", client=client)
        assert look_up(function, ["a"])[0]["name"] == "SUCCESS"
        assert "400 Bad Request" in error_of(get(nginx, "/", client={"ca": certificates.ca}))


def test_a_proxy_is_used(nginx, tmp_path):
    lines = 'location / { return 200 \'{"name": "proxy for $host"}\'; }'
    with Nginx(tmp_path, lines) as proxy:
        function = sa.http.get(
            "http://example.invalid/", "name string", client=sa.http.Client(proxy=proxy.url)
        )
        assert look_up(function, ["a"])[0]["name"] == "proxy for example.invalid"


def test_a_server_that_is_down_and_a_name_that_does_not_exist_are_told(nginx):
    url = f"http://{LOOPBACK}:{free_port()}/{{id}}"
    message = error_of(sa.http.get(url, "name string", client=sa.http.Client(proxy=False)))
    assert "no connection" in message
    assert "refused" in message

    message = error_of(
        sa.http.get("http://no-such-host.invalid/{id}", "x int", client=sa.http.Client(proxy=False))
    )
    assert "`no-such-host.invalid`: no connection: failed to lookup address" in message


def test_a_server_killed_in_mid_run_loses_no_row(tmp_path):
    with Nginx(tmp_path, SERVER) as nginx:
        put_files(nginx)
        rows = 3_000
        seen = threading.Event()

        def batches():
            for start in range(0, rows, 100):
                if start == rows // 2:
                    seen.wait(10)
                    nginx.restart()
                ids = pa.array(range(start, start + 100), pa.int64())
                yield pa.RecordBatch.from_pydict({"row": ids, "id": pa.array(["a"] * 100)})

        function = get(nginx, "/customers/{id}")
        out = sa.arrow.unordered_wait(
            batches(),
            function,
            retry=retry.fixed_delay(500, "20ms", budget=None),
            timeout="25s",
            max_concurrency=200,
        )
        found = []
        for batch in out:
            found.extend(batch.to_pylist())
            seen.set()

    assert sorted(row["row"] for row in found) == list(range(rows))
    assert {row["name"] for row in found} == {"Ann"}


def test_a_server_that_stalls_is_given_up_after_its_timeout(tmp_path):
    with Nginx(tmp_path, SERVER) as nginx:
        put_files(nginx)
        function = get(nginx, "/customers/{id}", client={"read_timeout": "2s"})
        assert look_up(function, ["a"])[0]["name"] == "Ann"
        nginx.pause()
        try:
            assert "no byte came within `read_timeout`" in error_of(function)
        finally:
            nginx.resume()


@contextmanager
def raw_server(*replies: bytes) -> Iterator[str]:
    """Answers one request of each connection with the next reply, and hangs up."""
    listener = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        for reply in replies:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}/"
    finally:
        thread.join()
        listener.close()


@pytest.mark.parametrize(
    "broken",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"this is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"",
    ],
    ids=["truncated", "garbage", "bad chunk", "hung up"],
)
def test_a_broken_reply_is_tried_again(broken):
    good = b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"name": "A"}'
    with raw_server(broken, good) as url:
        function = sa.http.get(url, "name string", client=sa.http.Client(proxy=False))
        (row,) = look_up(function, ["a"], retry=retry.fixed_delay(1, "1ms"), timeout="20s")
    assert row["name"] == "A"

    with raw_server(broken) as url:
        message = error_of(sa.http.get(url, "name string", client=sa.http.Client(proxy=False)))
    assert "broke off or is not HTTP" in message


def test_json_bodies_have_columns_with_their_types():
    bodies = []
    listener = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                bodies.append(connection.recv(65536).decode())
                connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    url = f"http://{LOOPBACK}:{listener.getsockname()[1]}/"
    row = {"who": {"name": 'A"', "age": 7}, "n": None}
    kind = pa.struct([("name", pa.string()), ("age", pa.int64())])
    batch = pa.RecordBatch.from_pydict(
        {"who": pa.array([row["who"]], kind), "n": pa.array([None], pa.int64())}
    )
    for body in ("{who}", {"a": ["{who}", "{n}", "n={{}}", 1.5], "b": {}}):
        options = {"returns": "nothing", "status": "code", "client": sa.http.Client(proxy=False)}
        function = sa.http.post(url, json=body, idempotency_key=True, **options)
        list(sa.arrow.ordered_wait([batch], function))
    thread.join()
    listener.close()

    who = {"name": 'A"', "age": 7}
    texts = [json.loads(body.split("\r\n\r\n")[1]) for body in bodies]
    assert texts == [who, {"a": [who, None, "n={}", 1.5], "b": {}}]
    assert all("content-type: application/json" in body for body in bodies)
    keys = {line for body in bodies for line in body.split("\r\n") if "idempotency-key" in line}
    assert len(keys) == 2


def test_an_idempotency_key_stays_the_same_over_attempts(tmp_path: Path):
    lines = "location / { add_header Retry-After 0 always; return 503; }"
    with Nginx(tmp_path, lines, log="$http_idempotency_key") as nginx:
        function = sa.http.post(
            nginx.url,
            returns="text",
            body="{id}",
            idempotency_key=True,
            client=sa.http.Client(proxy=False),
        )
        look_up(
            function, ["a", "b"], retry=retry.fixed_delay(2, 0.001), timeout="10s", on_error="null"
        )
        keys = nginx.requests

    assert len(keys) == 6
    assert len(set(keys)) == 2
