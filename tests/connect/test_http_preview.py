# SPDX-License-Identifier: Apache-2.0
"""`sa.http.preview`: one call, its answer, and what the function makes of it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait.connectors.http_preview import _walk
from tests.support.scripted_server import ScriptedServer

CLIENT = sa.http.Client(proxy=False)
ANSWER = {"choices": [{"index": 0, "message": {"content": "good", "none": None}}]}
TEXT = json.dumps(ANSWER)


def serving(status=200, body=TEXT, headers=None):
    return ScriptedServer(lambda target, before: (status, headers or {}, body.encode()))


def preview(capsys, row, function) -> list[str]:
    sa.http.preview(row, function)
    return capsys.readouterr().out.splitlines()


def test_one_call_shows_the_answer_and_what_a_path_that_is_wrong_ends_at(capsys):
    paths = {
        "mood": "$.choices[0].message.content",
        "typo": "$.choices[0].mesage.content",
        "none": "$.choices[0].message.none",
    }
    with serving() as server:
        ask = sa.http.post(
            server.url + "/{id}",
            "mood string, typo string, none int",
            json={"text": "{text}"},
            paths=paths,
            client=CLIENT,
        )
        lines = preview(capsys, {"id": 7, "text": "so so", "other": None}, ask)

    assert [json.loads(it.body) for it in server.requests] == [{"text": "so so"}]
    assert lines == [
        "http.post for id=7, text='so so'",
        f"answered 200 OK, {len(TEXT)} bytes:",
        f"  {TEXT}",
        "columns:",
        "  mood: string = 'good'",
        (
            "  typo: string = None, because there is nothing at `$.choices[0].mesage.content`:"
            " `$.choices[0]` has `index`, `message`"
        ),
        "  none: int = None",
    ]


@pytest.mark.parametrize("form", [pa.Table.from_batches, lambda batches: batches[0]])
def test_of_a_table_the_first_row_is_asked_for(capsys, form):
    rows = form([pa.record_batch({"id": [7, 11]})])
    with serving(200, '{"n": 3}') as server:
        lines = preview(capsys, rows, sa.http.get(server.url + "/{id}", "n int", client=CLIENT))
        none = rows.slice(2)
        with pytest.raises(sa.ConfigurationError, match="no row to make a call for"):
            sa.http.preview(none, sa.http.get(server.url + "/{id}", "n int", client=CLIENT))

    assert server.targets == ["/7"]
    assert (lines[0], lines[-1]) == ("http.get for id=7", "  n: int = 3")


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_refusal_is_shown_with_its_text_and_costs_one_call(capsys, status):
    with serving(status, "wrong key") as server:
        lines = preview(capsys, {"id": 1}, sa.http.get(server.url, "n int", client=CLIENT))

    assert len(server.requests) == 1
    assert (lines[1].split(",")[0][:12], lines[2]) == (f"answered {status}", "  wrong key")
    assert lines[3].startswith("the row fails (")
    assert f"answered {status}" in lines[3]


@pytest.mark.parametrize(
    ("url", "place"),
    [("{server}/a", None), ("http://{host}:{port}/a", "the service"), ("{address}", "the service")],
)
def test_a_row_that_fails_names_the_service_and_not_the_relay(capsys, url, place):
    """The relay has another port in each run."""
    with serving(200, '{"n": "seven"}') as server:
        host = server.url.removeprefix("http://")
        url = url.replace("{server}", server.url).replace("{port}", host.partition(":")[2])
        client, allowed = CLIENT, {"allow_hosts": [server.url]} if place else {}
        ask = sa.http.get(url, "n int", client=client, **allowed)
        row = {"id": 1, "host": "localhost", "address": f"{server.url}/a"}
        lines = preview(capsys, row, ask)

    assert lines[-1].startswith("the row fails (")
    assert f"`{place or host}`" in lines[-1]
    assert "127.0.0.1" not in lines[-1]


def test_a_miss_and_a_header_and_rows_of_an_array_are_shown(capsys):
    rows = json.dumps({"items": [{"n": 1}, {"m": 2}]})
    left = "13 €".encode().decode("latin-1")  # as it is sent, a character for each byte
    with serving(404) as missing, serving(200, rows, {"X-Left": left}) as server:
        miss = preview(capsys, {"id": 1}, sa.http.get(missing.url, "n int", client=CLIENT))
        options = {"status": "code", "response_headers": {"left": "X-Left"}, "rows": "$.items"}
        found = sa.http.get(server.url, "n int", client=CLIENT, **options)
        lines = preview(capsys, {"id": 1}, found)

    assert miss[-1] == "a miss, as `missing` says of 404: the columns are null"
    assert lines[3:] == [
        "columns of row 1 of 2:",
        "  n: int = 1",
        "  code: int = 200",
        "  left: string = '13 €'",
        "columns of row 2 of 2:",
        "  n: int = None, because there is nothing at `$.n`: `$.items[1]` has `m`",
        "  code: int = 200",
        "  left: string = '13 €'",
    ]


def test_a_batched_function_asks_for_one_row(capsys):
    with serving(200, json.dumps({"data": [{"index": 0, "v": 0.5}]})) as server:
        embed = sa.http.post(
            server.url,
            "v double",
            json={"input": sa.http.each("{text}")},
            rows="data",
            items=sa.http.items(id="index"),
            batch=64,
            client=CLIENT,
        )
        lines = preview(capsys, {"text": "a"}, embed)

    assert [json.loads(it.body) for it in server.requests] == [{"input": ["a"]}]
    assert lines[-2:] == ["columns:", "  v: double = 0.5"]


def test_no_answer_and_no_call_are_told(capsys):
    nowhere = sa.http.get("http://no-such-host.invalid/{id}", "n int", client=CLIENT)
    unreached = preview(capsys, {"id": 1}, nowhere)[1]
    assert "no answer: `no-such-host.invalid`: no connection" in unreached
    assert "a column of the request is null" in preview(capsys, {"id": None}, nowhere)[1]


@pytest.mark.parametrize(
    ("rows", "function", "message"),
    [
        ({"id": 1}, len, "`function` must be made by sparkawait.http"),
        ([1], sa.http.get("http://h/{id}", "n int"), "`rows` must be a DataFrame of Spark"),
        ({"x": 1}, sa.http.get("http://h/{id}", "n int"), "names column `id`"),
        (
            {"x": 1},
            sa.http.post("http://h", "n int", body=sa.http.lines("{x}"), batch=3),
            "cannot show a function whose `body`",
        ),
    ],
)
def test_what_cannot_be_previewed_is_refused(rows, function, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        sa.http.preview(rows, function)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.b[1]", (3, True, ".a.b[1]", "")),
        ("$['a']['odd.name']", (None, True, ".a.odd.name", "")),
        ("$.a.b[7]", (None, False, ".a.b", "is an array of 2")),
        ("$.a.c", (None, False, ".a", "has `b`, `odd.name`")),
        ("$.a.b[0].x", (None, False, ".a.b[0]", "is 2")),
    ],
)
def test_a_path_is_followed_as_far_as_there_is_something(path, expected):
    document = {"a": {"b": [2, 3], "odd.name": None}}
    assert _walk(document, path) == expected
