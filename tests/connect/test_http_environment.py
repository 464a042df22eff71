# SPDX-License-Identifier: Apache-2.0
"""What the environment of an executor says to HTTP functions: proxies, and whom to trust.

Clients are kept by their settings, so each test has a `read_timeout` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.certificates import Certificates
from tests.support.nginx import Nginx


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


def test_no_proxy_at_all_by_choice(proxy, nginx, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", proxy.url)

    assert name_from(nginx.url, read_timeout="23s", proxy=False) == "localhost"


def test_a_proxy_that_is_given_goes_before_that_of_the_environment(proxy, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://no-such-proxy.invalid")

    name = name_from("http://example.invalid", read_timeout="24s", proxy=proxy.url)

    assert name == "proxy for example.invalid"


def test_the_roots_of_the_system_are_trusted(tmp_path, monkeypatch):
    certificates = Certificates(tmp_path)
    lines = """location / { return 200 '{"name": "$host"}'; }"""
    with Nginx(tmp_path / "nginx", lines, certificates=certificates) as server:
        with pytest.raises(sa.AsyncFunctionError, match="certificate"):
            name_from(server.url, proxy=False, read_timeout="25s")

        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_path))

        assert name_from(server.url, proxy=False, read_timeout="26s") == "localhost"
