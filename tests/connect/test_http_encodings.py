# SPDX-License-Identifier: Apache-2.0
"""Responses in each encoding that is asked for, and texts in each charset."""

from __future__ import annotations

import gzip
import json
import random
import zlib

import httpx
import pytest

import sparkawait as sa
from tests.support.batches import rows, serve
from tests.support.scripted_server import Answer, Request

TEXT = random.Random(7).choices(["a", "ü", "word ", "\n", "0123456789"], k=100_003)  # noqa: S311 - no secret
DOCUMENT = json.dumps({"v": "".join(TEXT)}).encode()


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
        ("identity,deflate, x-gzip ,", gzip.compress(zlib.compress(DOCUMENT))),
        ("gzip", gzip.compress(DOCUMENT) + bytes(4099)),
        ("utf-8", DOCUMENT),
    ],
)
def test_a_packed_response_is_read_as_what_it_was(encoding, body):
    made, server = found(encoding, body)

    assert [row["v"] for row in made] == ["".join(TEXT)] * 3
    assert {it.headers["accept-encoding"] for it in server.requests} == {"gzip, deflate"}


ENCODINGS = {gzip.compress: "gzip", zlib.compress: "deflate"}


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


@pytest.mark.parametrize("coding", ["x-own", "br", "zstd"])
@pytest.mark.parametrize("returns", [None, "text", "bytes"])
def test_a_body_in_a_coding_that_nobody_knows_fails_its_row_by_that_name(returns, coding):
    headers = {"Content-Encoding": f"gzip, {coding}"}
    with serve(lambda *_: (200, headers, gzip.compress(DOCUMENT))) as server:
        client = sa.http.Client(proxy=False)
        kind = {"returns": returns} if returns else {"schema": "v string"}
        function = sa.http.get(f"{server.url}/{{x}}", client=client, **kind)
        made = rows(function, [1, 2, 3], on_error="capture", retry=2)

    assert [row["x"] for row in made] == [1, 2, 3]
    for row in made:
        assert f"`Content-Encoding: {coding}`" in row["error"]["message"]
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


@pytest.mark.parametrize(
    "charset", ["utf-8", "ISO-8859-1", "latin1", "utf-16", "UTF-16LE", "utf-16be"]
)
def test_texts_are_read_in_their_charset_as_httpx_reads_them(charset):
    text = "M\u00fcller \u00e9\u00bf"
    document = json.dumps({"v": text}, ensure_ascii=False)
    client = sa.http.Client(proxy=False)

    def reply(request: Request, _: int) -> Answer:
        body = document if request.target.startswith("/json") else text
        return 200, {"Content-Type": f"text/plain; charset={charset}"}, body.encode(charset)

    with serve(reply) as server:
        read = sa.http.get(f"{server.url}/text/{{x}}", returns="text", client=client)
        parsed = sa.http.get(f"{server.url}/json/{{x}}", "v string", client=client)
        raw_body = sa.http.get(f"{server.url}/text/{{x}}", returns="bytes", client=client)
        found = [rows(it, [7])[0] for it in (read, parsed, raw_body)]
        of_httpx = httpx.get(f"{server.url}/text/7", trust_env=False).text

    assert found[0]["body"] == of_httpx == text
    assert found[1]["v"] == text
    assert found[2]["body"] == text.encode(charset)


def test_a_charset_that_is_not_known_here_fails_its_row_by_name():
    headers = {"Content-Type": "text/plain; charset=shift_jis"}
    with serve(lambda *_: (200, headers, "\u65e5".encode("shift_jis"))) as server:
        function = sa.http.get(
            f"{server.url}/{{x}}", returns="text", client=sa.http.Client(proxy=False)
        )
        made = rows(function, [1, 2, 3], on_error="capture")

    assert [row["x"] for row in made] == [1, 2, 3]
    for row in made:
        assert "`charset=shift_jis`" in row["error"]["message"]
        assert 'returns="bytes"' in row["error"]["message"]
