# SPDX-License-Identifier: Apache-2.0
"""Lookups in Redis when something is wrong with the server: nothing is lost, errors are clear."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
import trustme

import sparkawait as sa
from sparkawait import redis
from tests.support.certificates import Certificates
from tests.support.redis_server import RedisServer
from tests.support.servers import free_port

PASSWORD = "not-for-logs"  # noqa: S105 - of a server of the tests
UNTIL_BACK = sa.retry.exponential_backoff(1000, "1ms", "50ms")


def lookup(function, rows, **options):
    batch = pa.RecordBatch.from_pylist(rows)
    out = sa.arrow.ordered_wait([batch], function, **options)
    return [row for batch in out for row in batch.to_pylist()]


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that sends the same bytes to whatever comes first, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(1 << 16)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(1 << 16):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_server_that_is_not_there_is_named():
    port = free_port()
    function = redis.get(f"redis://:{PASSWORD}@127.0.0.1:{port}", "{id}", schema="v string")
    with pytest.raises(sa.AsyncFunctionError, match=rf"127\.0\.0\.1:{port}") as raised:
        lookup(function, [{"id": 1}])
    assert "refused" in str(raised.value)
    assert PASSWORD not in str(raised.value)


def test_calls_wait_for_a_server_that_starts_late():
    server = RedisServer()
    function = redis.get(server.url, "{id}", schema="v string")
    starter = threading.Thread(target=server.start)
    starter.start()
    try:
        rows = lookup(function, [{"id": 1}, {"id": 2}], retry=UNTIL_BACK)
    finally:
        starter.join()
        server.__exit__()
    assert rows == [{"id": 1, "v": None}, {"id": 2, "v": None}]


def test_each_row_leaves_once_when_the_server_is_killed_and_comes_back():
    with RedisServer() as server:
        expected = [{"id": i, "v": i * 3} for i in range(5000)]
        commands = [["SET", f"k:{row['id']}", str(row["v"])] for row in expected]
        server.load(commands)

        def batches():
            for start in range(0, 5000, 500):
                if start in {1500, 3000}:
                    # At once: rows that wait for the server hold back the input behind them.
                    server.kill()
                    server.start()
                    server.load(commands)
                yield pa.RecordBatch.from_pylist([{"id": i} for i in range(start, start + 500)])

        function = redis.get(server.url, "k:{id}", schema="v bigint")
        retry = UNTIL_BACK.if_miss()  # while the server is empty
        out = sa.arrow.ordered_wait(batches(), function, max_concurrency=700, retry=retry)
        assert [row for batch in out for row in batch.to_pylist()] == expected


def test_a_stalled_server_is_the_rows_timeout():
    with RedisServer() as server:
        function = redis.get(server.url, "k", schema="v string")
        lookup(function, [{"id": 1}])
        server.pause()
        try:
            with pytest.raises(sa.exceptions.ElementTimeoutError):
                lookup(function, [{"id": 1}], timeout="50ms")
        finally:
            server.resume()


def test_a_server_that_is_silent_is_given_up(caplog):
    with RedisServer() as server:
        times = {"idle_timeout": "300ms", "connect_timeout": "1700ms"}
        function = redis.get(server.url, "k", schema="v string", **times)
        lookup(function, [{"id": 1}])
        server.pause()
        try:
            # The kept connection is given up, and nobody greets another one.
            with pytest.raises(sa.AsyncFunctionError, match=r"not ready within 1\.7s"):
                lookup(function, [{"id": 1}], retry=0)
            assert "silent for longer than `idle_timeout`" in caplog.text
        finally:
            server.resume()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a reply of Redis"),
        (b"$5\r\nhel", "closed"),
        (b"$99999999999999\r\n", "not a reply of Redis"),
        (b"", "closed"),
    ],
)
def test_garbage_ends_the_connection_and_may_be_retried(answer, reason):
    with answering(answer) as url:
        function = redis.get(url, "{id}", schema="v string")
        retry = sa.retry.fixed_delay(2, "1ms")
        (row,) = lookup(function, [{"id": 1}], retry=retry, on_error="capture")
    assert reason in row["error"]["message"]
    assert row["error"]["attempts"] == 3


def test_a_server_that_loads_its_data_may_be_retried():
    with answering(b"-LOADING Redis is loading the dataset in memory\r\n") as url:
        function = redis.get(url, "{id}", schema="v string")
        retry = sa.retry.fixed_delay(2, "1ms")
        (row,) = lookup(function, [{"id": 1}], retry=retry, on_error="capture")
    assert row["error"]["attempts"] == 3


def connections_received(server: RedisServer) -> int:
    return int(server.cli("info", "stats").partition("total_connections_received:")[2].split()[0])


def test_a_reply_that_is_too_long_fails_its_row_and_keeps_the_connection():
    with RedisServer() as server:
        server.load(
            [
                ["SET", "short", "x"],
                ["SETRANGE", "long", str(3 << 20), "x"],
                ["RPUSH", "list", *(["0123456789"] * 20_000)],
            ]
        )
        function = redis.get(server.url, "{key}", schema="v string", max_reply_bytes=1 << 16)
        keys = ["short", "long", "short", "none", "long", "short"]
        before = connections_received(server)
        rows = lookup(function, [{"key": key} for key in keys], on_error="capture")
        assert [row["v"] for row in rows] == ["x", None, "x", None, None, "x"]
        assert [row["error"] is None for row in rows] == [key != "long" for key in keys]
        assert "65536 bytes of `max_reply_bytes`" in rows[1]["error"]["message"]
        assert connections_received(server) == before + 2  # with that of the question itself

        items = redis.command(
            server.url, "LRANGE", "list", "0", "-1", schema="v string", max_reply_bytes=1 << 16
        )
        with pytest.raises(sa.AsyncFunctionError, match=r"1 attempt: .*max_reply_bytes"):
            lookup(items, [{"id": 1}], retry=sa.retry.fixed_delay(3, "1ms"))


def test_a_wrong_password_is_refused_for_good_and_not_told():
    with RedisServer("--requirepass", "right", cli=("-a", "right")) as server:
        retry = sa.retry.fixed_delay(5, "1ms")
        for password, code in ((PASSWORD, "WRONGPASS"), (None, "NOAUTH")):
            function = redis.get(server.url, "{id}", schema="v string", password=password)
            with pytest.raises(sa.AsyncFunctionError, match=f"1 attempt: .*{code}") as raised:
                lookup(function, [{"id": 1}], retry=retry)
            assert raised.value.kind is sa.exceptions.ErrorKind.UNAUTHORIZED
            assert PASSWORD not in str(raised.value) + repr(function)
        function = redis.get(server.url, "{id}", schema="v string", password="".join("right"))
        assert lookup(function, [{"id": 1}]) == [{"id": 1, "v": None}]


def test_a_user_may_only_do_what_its_rules_say(monkeypatch):
    with RedisServer() as server:
        server.cli("acl", "setuser", "reader", "on", ">secret", "~open:*", "+get")
        server.cli("set", "open:1", "x")
        monkeypatch.setenv("REDIS_TEST_PASSWORD", "secret")
        function = redis.get(
            server.url,
            "{key}",
            schema="v string",
            username="reader",
            password=sa.secret("REDIS_TEST_PASSWORD"),
        )
        assert b"'secret'" not in pickle.dumps(function)
        good, bad = lookup(function, [{"key": "open:1"}, {"key": "shut:1"}], on_error="capture")
    assert good["v"] == "x"
    assert "NOPERM" in bad["error"]["message"]
    assert bad["error"]["kind"] == "unauthorized"


def test_a_user_without_a_password_is_not_the_servers_default():
    with RedisServer() as server:
        server.cli("acl", "setuser", "reader", "on", "nopass", "~open:*", "+get")
        server.cli("mset", "open:1", "x", "shut:1", "top")
        for user, options in (("reader@", {}), ("reader:@", {}), ("", {"username": "reader"})):
            url = server.url.replace("redis://", f"redis://{user}")
            function = redis.get(url, "{key}", schema="v string", **options)
            keys = [{"key": "open:1"}, {"key": "shut:1"}]
            good, bad = lookup(function, keys, on_error="capture")
            assert (good["v"], bad["v"]) == ("x", None)
            assert "NOPERM" in bad["error"]["message"]


@pytest.mark.parametrize(
    "tail", ["/1?db=2", "?password=x", "?db=2&protocol=3", "?db=2&db=3", "?db=two"]
)
def test_what_an_address_says_is_used_or_refused(tail):
    with pytest.raises(sa.ConfigurationError, match=r"nothing is behind `[?]` but `db`"):
        lookup(redis.get(f"redis://localhost:1{tail}", "k", schema="v string"), [{"id": 1}])


def test_a_database_has_keys_of_its_own():
    with RedisServer() as server:
        server.cli("-n", "3", "set", "k", "three")
        for url, options in (
            (f"{server.url}/3", {}),
            (f"{server.url}?db=3", {}),
            (server.url, {"database": 3}),
        ):
            function = redis.get(url, "k", schema="v string", **options)
            assert lookup(function, [{"id": 1}]) == [{"id": 1, "v": "three"}]


def test_a_socket_of_the_machine_serves_too(tmp_path):
    path = tmp_path / "redis.sock"
    with RedisServer("--unixsocket", str(path)) as server:
        server.cli("set", "k", "x")
        function = redis.get(f"redis+unix://{path}", "k", schema="v string")
        assert lookup(function, [{"id": 1}]) == [{"id": 1, "v": "x"}]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_server(certificates) -> Iterator[RedisServer]:
    server, client = str(certificates.server_path), str(certificates.client_path)
    ca = str(certificates.ca_path)
    arguments = ["--tls-cert-file", server, "--tls-key-file", server, "--tls-ca-cert-file", ca]
    cli = ["--tls", "--cacert", ca, "--cert", client, "--key", client]
    with RedisServer(*arguments, cli=cli, tls=True) as running:
        running.cli("set", "k", "x")
        yield running


def test_tls_needs_the_authority_and_the_clients_certificate(tls_server, certificates):
    path = certificates.client_path
    given = {"ca": certificates.ca_path, "certificate": path, "private_key": path}
    rows = [{"id": i} for i in range(3000)]
    function = redis.get(tls_server.url, "k", schema="v string", **given)
    found = lookup(function, rows, max_concurrency=3000)
    assert found == [{"id": i, "v": "x"} for i in range(3000)]

    without_ca = {"certificate": path, "private_key": path}
    strange = redis.get(tls_server.url, "k", schema="v string", **without_ca)
    with pytest.raises(sa.AsyncFunctionError, match=r"1 attempt: .*certificate"):
        lookup(strange, rows[:1], retry=sa.retry.fixed_delay(3, "1ms"))

    unknown = redis.get(tls_server.url, "k", schema="v string", ca=given["ca"])
    with pytest.raises(sa.AsyncFunctionError, match="localhost"):
        lookup(unknown, rows[:1])


def test_verify_ca_takes_the_certificate_of_another_host_and_verify_full_does_not(tmp_path):
    authority, path = trustme.CA(), tmp_path / "server.pem"
    other = authority.issue_cert("cache.example.com")
    other.private_key_and_cert_chain_pem.write_to_path(path)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    files = ["--tls-cert-file", str(path), "--tls-key-file", str(path)]
    files += ["--tls-ca-cert-file", str(tmp_path / "ca.pem"), "--tls-auth-clients", "no"]
    with RedisServer(*files, cli=["--tls", "--insecure"], tls=True) as server:
        server.cli("set", "k", "x")

        def found(ca, sslmode):
            get = redis.get(server.url, "k", schema="v string", ca=ca, sslmode=sslmode)
            return lookup(get, [{"id": 7}], retry=sa.retry.fixed_delay(3, "1ms"))

        ca = authority.cert_pem.bytes().decode()
        assert found(ca, "verify-ca") == [{"id": 7, "v": "x"}]
        # Connections that check less serve nobody who wants more.
        with pytest.raises(sa.AsyncFunctionError, match=r"1 attempt: .*not valid for this name"):
            found(ca, "verify-full")
        with pytest.raises(sa.AsyncFunctionError, match=r"1 attempt: .*certificate"):
            found(trustme.CA().cert_pem.bytes().decode(), "verify-ca")


def test_verify_ca_needs_an_authority():
    with pytest.raises(sa.ConfigurationError, match="needs `ca`"):
        redis.get("rediss://host", "k", "v string", sslmode="verify-ca")
    with pytest.raises(sa.ConfigurationError, match="`sslmode` must be one of"):
        redis.get("rediss://host", "k", "v string", sslmode="require")
