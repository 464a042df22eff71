# SPDX-License-Identifier: Apache-2.0
"""An HTTP server whose answers a test makes up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import Self

from tests.support.servers import LOOPBACK

__all__ = ["Answer", "Request", "ScriptedServer"]

Answer = tuple[int, Mapping[str, str], bytes] | None
"""Status, headers and body; ``None`` ends the connection instead. With a ``Content-Length`` of its
own the connection ends behind the body, however long that is said to be."""


@dataclass(frozen=True)
class Request:
    """What came.

    Attributes:
        method: Its method.
        target: Path and query.
        headers: Its headers, by their names in small letters; bytes as characters.
        body: What followed.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # With five, the system resets connections of clients that come together.
    request_queue_size = 1024


class ScriptedServer:
    """Answers requests over kept connections, as a context manager.

    Args:
        answer: Makes the answer to a request, from its target and the number of requests that
            came before. Called on a thread of the connection.
        host: The address that it listens on.

    Attributes:
        targets: What was asked for, in the order in which it came.
        requests: The same with all that came along.
        connections: How many connections were made.
    """

    def __init__(self, answer: Callable[[str, int], Answer], host: str = LOOPBACK) -> None:
        self.targets: list[str] = []
        self.requests: list[Request] = []
        self.connections = 0
        lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with lock:
                    server.connections += 1

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                with lock:
                    before = len(server.targets)
                    server.targets.append(self.path)
                    server.requests.append(Request(self.command, self.path, headers, body))
                answered = answer(self.path, before)
                if answered is None:
                    self.close_connection = True
                    return
                status, fields, body = answered
                self.send_response_only(status)
                for name, value in fields.items():
                    self.send_header(name, value)
                if "Content-Length" in fields:
                    self.close_connection = True
                else:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    # Who asked need not read all of it.
                    with contextlib.suppress(ConnectionError):
                        self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                """Says nothing."""

            do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815 - their names

        self._server = _Server((host, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return f"http://{self._server.server_name}:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Starts it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Takes no more connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
