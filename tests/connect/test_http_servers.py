# SPDX-License-Identifier: Apache-2.0
"""Web servers as they are deployed, which close connections that are idle and do not say when."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.servers import LOOPBACK, Server, free_port
from tests.support.waiting import wait_until

APPLICATIONS = """
import collections, json, threading

asked, lock = collections.Counter(), threading.Lock()

def reply(path):
    if path == "/count":
        return json.dumps(asked).encode()
    with lock:
        asked[path] += 1
    return json.dumps({"v": int(path[1:])}).encode()

def wsgi(environ, start_response):
    environ["wsgi.input"].read()
    body = reply(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

async def asgi(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    body = reply(scope["path"])
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""
BURST, BURSTS = 13, 4


def web_server(name: str, directory: Path, keep_alive: int) -> Server:
    """A server with one worker that closes connections after so many idle seconds."""
    (directory / "applications.py").write_text(APPLICATIONS)
    port = free_port()
    if name == "uvicorn":
        options = ["--lifespan", "off", "--timeout-keep-alive", str(keep_alive)]
        command = ["applications:asgi", "--host", LOOPBACK, "--port", str(port), *options]
    else:
        options = ["--threads", "3", "--worker-class", "gthread", "--keep-alive", str(keep_alive)]
        command = ["applications:wsgi", "--bind", f"{LOOPBACK}:{port}", *options]
    return Server([sys.executable, "-m", name, *command], port, directory)


def connections_to(port: int) -> int:
    """Connections that the server at `port` has open."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    sockets = [line.split() for line in lines]
    return sum(it[1].endswith(f":{port:04X}") and it[3] == "01" for it in sockets)


def asked_of(server: Server) -> dict[str, int]:
    with httpx.Client(trust_env=False) as client:
        return client.get(f"http://{LOOPBACK}:{server.port}/count").json()


def called(server: Server, method: str, batches: Iterator[pa.RecordBatch], found: list) -> None:
    url = f"http://{LOOPBACK}:{server.port}/{{x}}"
    body = {"body": "<{x}>"} if method == "POST" else {}
    client = sa.http.Client(proxy=False)
    function: Any = sa.http.request(method, url, "v bigint", client=client, **body)
    options = {"retry": 0, "max_concurrency": 5, "timeout": "60s"}
    for batch in sa.arrow.ordered_wait(batches, function, **options):
        found.extend(batch.to_pylist())


# What may be called again is safe by that alone; what may not be is tried for each change.
@pytest.mark.parametrize("method", [pytest.param("GET", marks=pytest.mark.nightly), "POST"])
@pytest.mark.parametrize("name", ["uvicorn", pytest.param("gunicorn", marks=pytest.mark.nightly)])
def test_connections_that_a_server_closed_while_they_were_idle_lose_no_row(tmp_path, name, method):
    found: list[dict[str, int]] = []
    with web_server(name, tmp_path, keep_alive=1) as server:

        def bursts() -> Iterator[pa.RecordBatch]:
            for start in range(0, BURST * BURSTS, BURST):
                yield pa.record_batch({"x": range(start, start + BURST)})
                wait_until(lambda: len(found) == start + BURST)  # noqa: B023 - it returns before
                assert connections_to(server.port) > 0
                wait_until(lambda: connections_to(server.port) == 0)

        called(server, method, bursts(), found)
        asked = asked_of(server)

    assert found == [{"x": it, "v": it} for it in range(BURST * BURSTS)]
    assert asked == {f"/{it}": 1 for it in range(BURST * BURSTS)}


def test_a_server_that_closes_each_connection_at_once_loses_no_row_that_may_be_repeated(tmp_path):
    found: list[dict[str, int]] = []
    with web_server("uvicorn", tmp_path, keep_alive=0) as server:
        called(server, "GET", iter([pa.record_batch({"x": range(211)})]), found)
        asked = asked_of(server)

    assert found == [{"x": it, "v": it} for it in range(211)]
    assert len(asked) == 211
