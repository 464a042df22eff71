# SPDX-License-Identifier: Apache-2.0
"""What the environment of an executor says to HTTP functions: proxies, and whom to trust.

Clients are kept by their settings, so each test has a `read_timeout` of its own.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.certificates import Certificates
from tests.support.nginx import Nginx
from tests.support.servers import LOOPBACK


@pytest.fixture
def proxy(tmp_path, monkeypatch) -> Iterator[Nginx]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    lines = """location / { return 200 '{"name": "proxy for $host"}'; }"""
    with Nginx(tmp_path / "proxy", lines) as server:
        yield server


@pytest.fixture
def nginx(tmp_path) -> Iterator[Nginx]:
    with Nginx(tmp_path / "nginx", """location / { return 200 '{"name": "$host"}'; }""") as server:
        yield server


def name_from(url: str, **client) -> str:
    function = sa.http.get(url, "name string", client=sa.http.Client(**client))
    (batch,) = sa.arrow.ordered_wait([pa.RecordBatch.from_pydict({"id": [1]})], function)
    return batch["name"][0].as_py()


def test_the_proxy_of_the_environment_is_used(proxy, nginx, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", proxy.url)

    name = name_from(f"{nginx.url}/?id={{id}}", read_timeout="21s")

    assert name == "proxy for localhost"
    assert nginx.requests == []


def test_hosts_that_need_no_proxy_are_asked_themselves(proxy, nginx, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", "localhost")

    assert name_from(nginx.url, read_timeout="22s") == "localhost"
    assert name_from("http://example.invalid", read_timeout="22s") == "proxy for example.invalid"


def test_a_star_means_addresses_too_and_an_entry_may_have_a_port(proxy, nginx, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    address = nginx.url.replace("localhost", LOOPBACK)
    for at, exempt in enumerate(["*", f"x, {LOOPBACK}:{nginx.port}"]):
        monkeypatch.setenv("NO_PROXY", exempt)
        assert name_from(address, read_timeout=27 + at) == LOOPBACK
    monkeypatch.setenv("NO_PROXY", f"{LOOPBACK}:{proxy.port}")
    assert name_from(address, read_timeout=29) == f"proxy for {LOOPBACK}"


def test_no_proxy_at_all_by_choice(proxy, nginx, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", proxy.url)

    assert name_from(nginx.url, read_timeout="23s", proxy=False) == "localhost"


def test_a_proxy_that_is_given_goes_before_that_of_the_environment(proxy, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://no-such-proxy.invalid")

    name = name_from("http://example.invalid", read_timeout="24s", proxy=proxy.url)

    assert name == "proxy for example.invalid"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_not_spoken_to_sees_nothing(monkeypatch, scheme):
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        for name in ("http_proxy", "https_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.setenv("ALL_PROXY", f"socks5://user:word@{LOOPBACK}:{port}")

        with pytest.raises(sa.AsyncFunctionError, match="a proxy of `socks5`, which is not"):
            name_from(f"{scheme}://example.invalid/", read_timeout="31s")

        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_the_roots_of_the_system_are_trusted(tmp_path, monkeypatch):
    certificates = Certificates(tmp_path)
    lines = """location / { return 200 '{"name": "$host"}'; }"""
    with Nginx(tmp_path / "nginx", lines, certificates=certificates) as server:
        with pytest.raises(sa.AsyncFunctionError, match="certificate"):
            name_from(server.url, proxy=False, read_timeout="25s")

        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_path))

        assert name_from(server.url, proxy=False, read_timeout="26s") == "localhost"


# -- tunnels


@contextmanager
def tunnel(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that answers CONNECT so, and then passes bytes on to the port that was asked for."""
    asked: list[bytes] = []

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while sent := source.recv(1 << 16):
                target.sendall(sent)
            target.shutdown(socket.SHUT_WR)

    def serve(client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1 << 16)
        asked.append(head)
        client.sendall(answer)
        if not answer.startswith(b"HTTP/1.1 200"):
            client.close()
            return
        port = int(head.split()[1].rpartition(b":")[2])
        server = socket.create_connection((LOOPBACK, port))
        threading.Thread(target=pass_on, args=(client, server), daemon=True).start()
        pass_on(server, client)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    listener = socket.create_server((LOOPBACK, 0))
    threading.Thread(target=accept, daemon=True).start()
    yield f"http://user:p%20w@{LOOPBACK}:{listener.getsockname()[1]}", asked
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_encrypted_requests_go_through_a_tunnel_of_the_proxy(tmp_path):
    certificates = Certificates(tmp_path)
    lines = """location / { return 200 '{"name": "$host $server_protocol"}'; }"""
    options = {"certificates": certificates, "listen": "http2"}
    with (
        Nginx(tmp_path / "nginx", lines, **options) as server,
        tunnel(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n") as (proxy, asked),
    ):
        name = name_from(server.url, proxy=proxy, ca=certificates.ca)
    (head,) = asked
    assert name == "localhost HTTP/2.0"
    assert head.startswith(f"CONNECT localhost:{server.port} HTTP/1.1\r\n".encode())
    basic = base64.b64encode(b"user:p w")
    assert b"\r\nproxy-authorization: basic " + basic.lower() + b"\r\n" in head.lower()


@pytest.mark.parametrize(
    ("answer", "why", "calls"),
    [
        (
            b"HTTP/1.1 407 Who?\r\n\r\n",
            "407 Proxy Authentication Required to CONNECT; give its address",
            1,
        ),
        # Without `retry=` what was not sent is tried three times more.
        (
            b"HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\nno!",
            "503 Service Unavailable to CONNECT",
            4,
        ),
        (b"HTTP/1.1 403 No\r\n\r\n", "403 Forbidden to CONNECT", 1),
    ],
)
def test_a_proxy_that_makes_no_tunnel_is_told(answer, why, calls):
    match = f"no connection: the proxy answered {why}"
    with (
        tunnel(answer) as (proxy, asked),
        pytest.raises(sa.AsyncFunctionError, match=match),
    ):
        name_from("https://example.invalid/", proxy=proxy)
    assert len(asked) == calls
