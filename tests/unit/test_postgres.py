# SPDX-License-Identifier: Apache-2.0
"""Arguments of `postgres.lookup`: what is refused before anything starts, and what travels."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait.exceptions import ErrorKind
from tests.support.servers import free_port

DSN = "postgresql://reader:s3cret@db:5432/shop"
SQL = "select name, tier from customers where id = $1"
TWO = "select name, n from customers where id = $1 and town = $2"


def lookup(dsn=DSN, statement=SQL, args=("id",), **options):
    return sa.postgres.lookup(dsn, statement, args, **{"schema": "name string"} | options)


def described(function, *, retry_misses=False) -> dict:
    return json.loads(json.dumps(function.description(retry_misses=retry_misses)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dsn": ""}, "`dsn` must be a str that is not empty, or a secret, got an empty str"),
        ({"dsn": None}, "`dsn` must be a str that is not empty, or a secret, got a `NoneType`"),
        (
            {"dsn": b"host=s3cret"},
            "`dsn` must be a str that is not empty, or a secret, got a `bytes`",
        ),
        ({"statement": " \n"}, "`statement` must be a str that is not empty, got ' \\n'"),
        ({"statement": 7}, "`statement` must be a str that is not empty, got 7"),
        ({"args": "id"}, "`args` must be a list of column names, at least one, got 'id'"),
        ({"args": []}, "`args` must be a list of column names, at least one, got []"),
        ({"args": ["id", 7]}, "`args` must be a list of column names, at least one, got ['id', 7]"),
        ({"args": None}, "`args` must be a list of column names, at least one, got None"),
        ({"how": "outer"}, "`how` must be one of 'left', 'inner', got 'outer'"),
        ({"batch": 0}, "`batch` must be an int of at least 1 or 'auto', got 0"),
        ({"batch": True}, "`batch` must be an int of at least 1 or 'auto', got True"),
        ({"batch": "most"}, "`batch` must be an int of at least 1 or 'auto', got 'most'"),
        ({"connections": 0}, "`connections` must be an int of at least 1, got 0"),
        ({"connections": 1.5}, "`connections` must be an int of at least 1, got 1.5"),
        ({"writes": "no"}, "`writes` must be a bool, or 'idempotent', got 'no'"),
        ({"max_reply_bytes": 0}, "`max_reply_bytes` must be at least 1 byte, got 0"),
        ({"prepare": None}, "`prepare` must be a bool, got None"),
        ({"null_args": "skip"}, "`null_args` must be one of 'miss', 'call', got 'skip'"),
        ({"private_key": "a.key"}, "`private_key` needs `certificate`"),
    ],
)
def test_a_wrong_argument_is_refused_with_its_rule(arguments, message):
    with pytest.raises(sa.ConfigurationError) as caught:
        lookup(**arguments)
    assert str(caught.value) == message
    assert caught.value.kind is ErrorKind.OPTION_INVALID


@pytest.mark.parametrize(
    ("options", "message", "kind"),
    [
        ({"connect_timeout": 0}, "`connect_timeout` must be positive", "timeout-not-positive"),
        ({"statement_timeout": "0s"}, "None leaves it to the server", "timeout-not-positive"),
        (
            {"statement_timeout": "soon"},
            "`statement_timeout` is not a duration",
            "duration-invalid",
        ),
        ({"schema": "name"}, "`schema`", "schema-invalid"),
        ({"schema": "a int, a int"}, "`schema` has column `a` twice", "schema-invalid"),
    ],
)
def test_a_wrong_duration_or_schema_is_refused(options, message, kind):
    with pytest.raises(sa.ConfigurationError, match=message) as caught:
        lookup(**options)
    assert caught.value.kind.value == kind


def test_what_it_reads_and_returns_is_known_when_it_is_made():
    function = lookup(statement=TWO, args=["b", "a"], schema="name string not null, n int")

    assert function.name == "postgres.lookup"
    assert function.input_columns == ("b", "a")
    assert function.result_schema == pa.schema([("name", pa.string()), ("n", pa.int32())])


def test_it_shows_the_statement_and_never_the_address():
    function = lookup()
    assert repr(function) == f"postgres.lookup({SQL!r}, args=['id'])"
    assert "s3cret" not in str(function)


def test_no_secret_is_pickled(monkeypatch):
    monkeypatch.setenv("PG_TEST_DSN", DSN)
    function = lookup(sa.secret("PG_TEST_DSN"))

    again = pickle.loads(pickle.dumps(function))  # noqa: S301 - its own

    assert b"s3cret" not in pickle.dumps(function)
    assert (again, again.result_schema) == (function, function.result_schema)
    assert described(again)["server"]["dsn"] == DSN


def test_the_description_has_all_that_the_executor_needs():
    function = lookup(
        statement=TWO,
        args=["id", "day"],
        how="inner",
        batch=7,
        connections=2,
        connect_timeout="500ms",
        statement_timeout=timedelta(seconds=2),
        writes=True,
    )
    description = described(function, retry_misses=True)
    server = description.pop("server")
    wanted = {"connect_seconds": 0.5, "statement_seconds": 2.0, "writes": True, "connections": 2}
    assert server.items() >= ({"dsn": DSN} | wanted).items()
    assert description == {
        "statement": TWO,
        "args": ["id", "day"],
        "misses": {"how": "inner", "retry": True},
        "null_args": "miss",
        "batch": 7,
        "max_reply_bytes": 64 << 20,
        "parameters": [],
        "required": [],
    }


def test_the_usual_description():
    function = described(lookup(statement_timeout=None))
    usual = {"connect_seconds": 10.0, "statement_seconds": None, "writes": False, "connections": 4}
    assert function["server"].items() >= usual.items()
    assert (function["batch"], function["misses"]) == (1000, {"how": "left", "retry": False})


def test_certificates_are_read_in_the_executor(tmp_path):
    ca = tmp_path / "ca.pem"
    function = lookup(ca=ca, certificate=sa.secret(file=str(tmp_path / "client.pem")))
    for name in ("ca", "client"):
        (tmp_path / f"{name}.pem").write_text(f"pem of {name}")

    tls = described(function)["server"]["tls"]

    assert tls == {"ca": "pem of ca", "certificate": "pem of client", "private_key": None}
    ca.unlink()
    with pytest.raises(sa.ConfigurationError, match=r"`ca` .*cannot be read: No such file"):
        function._native(retry_misses=False)


def test_without_a_schema_the_secret_has_to_be_known_on_the_driver(monkeypatch):
    monkeypatch.delenv("PG_TEST_DSN", raising=False)
    with pytest.raises(sa.ConfigurationError, match=r"`PG_TEST_DSN`.*; give schema=") as caught:
        lookup(sa.secret("PG_TEST_DSN"), schema=None)
    assert caught.value.kind is ErrorKind.SCHEMA_MISSING


def test_without_a_schema_the_server_has_to_answer_and_the_address_to_parse():
    for dsn, message in [
        (f"postgresql://u:s3cret@127.0.0.1:{free_port()}/db", r"refused.*give schema="),
        (
            "postgresql://u:s3cret:@db:port/x",
            "a port that is not a number up to 65535; write 'post",
        ),
        (
            "postgresql://u:s3cret@a:1,[::1]:99999/x",
            "a port that is not a number up to 65535; write",
        ),
        ("mysql://u:s3cret@db/x", "another scheme than `postgresql://`; write 'postgresql://user"),
        ("u:s3cret@db:5432", "has neither `postgresql://` nor `host=..`; write 'postgresql://user"),
        ("host=db sslrootcert=s3cret", "given by the argument `ca` here"),
        ("host=db password=s3cret gssencmode=disable", "has the option `gssencmode` of libpq"),
        ("postgresql://u:s3cret@db/x?service=prod", "has the option `service` of libpq"),
        ("host=db password=s3cret client_encoding = utf8", "the option `client_encoding` of libpq"),
        ("postgresql://u:s3cret@db/x?sslmode=allow", "another `sslmode` than disable, prefer, req"),
        # What only looks like an option is in a value.
        ("host=db password=s3cretservice=x user", "`dsn` does not parse"),
    ]:
        with pytest.raises(sa.ConfigurationError, match=message) as caught:
            lookup(dsn, schema=None)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "count"), [("select $1::int + $2::int as x", 2), ("select $3 as x -- $7", 3)]
)
def test_a_placeholder_without_an_argument_is_told_before_anybody_is_asked(statement, count):
    with pytest.raises(sa.ConfigurationError, match=f"{count} placeholders and `args` names 1 c"):
        lookup(statement=statement, args=["a"])

    assert lookup(statement="select '$2', \"$3\", $1 -- $7", args=["a"]).args == ("a",)


@pytest.mark.parametrize("name", ["host", "user", "sslmode", "database"])
def test_what_stands_in_the_address_is_no_option(name):
    with pytest.raises(sa.ConfigurationError, match=f"unknown option `{name}`; it stands in `dsn`"):
        lookup(**{name: "x"})
