# SPDX-License-Identifier: Apache-2.0
"""Arguments of HTTP functions: what is refused before anything starts, and what travels."""

import pickle

import pyarrow as pa
import pytest

import sparkawait as sa

URL = "https://example.com/{id}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"returns": "xml"}, "`returns` must be one of"),
        ({"how": "outer"}, "`how` must be one of"),
        ({"connections": 0}, "`connections` must be an int of at least 1"),
        ({"json": 1, "body": "x"}, "exclude each other"),
        ({"json": {"a": object()}}, "no JSON value"),
        ({"paths": {"other": "$.x"}}, "`paths` names column `other`"),
        ({"status": "x"}, "column `x` is returned twice"),
        ({"missing": (4,)}, "a status must be a number"),
        ({"private_key": "key.pem"}, "`private_key` needs `certificate`"),
        ({"read_timeout": "-1s"}, "read_timeout"),
        ({"color": "red"}, "no option `color`"),
        ({"query": {"a": "{"}}, "`query`"),
        ({"idempotency_key": 7}, "`idempotency_key` must be"),
    ],
)
def test_wrong_options_are_refused_at_once(options, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.http.get(URL, "x string", **options)


def test_json_needs_a_schema():
    with pytest.raises(sa.ConfigurationError, match="`schema` is needed"):
        sa.http.get(URL)


def test_the_columns_that_go_in_and_come_out_are_known():
    function = sa.http.request(
        "put",
        URL,
        "x string",
        query={"q": "{q}"},
        headers={"A": "{h} {id}"},
        json={"a": ["{j}"]},
        idempotency_key="{k}",
        status="code",
        response_headers={"tag": "ETag"},
    )

    assert function.input_columns == ("id", "q", "h", "j", "k")
    assert function.name == "http.put"
    columns = [("x", pa.string()), ("code", pa.int32()), ("tag", pa.string())]
    assert function.result_schema == pa.schema(columns)


def test_no_secret_is_pickled_or_shown(monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cret")
    token = sa.secret("TOKEN", prefix="Bearer ")
    function = sa.http.get(URL, "x string", headers={"Authorization": token})

    again = pickle.loads(pickle.dumps(function))  # noqa: S301 - its own

    assert again == function
    assert b"s3cret" not in pickle.dumps(function)
    assert "s3cret" not in repr(function)
    assert again._description(retry_misses=False)["headers"] == [["Authorization", "Bearer s3cret"]]
