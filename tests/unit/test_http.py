# SPDX-License-Identifier: Apache-2.0
"""Arguments of HTTP functions: what is refused before anything starts, and what travels."""

import pickle
import resource

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._checks import warn_once
from sparkawait._plan.resolve import resolve_unpickled

URL = "https://example.com/{id}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"returns": "xml"}, "`returns` must be one of"),
        ({"how": "outer"}, "`how` must be one of"),
        ({"max_requests": 0}, "`max_requests` must be an int of at least 1"),
        ({"json": 1, "body": "x"}, "exclude each other"),
        ({"json": {"a": object()}}, "not a JSON value"),
        ({"paths": {"other": "$.x"}}, "`paths` names column `other`"),
        ({"status": "x"}, "column `x` is returned twice"),
        ({"missing": (4,)}, "must be statuses from 100 to 999"),
        ({"client": {"private_key": "key.pem"}}, "`private_key` needs `certificate`"),
        ({"client": {"read_timeout": "-1s"}}, "read_timeout"),
        ({"color": "red"}, "unknown option `color`"),
        ({"query": {"a": "{"}}, r'`query\["a"\]`: `{` without `}`'),
        ({"query": {"a": 3}}, r'`query\["a"\]` must be a text with columns in braces'),
        ({"query": "a=3"}, "`query` must be a mapping, .*got a `str`"),
        ({"headers": {"a": None}}, r'`headers\["a"\]` must be a text'),
        ({"idempotency_key": 7}, "`idempotency_key` must be"),
    ],
)
def test_wrong_options_are_refused_at_once(options, words):
    def get(client=None, **options):
        client = client and sa.http.Client(**client)
        return sa.http.get(URL, "x string", client=client, **options)

    with pytest.raises(sa.ConfigurationError, match=words):
        get(**options)


FRAMING = [
    *("Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "TE"),
    *("Trailer", "Proxy-Connection", "Expect"),
]


@pytest.mark.parametrize("name", [*FRAMING, *map(str.lower, FRAMING), "CONTENT-LENGTH"])
@pytest.mark.parametrize("value", ["3", "{n}", sa.secret("LENGTH")], ids=repr)
def test_how_a_request_travels_is_for_the_client_to_say(name, value):
    with pytest.raises(sa.ConfigurationError) as info:
        sa.http.post(URL, "x string", headers={"X-A": "1", name: value}, body="{n}")

    message = str(info.value)
    assert f"`headers` has `{name}`, but the client itself says " in message
    assert "leave it out of `headers`" in message
    assert "LENGTH" not in message.replace(name, "")


def test_a_header_is_given_once_whatever_the_case_of_its_name():
    with pytest.raises(sa.ConfigurationError, match="`x-a` and `X-A`, which are the same header"):
        sa.http.get(URL, "x string", headers={"x-a": "1", "X-B": "2", "X-A": "{id}"})


def test_a_key_of_idempotency_is_given_once():
    headers = {"idempotency-key": "{id}"}
    with pytest.raises(sa.ConfigurationError, match="`Idempotency-Key` exclude each other"):
        sa.http.post(URL, "x string", headers=headers, idempotency_key=True)


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
    assert again.description()["headers"] == [("Authorization", "Bearer s3cret")]


@pytest.mark.parametrize(
    ("url", "columns"),
    [
        ("https://{region}.example.com:{port}/v1/{id}?q={q}", ("region", "port")),
        ("https://{host}?id={id}", ("host",)),
        ("https://example.com/{id}", ()),
        ("{address}/{id}", ()),
    ],
)
def test_the_host_of_a_request_is_its_channel_by_default(url, columns):
    assert sa.http.get(url, "name string").channel_columns == columns


def test_channels_without_a_column_go_by_the_host():
    function = sa.http.get("https://{host}/{id}", "name string")

    plan = resolve_unpickled("ordered", function, input_schema=None, channel=sa.Channel())

    assert plan.route == ("host",)
    assert plan.credits is not None


@pytest.mark.parametrize(
    ("options", "credits"),
    [
        ({"capacity": 1000}, (2, 80, 10)),
        ({"capacity": 1000, "max_concurrency": 50}, (1, 40, 5)),
        ({"capacity": 20}, (1, 10, 2)),
    ],
)
def test_credits_are_of_the_requests_that_there_may_be(options, credits):  # noqa: A002 - its name
    function = sa.http.get("https://{host}/{id}", "name string")

    plan = resolve_unpickled(
        "ordered", function, input_schema=None, channel=sa.Channel(), **options
    )

    assert plan.max_concurrency == min(options.get("max_concurrency", options["capacity"]), 100)
    assert plan.credits[:3] == credits


def test_credits_beyond_the_requests_that_there_may_be_are_refused():
    function = sa.http.get("https://{host}/{id}", "name string", max_requests=20)
    channel = sa.Channel(max_per_channel=50)

    with pytest.raises(sa.ConfigurationError, match=r"got 50 and 20; `http.get` .*`max_requests`"):
        resolve_unpickled("ordered", function, input_schema=None, channel=channel, capacity=1000)


def test_one_host_is_no_reason_for_channels():
    function = sa.http.get("https://example.com/{id}", "name string")

    with pytest.raises(sa.ConfigurationError, match="`channel` names no column, and"):
        resolve_unpickled("ordered", function, input_schema=None, channel=sa.Channel())


@pytest.mark.parametrize("url", ["{url}", "{base}/x", "https://{host}/x", "https://h:{port}/"])
@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"X-Api-Key": "k"}},
        {"headers": {"Accept": sa.secret("TOKEN")}},
        {"headers": {"User-Agent": "{id}"}},
        {"query": {"key": sa.secret("TOKEN")}},
        {"json": {"a": [sa.secret("TOKEN")]}},
        {"body": sa.secret("TOKEN")},
    ],
    ids=str,
)
def test_what_one_server_is_told_needs_the_hosts_that_rows_may_name(url, options):
    with pytest.raises(sa.ConfigurationError, match="allow_hosts="):
        sa.http.post(url, "x int", **options)

    hosts = ["api.example.com", ".example.org", "10.0.0.1:8080", "http://localhost:81"]
    assert sa.http.post(url, "x int", allow_hosts=hosts, **options).options.allow_hosts == (*hosts,)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("{url}", {}),
        ("{url}", {"headers": {"Accept": "text/x"}, "json": {"a": "{id}"}}),
        ("https://h/{id}?u=https://{host}/", {"headers": {"X-Api-Key": "k"}}),
        ("https://{user}:{word}@h/", {"headers": {"X-Api-Key": "k"}}),
    ],
)
def test_hosts_need_not_be_said_otherwise(url, options):
    assert sa.http.post(url, "x int", **options).options.allow_hosts is None


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("example.com", "must be a list of names of hosts, got 'example.com'"),
        ({"a": "b"}, "must be a list of names"),
        (5, "must be a list of names"),
        ([5], "`allow_hosts` must be a list of names of hosts, got 5"),
        ([""], "must be a list of names"),
        (["https://example.com/"], "takes names such as `api.example.com`"),
        (["ftp://example.com"], "takes names such as `api.example.com`"),
        (["*"], "takes names such as"),
        (["h:port"], "takes names such as"),
    ],
)
def test_hosts_are_names(hosts, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.http.get(URL, "x int", allow_hosts=hosts)


def test_a_name_in_front_of_the_host_needs_the_hosts_too():
    with pytest.raises(sa.ConfigurationError, match="the name or password in front of `@`"):
        sa.http.get("https://user:word@{host}/", "x int")


# -- how many requests there are at a time


def test_a_function_that_names_no_column_is_told(said):
    place = "7"
    sa.http.get(f"https://h/{place}", "x int")
    sa.redis.command("redis://h", "PING", schema="x string")
    [of_http, of_redis] = said()
    assert "`http.get` names no column, so all rows ask the same" in of_http
    assert "`redis.command` names no column" in of_redis


@pytest.mark.parametrize(
    "options",
    [
        {"query": {"id": "{id}"}},
        {"headers": {"x-id": "{id}"}},
        {"json": {"id": "{id}"}},
        {"body": "{id}"},
        {"form": {"id": "{id}"}},
        {"idempotency_key": "{id}"},
    ],
    ids=str,
)
def test_a_column_anywhere_in_a_request_tells_rows_apart(said, options):
    sa.http.post("https://h/ask", "x int", **options)
    sa.http.get("https://h/{id}", "x int")
    assert said() == []


@pytest.fixture
def said(caplog):
    warn_once.cache_clear()
    caplog.set_level("WARNING", "sparkawait")
    return lambda: [line.getMessage() for line in caplog.records]


def requests_of(files: int, monkeypatch, **asked) -> int:
    """Returns the requests of a task in a process that may have so many files open."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, 1 << 20))
    max_requests = {"max_requests": asked.pop("max_requests")} if "max_requests" in asked else {}
    function = sa.http.get("https://example.com/{id}", "name string", **max_requests)
    plan = resolve_unpickled("unordered", function, input_schema=None, **asked)
    return function.bounded(plan.max_concurrency, plan.capacity).options.max_requests


@pytest.mark.parametrize(
    ("asked", "files", "requests"),
    [
        ({}, 1024, 100),
        ({"max_concurrency": 499}, 1024, 499),
        ({"capacity": 5003}, 1 << 16, 100),
        ({"max_concurrency": 499, "max_requests": 97}, 1024, 97),
        ({"max_concurrency": 7, "max_requests": 97}, 1024, 7),
        ({"max_concurrency": 3001, "max_requests": 2999}, 1024, 2999),
        ({"max_concurrency": 1009}, resource.RLIM_INFINITY, 1009),
    ],
)
def test_requests_follow_max_concurrency(asked, files, requests, monkeypatch, said):
    assert requests_of(files, monkeypatch, **asked) == requests


@pytest.mark.parametrize(
    ("files", "requests"), [(1024, 512), (1 << 16, 1024), (resource.RLIM_INFINITY, 1024), (1, 1)]
)
def test_a_process_makes_no_more_requests_than_it_may_have_files(
    files, requests, monkeypatch, said
):
    for _ in range(2):
        assert requests_of(files, monkeypatch, max_concurrency=5003) == requests

    (line,) = said()
    assert f"`max_concurrency` is 5003, and this process makes at most {requests} HTTP" in line
    assert "set `max_requests=5003`" in line


def test_fewer_calls_than_were_asked_for_are_told_once(monkeypatch, said):
    for _ in range(2):
        requests_of(1024, monkeypatch, max_concurrency=499, max_requests=97)
        # Nobody asked for more.
        requests_of(1024, monkeypatch, max_requests=61)

    (line,) = said()
    assert line == (
        "`max_concurrency` is 499, but `http.get` has at most 97 calls in flight in a task, as its"
        " `max_requests` says: raise that, or ask for fewer"
    )
