# SPDX-License-Identifier: Apache-2.0
"""Where a request and its answer end, as a server sees it byte by byte."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from typing_extensions import Self

import sparkawait as sa
from tests.support.certificates import Certificates
from tests.support.nginx import Nginx
from tests.support.servers import LOOPBACK

FOUND = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"n": 7}'


class RawServer(socketserver.ThreadingTCPServer):
    """Answers each request with bytes that a test makes of it and of those before, and goes on.

    Attributes:
        requests: What came, from the first byte to the last, with the number of its connection.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, answer: Callable[[int], bytes]) -> None:
        self.requests: list[tuple[int, bytes]] = []
        self.connections = 0
        self._answer, self._lock = answer, threading.Lock()
        server = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with server._lock:
                    server.connections += 1
                    connection = server.connections
                while request := server._receive(self.request):
                    with server._lock:
                        before = len(server.requests)
                        server.requests.append((connection, request))
                    self.request.sendall(server._answer(before))

        super().__init__((LOOPBACK, 0), Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    @staticmethod
    def _receive(connection) -> bytes:
        """Returns a request: its head, and what that says of its body."""
        found = b""
        while b"\r\n\r\n" not in found:
            piece = connection.recv(65536)
            if not piece:
                return b""
            found += piece
        head, _, body = found.partition(b"\r\n\r\n")
        lines = [line.lower().partition(b":") for line in head.split(b"\r\n")]
        length = next((int(value) for name, _, value in lines if name == b"content-length"), 0)
        while len(body) < length:
            body += connection.recv(65536)
        assert len(body) == length, "more than one request at a time"
        return head + b"\r\n\r\n" + body

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return f"http://{LOOPBACK}:{self.server_address[1]}"

    def __enter__(self) -> Self:
        """Starts it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Takes no more connections."""
        self.shutdown()
        self.server_close()
        self._thread.join()


def rows(function, count: int = 1, **others) -> list[dict]:
    batch = pa.record_batch({"id": [str(row) for row in range(count)]})
    options = {
        "on_error": "capture",
        "retry": 0,
        "max_concurrency": 1,
        "tuning": sa.Tuning(warm_up=False),
        **others,
    }
    out = sa.arrow.ordered_wait([batch], function, **options)
    found = pa.Table.from_batches(out).to_pylist()
    assert [row["id"] for row in found] == batch["id"].to_pylist()
    return found


@pytest.mark.parametrize(("status", "calls"), [(429, 2), (404, 1), (400, 1)])
def test_a_status_that_decides_does_not_wait_for_the_rest_of_its_body(status, calls):
    stalled = b"HTTP/1.1 %d No\r\nContent-Length: 100\r\n\r\nwhat happened" % status
    with RawServer(lambda before: FOUND if before else stalled) as server:
        function = request("POST", server.url, body="x", missing=[404])
        (row,) = rows(function, retry=sa.retry.fixed_delay(3, "1ms"), timeout="60s")
        assert len(server.requests) == server.connections == calls

    assert row["n"] == (7 if status == 429 else None)
    if status == 400:
        assert "what happened" in row["error"]["message"]
    else:
        assert row["error"] is None


def request(method: str, url: str, **options):
    options = {"missing": (), "client": sa.http.Client(proxy=False)} | options
    return sa.http.request(method, f"{url}/{{id}}", "n bigint", **options)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize(
    ("options", "body"), [({}, b""), ({"body": ""}, b""), ({"body": "{id}é"}, "0é".encode())]
)
def test_methods_that_have_a_body_say_its_length(method, options, body):
    with RawServer(lambda _: FOUND) as server:
        (row,) = rows(request(method, server.url, **options))
    assert row["n"] == 7
    ((_, sent),) = server.requests
    head, _, sent_body = sent.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if b"length" in line]
    assert lengths == [b"content-length: %d" % len(body)]
    assert sent_body == body
    assert b"transfer-encoding" not in head.lower()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "GET", "DELETE"])
@pytest.mark.parametrize("version", ["1.1", "2"])
def test_both_versions_of_http_say_it(tmp_path, method, version):
    certificates = Certificates(tmp_path)
    options = {
        "certificates": certificates,
        "listen": "http2" if version == "2" else "",
        "log": "$server_protocol $http_content_length",
    }
    with Nginx(tmp_path / "nginx", """location / { return 200 '{"n": 7}'; }""", **options) as nginx:
        client = sa.http.Client(proxy=False, ca=certificates.ca, version=version)
        (row,) = rows(request(method, nginx.url, client=client))
        (seen,) = nginx.requests
    assert row["n"] == 7
    protocol, length = seen.split()
    assert protocol == ("HTTP/2.0" if version == "2" else "HTTP/1.1")
    assert length == ("0" if method.startswith("P") else "-")


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_other_methods_without_a_body_say_nothing_of_one(method):
    with RawServer(lambda _: b"HTTP/1.1 204 No Content\r\n\r\n") as server:
        rows(request(method, server.url))
    ((_, sent),) = server.requests
    assert b"content-length" not in sent.lower()


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize(
    ("told", "connections"),
    [
        (b"Content-Length: 13\r\n", 3),
        (b"Content-Encoding: gzip\r\nContent-Length: 13\r\n", 3),
        (b"Transfer-Encoding: chunked\r\n", 3),
        (b"Content-Length: 0\r\n", 1),
        (b"", 1),
    ],
)
def test_nothing_follows_an_answer_that_tells_of_a_body_it_must_not_have(status, told, connections):
    empty = b"HTTP/1.1 " + status + b"\r\n" + told + b"\r\n"
    with RawServer(lambda _: empty) as server:
        found = rows(request("GET", server.url, missing=(204, 304)), 3)
    assert [(row["n"], row["error"]) for row in found] == [(None, None)] * 3
    assert [connection for connection, _ in server.requests] == (
        [1, 2, 3] if connections == 3 else [1, 1, 1]
    )
