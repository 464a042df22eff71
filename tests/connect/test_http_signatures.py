# SPDX-License-Identifier: Apache-2.0
"""Signatures of AWS, compared with those that the signer of its SDKs makes of the same requests."""

from __future__ import annotations

import io
import json
import random
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from awscrt import auth, http

import sparkawait as sa
from tests.support.batches import serve
from tests.support.scripted_server import Request

KEYS = {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "wJalr/+XUtnFEMI=="}
SESSION = {"SessionToken": "FwoGZXIvYXdz+/=="}
ROWS = 331
PIECES = [
    "a",
    "Z9",
    "-._~",
    " ",
    "+",
    "%2F",
    "%20",
    "%7e",
    "é",
    "日本",
    "%C3%A9",
    "(x)",
    "*'!$,;:@",
]
SEGMENTS = [*PIECES, "", ".", "..", "a b", "v=1"]
NOTES = ["plain", "two  spaces   and more", "a, b", '"a   b"', "x=1;  y=2"]
NAMES = ["x", "X", "a b", "a-b", "é", "list-type", "x%20y", "z~"]


def some(draw: random.Random, pieces: list[str], most: int) -> str:
    return "".join(draw.choices(pieces, k=draw.randint(0, most)))


def target_of(draw: random.Random) -> str:
    """A path and a query, some names of it more than once, some values empty or absent."""
    path = "/".join(draw.choice(SEGMENTS) for _ in range(draw.randint(0, 5)))
    pairs = []
    for _ in range(draw.randint(0, 5)):
        name, value = draw.choice(NAMES), some(draw, PIECES, 2)
        pairs.append(draw.choice([name, f"{name}=", f"{name}={value}"]))
    # An address must not end with a space.
    return (f"/{path}" + ("?" + "&".join(pairs) if pairs else "")).rstrip()


def signed_by_the_sdk(request: Request, service: str, token: str | None) -> str:
    """The header `Authorization` that the signer of the SDKs makes of a request that was sent."""
    is_s3 = service == "s3"
    added = {"x-amz-date", "x-amz-security-token", "x-amz-content-sha256"}
    headers = [
        (name, value)
        for name, value in request.headers.items()
        if name in {"host", "content-type"} or (name.startswith("x-amz-") and name not in added)
    ]
    date = datetime.strptime(request.headers["x-amz-date"] + "+0000", "%Y%m%dT%H%M%SZ%z")
    # OpenSearch Serverless wants the hash of the body, too.
    header = auth.AwsSignedBodyHeaderType
    is_hash_sent = is_s3 or service == "aoss"
    provider = auth.AwsCredentialsProvider.new_static(
        KEYS["AccessKeyId"], KEYS["SecretAccessKey"], token
    )
    config = auth.AwsSigningConfig(
        credentials_provider=provider,
        region="eu-central-1",
        service=service,
        date=date,
        use_double_uri_encode=not is_s3,
        should_normalize_uri_path=not is_s3,
        signed_body_header_type=(header.X_AMZ_CONTENT_SHA_256 if is_hash_sent else header.NONE),
    )
    body = io.BytesIO(request.body)
    sent = http.HttpRequest(request.method, request.target, http.HttpHeaders(headers), body)
    signed = auth.aws_sign_request(sent, config).result(20)
    return str(signed.headers.get("Authorization"))


def requests_of(draw: random.Random, url: str) -> pa.RecordBatch:
    """Rows with all that a request is made of."""
    columns = {
        "row": range(ROWS),
        "url": [url + target_of(draw) for _ in range(ROWS)],
        "first": [some(draw, PIECES, 4) or "x" for _ in range(ROWS)],
        "second": [some(draw, [*PIECES, "/", "/b"], 4) or "y" for _ in range(ROWS)],
        "name": [draw.choice(["a", "X", "x-ie"]) for _ in range(ROWS)],
        "note": [draw.choice(NOTES) for _ in range(ROWS)],
    }
    return pa.record_batch(columns)


def putting(url: str, keys: dict[str, str], **options: Any) -> Any:
    secret = sa.secret(provider=lambda: json.dumps(keys))
    return sa.http.request(
        "PUT",
        url,
        "v bigint",
        body="<{row}>",
        headers={"X-Amz-Meta-Note": "{note}", "Content-Type": "text/x; of={row}"},
        auth=sa.http.aws_sigv4(region="eu-central-1", credentials=secret, **options.pop("of")),
        client=sa.http.Client(proxy=False),
        **options,
    )


@pytest.mark.parametrize("more", [{}, SESSION], ids=["keys", "session"])
@pytest.mark.parametrize("service", ["execute-api", "s3", "aoss"])
def test_requests_are_signed_as_the_sdks_sign_them(service: str, more: dict[str, str]) -> None:
    draw = random.Random(20_271 + len(service))  # noqa: S311 - to be drawn again
    with serve(lambda *_: (200, {}, b'{"v": 7}')) as server:
        # S3 signs a path as it was sent; all of it is encoded where it comes from columns.
        of_s3 = f"{server.url}/{{first}}/{{+second}}?{{name}}={{first}}&x-id=PutObject"
        url, allowed = (of_s3, None) if service == "s3" else ("{url}", [server.url])
        function = putting(url, KEYS | more, of={"service": service}, allow_hosts=allowed)
        batch = requests_of(draw, server.url)
        options = {"timeout": "25s", "max_concurrency": 23, "retry": 0}
        found = pa.Table.from_batches(sa.arrow.ordered_wait([batch], function, **options))

    assert found.column("row").to_pylist() == list(range(ROWS))
    assert found.column("v").to_pylist() == [7] * ROWS
    assert len(server.requests) == ROWS
    for request in server.requests:
        expected = signed_by_the_sdk(request, service, more.get("SessionToken"))
        assert request.headers["authorization"] == expected, request.target
