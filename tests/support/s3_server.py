# SPDX-License-Identifier: Apache-2.0
"""A store of objects that speaks as much of S3 as PyArrow asks for, in this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}
    requests: ClassVar[list[str]] = []
    buckets: ClassVar[set[str]] = set()

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_HEAD(self) -> None:
        self._read(with_body=False)

    def do_GET(self) -> None:
        path, query = self._asked()
        if "list-type" in query or "delimiter" in query:
            return self._list(path, query)
        return self._read(with_body=True)

    def do_PUT(self) -> None:
        path, _ = self._asked()
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(self._chunks())
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        encoding = self.headers.get("Content-Encoding") or ""
        if "aws-chunked" in encoding:
            body = _without_signatures(body)
        self.objects[path] = body
        self._answer(200)

    def do_DELETE(self) -> None:
        path, _ = self._asked()
        self.objects.pop(path, None)
        self._answer(204)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(501)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        asked = urlsplit(self.path)
        self.requests.append(f"{self.command} {asked.path}")
        return unquote(asked.path).strip("/"), parse_qs(asked.query, keep_blank_values=True)

    def _read(self, *, with_body: bool) -> None:
        path = self._asked()[0] if not with_body else unquote(urlsplit(self.path).path).strip("/")
        if path in self.buckets:
            return self._answer(200)
        data = self.objects.get(path)
        if data is None:
            body = b"<Error><Code>NoSuchKey</Code></Error>" if with_body else b""
            return self._answer(404, body)
        status, headers = 200, {"Last-Modified": "Sat, 28 Nov 2026 02:00:00 GMT", "ETag": '"1"'}
        if wanted := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            start, end = int(wanted[1]), int(wanted[2] or len(data) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
            status, data = 206, data[start : end + 1]
        return self._answer(status, data, headers, with_body=with_body)

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        prefix = query.get("prefix", [""])[0]
        found = "".join(
            f"<Contents><Key>{name}</Key><Size>{len(data)}</Size>"
            "<LastModified>2026-11-28T02:00:00.000Z</LastModified></Contents>"
            for path, data in sorted(self.objects.items())
            for name in [path.removeprefix(f"{bucket}/")]
            if name != path and name.startswith(prefix) and "/" not in name[len(prefix) :]
        )
        self._answer(200, f"<ListBucketResult>{found}</ListBucketResult>".encode())

    def _answer(
        self,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        with_body: bool = True,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body and status != 204:
            self.wfile.write(body)


def _without_signatures(body: bytes) -> bytes:
    """Returns what was sent in pieces of which each says its length and who signed it."""
    found = b""
    while body:
        head, _, body = body.partition(b"\r\n")
        size = int(head.split(b";")[0], 16)
        if not size:
            break
        found, body = found + body[:size], body[size + 2 :]
    return found


@contextmanager
def s3_server(bucket: str) -> Iterator[tuple[str, dict[str, bytes], list[str]]]:
    """Serves a bucket: a URL with a place for a folder, its objects, and what was asked for."""
    handler = type("Handler", (_Handler,), {"objects": {}, "requests": [], "buckets": {bucket}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    place = f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=us-east-1"
    try:
        yield f"s3://key:word@{bucket}/{{}}?{place}", handler.objects, handler.requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
