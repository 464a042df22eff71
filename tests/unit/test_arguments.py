# SPDX-License-Identifier: Apache-2.0
"""Arguments that only an executor would have found wrong are refused where they are given."""

import json

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import http, postgres, redis
from sparkawait._checks import shown
from sparkawait._plan.resolve import resolve_unpickled

URL = "https://host/{id}"
REDIS = "redis://host"
DEEP = json.loads("[" * 200 + "]" * 200)


def lookup(**options):
    arguments = {"dsn": "host=db", "statement": "select 1 as x where 1 = $1", "args": ["id"]}
    return postgres.lookup(**{**arguments, "schema": "x int", **options})


def get(client=None, **options):
    client = client and http.Client(**client)
    return http.get(**{"url": URL, "schema": "x int", "client": client, **options})


def redis_get(**options):
    return redis.get(**{"url": REDIS, "key": "{id}", "schema": "x int", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": None}, "`url` must be a text"),
        ({"url": ""}, "`url` must be the address of a host"),
        ({"url": "htp://host/{id}"}, "begins with `http://` or `https://`"),
        ({"url": "host/{id}"}, "begins with `http://` or `https://`"),
        ({"url": "https://"}, "`url` must be the address of a host"),
        ({"url": "https://host:port/{id}"}, "`url` must be the address of a host"),
        ({"url": "https://{a"}, "`{` without `}`"),
        ({"rows": "$..x"}, "is not a JSON path"),
        ({"rows": 5}, "`rows` must be a str, got 5"),
        ({"paths": {"x": "$["}}, "is not a JSON path"),
        ({"paths": {"x": None}}, "`paths` must be a mapping to texts"),
        ({"headers": {"a b": "x"}}, "`a b` is not the name of a header"),
        ({"headers": {"X": "a\nb"}}, "has characters that no header may have"),
        ({"headers": {"X": 5}}, r'`headers\["X"\]` must be a text with columns in braces'),
        ({"headers": {5: "x"}}, "`headers` must be a mapping"),
        ({"headers": "X: y"}, "`headers` must be a mapping"),
        ({"schema": pa.int64()}, "`schema` is not a schema"),
        ({"response_headers": {"x": "a b"}}, "returned twice"),
        ({"response_headers": {"y": "a b"}}, "`a b` is not the name of a header"),
        ({"client": {"proxy": True}}, "`proxy` must be a URL"),
        ({"client": {"proxy": "htp://x"}}, "`proxy` must be the URL of a proxy"),
        ({"client": {"compressed": "no"}}, "`compressed` must be a bool, got 'no'"),
        ({"client": {"compressed": None}}, "`compressed` must be a bool, got None"),
        ({"success": None}, "`success` must be statuses"),
        ({"success": ()}, "`success` must have a status"),
        ({"missing": [None]}, "`missing` must be statuses"),
        ({"missing": "404"}, "`missing` must be statuses"),
        ({"status": False}, "`status` must be a str, got False"),
        ({"json": float("nan")}, "`json` holds nan"),
        ({"json": [10**5000]}, "`json` holds a number of more than 4096 bits"),
        ({"json": {"x": b""}}, "`json` holds a `bytes`"),
        ({"json": {1: 2}}, "`json` has the name 1"),
        ({"json": DEEP}, "`json` is nested more than"),
        ({"json": ["\ud800"]}, "lone surrogates"),
        ({"url": "https://host/\ud800"}, "lone surrogates"),
        ({"body": b"x"}, "`body` must be a text"),
        ({"max_requests": 10**9}, "`max_requests` must be at most 65535"),
        ({"max_requests": 10**5000}, "`max_requests` must be at most 65535, got 0x"),
        ({"client": {"max_reply_bytes": 2**70}}, "`max_reply_bytes` must be at most"),
        ({"client": {"read_timeout": 1e309}}, "`read_timeout` must be positive and finite"),
        ({"client": {"read_timeout": 10**400}}, "`read_timeout` must be positive and finite"),
        (
            {"client": {"connect_timeout": 1e300}},
            "`connect_timeout` must be at most 1e\\+14 seconds",
        ),
        ({"client": {"redirects": -1}}, "`redirects`"),
        ({"idempotency_key": 5}, "`idempotency_key` must be True or a template"),
        ({"client": {"ca": "-----BEGIN nothing"}}, "`ca` (is not PEM text|holds no certificate)"),
        ({"client": {"ca": ""}}, "`ca` must be the path of a PEM file"),
        ({"client": {"ca": "a\0b"}}, "`ca` must be the path of a PEM file"),
    ],
    ids=shown,
)
def test_wrong_arguments_of_http_are_refused_at_the_call(options, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        get(**options)


@pytest.mark.parametrize("method", [None, "", "ä", 5, "GET "])
def test_a_method_is_a_word(method):
    with pytest.raises(sa.ConfigurationError, match="`method` must be the name of an HTTP method"):
        http.request(method, URL, "x int")


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (404, (404,)),
        (range(404, 407), (404, 405, 406)),
        ([range(400, 405, 2), 410], (400, 402, 404, 410)),
        ((), ()),
    ],
)
def test_a_range_of_misses_is_all_of_its_statuses(missing, expected):
    assert get(missing=missing).options.missing == expected


def test_a_range_of_successes_keeps_its_step():
    assert get(success=[range(200, 300), range(400, 405, 2)]).options.success == (
        (200, 299),
        (400, 400),
        (402, 402),
        (404, 404),
    )


@pytest.mark.parametrize(
    "url",
    [
        "{url}",
        "{base}/items/{id}",
        "HTTPS://host",
        "http://{host}:{port}/",
        "https://host:8080?x={id}",
        "http://[::1]/{id}",
        "https://user:pass@host/",
    ],
)
def test_addresses_with_columns_are_not_refused(url):
    assert get(url=url).url == url


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": None}, "`url` must be text or a secret"),
        ({"url": "http://host"}, "got 'http'"),
        ({"url": "redis://host:port"}, "`url` must be like .*: a port is a number up to 65535"),
        ({"url": "redis://host:6379/x"}, "`url` must be like .*: its path is the number of a data"),
        (
            {"url": "host:6379"},
            "got text with another beginning; write redis://host:6379/0",
        ),
        ({"db": 3}, "unknown option `db`; write database=, or its number in the URL, as in redis:"),
        ({"port": 3}, "unknown option `port`; it stands in the URL, as in redis://host:6379/3"),
        ({"username": 5}, "`username` must be a str, got 5"),
        ({"password": 5}, "`password` must be a str or a secret, got a `int`"),
        ({"password": ""}, "`password` must be a str or a secret, got an empty str"),
        ({"cluster": None}, "`cluster` must be a bool, got None"),
        ({"database": 2**40}, "`database` must be at most"),
        ({"database": "0"}, "`database` must be an int"),
        ({"connections": 10**6}, "`connections` must be at most 1000, got 1000000"),
        ({"connect_timeout": 1e309}, "`connect_timeout` must be positive and finite"),
        ({"max_reply_bytes": 2**70}, "`max_reply_bytes` must be at most"),
        ({"how": []}, "`how` must be one of"),
        ({"key": None}, "`key` must be text with columns in braces, got None"),
        ({"key": "\ud800"}, "lone surrogates"),
        ({"ca": "-----BEGIN x"}, "need a `url` of `rediss://`"),
    ],
    ids=shown,
)
def test_wrong_arguments_of_redis_are_refused_at_the_call(options, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        redis_get(**options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: redis.mget(REDIS, None, schema="x int"), "`keys` must be a mapping or a sequence"),
        (lambda: redis.mget(REDIS, {1: "a"}, schema="x int"), "`keys` must be a mapping"),
        (lambda: redis.mget(REDIS, {"x": 1}, schema="x int"), "`keys` must be text with columns"),
        (lambda: redis.hash(REDIS, "k", schema="x int", fields=5), "`fields` must be a mapping"),
        (lambda: redis.hash(REDIS, "k", schema="x int", fields={"x": 5}), "`fields` must be a str"),
        (lambda: redis.json(REDIS, "k", schema="x int", paths=5), "`paths` must be a mapping"),
        (lambda: redis.json(REDIS, "k", schema="x int", paths={"y": "z"}), "`paths` names column"),
        (lambda: redis.json(REDIS, "k", schema="x int", rows="$["), "is not a JSON path"),
        (lambda: redis.json(REDIS, "k", schema="x int", stored=[]), "`stored` must be one of"),
        (lambda: redis.command(REDIS, None, schema="x int"), "`arguments` must be text"),
        (
            lambda: redis.command(REDIS, "GET", "k", schema="x int", explode=1),
            "`explode` must be a bool",
        ),
        (lambda: redis.command(REDIS, "SET", schema="x int", writes=1), "`writes` must be a bool"),
    ],
)
def test_wrong_arguments_of_redis_commands_are_refused_at_the_call(call, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dsn": "no such thing"}, "`dsn` has neither `postgresql://` nor `host=..`; write 'post"),
        ({"dsn": "host=a port=b"}, "`dsn` does not parse"),
        ({"connections": 10**9}, "`connections` must be at most 1000, got 1000000000"),
        ({"statement_timeout": "30d"}, "`statement_timeout` must be at most 24 days"),
        ({"connect_timeout": 1e309}, "`connect_timeout` must be positive and finite"),
        ({"args": ["\ud800"]}, "`args` must be a list of column names"),
        ({"args": {"id": 1}}, "`args` must be a list of column names"),
        ({"ca": "-----BEGIN x"}, "`ca`"),
    ],
    ids=shown,
)
def test_wrong_arguments_of_postgres_are_refused_at_the_call(options, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        lookup(**options)


def test_secrets_are_not_looked_up_on_the_driver(monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    there = sa.secret("NOWHERE")

    client = {"proxy": there, "ca": there, "certificate": there}
    get(url=there, headers={"X": there}, client=client, json=[there])
    redis_get(url=there, password=there, ca=there, certificate=there)
    lookup(dsn=there, ca=there, certificate=there, private_key="-----BEGIN x")


@pytest.mark.parametrize(
    ("function", "column"),
    [(get(), pa.list_(pa.int64())), (redis_get(), pa.struct([("x", pa.int64())]))],
)
def test_a_column_that_no_template_can_hold_is_refused_with_the_plan(function, column):
    schema = pa.schema([("id", column)])

    with pytest.raises(sa.ConfigurationError, match="names column `id`"):
        resolve_unpickled("ordered", function, input_schema=schema)
