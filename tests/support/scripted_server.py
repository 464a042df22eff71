# SPDX-License-Identifier: Apache-2.0
"""An HTTP server whose answers a test makes up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import Self

from tests.support.servers import LOOPBACK

__all__ = ["Answer", "ScriptedServer"]

Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class ScriptedServer:
    """Answers GET requests over kept connections, as a context manager.

    Args:
        answer: Makes the answer to a request, from its target and the number of requests that
            came before. Called on a thread of the connection.

    Attributes:
        targets: What was asked for, in the order in which it came.
    """

    def __init__(self, answer: Callable[[str, int], Answer]) -> None:
        self.targets: list[str] = []
        lock = threading.Lock()
        targets = self.targets

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with lock:
                    before = len(targets)
                    targets.append(self.path)
                status, headers, body = answer(self.path, before)
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return f"http://{LOOPBACK}:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Starts it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Takes no more connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
