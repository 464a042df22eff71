# SPDX-License-Identifier: Apache-2.0
"""Forms and files, compared with what httpx and requests send for the same fields."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pyarrow as pa
import pytest
import requests

import sparkawait as sa
from tests.support.batches import rows, serve
from tests.support.scripted_server import Request

URL = "http://host/"
CLIENT = sa.http.Client(proxy=False)
BYTES = b"\x00\xff\r\n--B\r\x1a\n"
COLUMNS: dict[str, list[Any]] = {
    "name": ["Ann & Bob", 'é "quoted"\n', None, ""],
    "n": [7, None, -13, 0],
    "scan": [BYTES, b"", None, b"x"],
}
BATCH = pa.RecordBatch.from_pydict(COLUMNS)


def sent(**options: Any) -> list[Request]:
    """Posts the rows one after the other; returns what came."""
    with serve(lambda *_: (204, {}, b"")) as server:
        options |= {"returns": "nothing", "status": "status", "client": CLIENT}
        made = rows(sa.http.post(server.url, **options), BATCH, max_concurrency=1)
        assert len(made) == BATCH.num_rows
        return server.requests


def given(row: int, **values: str) -> dict[str, Any]:
    """Returns fields by name, without those that are null."""
    found = {name: COLUMNS[column][row] for name, column in values.items()}
    return {name: str(it) for name, it in found.items() if it is not None}


def test_a_form_says_what_httpx_and_requests_say():
    form = {"who is": "{name}", "n": "{n}", "static": "a+b=c&d {{}}"}

    for row, request in enumerate(sent(form=form)):
        fields = {**given(row, **{"who is": "name", "n": "n"}), "static": "a+b=c&d {}"}
        theirs = [httpx.Request("POST", URL, data=fields)]
        other = requests.Request("POST", URL, data=fields).prepare()
        texts = [theirs[0].content.decode(), str(other.body)]
        for text in texts:
            assert parse_qsl(request.body.decode(), True) == parse_qsl(text, True)
        kind = request.headers["content-type"]
        assert kind == theirs[0].headers["Content-Type"] == other.headers["Content-Type"]


PROMPT = 'Answer as {"mood": "good"} and {{nothing}} else; } {. '
SCHEMA = {"{n}": [{"pattern": "a{3}"}, {"n": 3.5, "of": None, "{": True}], "}": ("{name}",)}


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_literal_leaves_as_it_was_given_beside_columns(is_whole):
    schema, prompt = sa.http.literal(SCHEMA), sa.http.literal(PROMPT)
    asked = {"schema": schema, "prompt": prompt + "{n}", "n": "{n}", "key": prompt}
    requests = sent(json=schema if is_whole else asked)

    assert len(requests) == BATCH.num_rows
    for row, request in enumerate(requests):
        n = COLUMNS["n"][row]
        whole = {"schema": SCHEMA, "prompt": n and f"{PROMPT}{n}", "n": n, "key": PROMPT}
        if n == 0:
            whole["prompt"] = f"{PROMPT}0"
        theirs = httpx.Request("POST", URL, json=SCHEMA if is_whole else whole)
        assert json.loads(request.body) == json.loads(theirs.content)


def test_a_literal_may_be_a_header_a_part_of_the_address_and_a_whole_body():
    text = sa.http.literal("{x}")
    requests = sent(body=text + "{n}", headers={"X-Text": text}, query={"q": text})
    assert [request.body for request in requests] == [b"{x}7", b"{x}-13", b"{x}0"]
    assert {request.headers["x-text"] for request in requests} == {"{x}"}
    assert {request.target for request in requests} == {"/?q=%7Bx%7D"}


def test_a_parameter_of_a_query_says_what_httpx_says():
    query = {"filter": "name eq '{name}'", "q & a": "{n} {name}", "at": "12:00+01:00#a&b=c%20"}

    for row, request in enumerate(sent(query=query)):
        if None in (COLUMNS["name"][row], COLUMNS["n"][row]):
            continue
        name, n = COLUMNS["name"][row], COLUMNS["n"][row]
        said = {"filter": f"name eq '{name}'", "q & a": f"{n} {name}", "at": query["at"]}
        theirs = httpx.Request("POST", URL, params=said)
        assert parse_qsl(request.target.partition("?")[2], True) == list(said.items())
        assert parse_qsl(theirs.url.query.decode(), True) == list(said.items())


def test_braces_of_a_text_that_names_no_column_say_what_to_write():
    function = sa.http.post(URL, "x string", json={"prompt": 'as {"mood": "good"}'})
    with pytest.raises(sa.ConfigurationError, match=r"or sparkawait\.http\.literal\("):
        list(sa.arrow.ordered_wait([BATCH], function))


def plain(body: bytes, content_type: str) -> bytes:
    """Returns a body with a boundary that is the same in all."""
    (boundary,) = re.findall(r"^multipart/form-data; boundary=([0-9a-f]{32})$", content_type)
    assert body.count(boundary.encode()) == body.count(b"\r\n--" + boundary.encode()) + 1
    return body.replace(boundary.encode(), b"BOUNDARY")


def test_parts_and_files_are_those_of_httpx_and_requests_to_the_byte():
    parts = {
        "no\nte": "{name}",
        "n": "{n}",
        "scan": sa.http.file("{scan}", 'of "{n}".png', "image/png"),
    }

    for row, request in enumerate(sent(multipart=parts)):
        ours = plain(request.body, request.headers["content-type"])
        fields, scan = given(row, **{"no\nte": "name", "n": "n"}), COLUMNS["scan"][row]
        if scan is None or COLUMNS["n"][row] is None:
            # Without a file they would send a form.
            assert b"filename" not in ours
            assert ours.count(b"form-data") == len(fields)
            continue
        files = {"scan": (f'of "{COLUMNS["n"][row]}".png', scan, "image/png")}
        theirs = httpx.Request("POST", URL, data=fields, files=files)
        assert ours == plain(theirs.read(), theirs.headers["Content-Type"])
        other = requests.Request("POST", URL, data=fields, files=files).prepare()
        assert isinstance(other.body, bytes)
        assert ours == plain(other.body, other.headers["Content-Type"])


def test_each_task_has_a_boundary_that_nobody_can_know():
    found = {sent(multipart={"n": "{n}"})[0].headers["content-type"] for _ in range(3)}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"form": {}, "json": 1}, "`json` and `form` exclude each other"),
        ({"form": {}, "multipart": {}}, "`form` and `multipart` exclude each other"),
        ({"form": "a=b"}, "`form` must be a mapping"),
        ({"form": {"a": 7}}, '`form["a"]` must be a text with columns in braces'),
        ({"form": {"a": "{"}}, '`form["a"]`: `{` without `}`'),
        ({"multipart": {"a": b"x"}}, "`multipart` must be a text with columns in braces"),
        ({"multipart": {}, "headers": {"content-Type": "x"}}, "leave it out of `headers`"),
    ],
)
def test_a_body_that_cannot_be_sent_is_refused_at_once(options, words):
    with pytest.raises(sa.ConfigurationError, match=re.escape(words)):
        sa.http.post(URL, returns="nothing", status="s", **options)


def test_a_file_has_a_type_that_a_header_may_have():
    with pytest.raises(sa.ConfigurationError, match="characters that no header may have"):
        sa.http.file("{a}", "a", "text/plain\r\nX: y")


def test_columns_of_fields_are_read_and_their_secrets_need_a_host():
    parts = {"a": "{x}", "b": sa.http.file("{y}", "{z}.png")}
    function = sa.http.post(URL, returns="nothing", status="s", multipart=parts)
    assert function.input_columns == ("x", "y", "z")
    for body in ({"form": {"k": sa.secret("KEY")}}, {"multipart": {"k": sa.secret("KEY")}}):
        with pytest.raises(sa.ConfigurationError, match="the secret in the body"):
            sa.http.post("https://{host}/", returns="nothing", status="s", **body)
