# SPDX-License-Identifier: Apache-2.0
"""Which version of HTTP a host speaks is found by one connection, and nobody waits for it long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.certificates import Certificates
from tests.support.nginx import Nginx
from tests.support.relay import Relay, Spoil
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.servers import LOOPBACK

CALLS = 50
SAYS_PROTOCOL = 'location / { return 200 \'{"protocol": "$server_protocol"}\'; }'


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Front:
    """A relay before nginx that counts connections."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        self.directory = directory
        self.certificates = certificates
        self.numbers: set[int] = set()

    @contextmanager
    def before(
        self, server: str, *, listen: str = "", spoil: Spoil = lambda _, sent: sent
    ) -> Iterator[str]:
        """Serves ``server`` behind ``spoil``; gives the address."""

        def counted(number: int, sent: bytes) -> bytes | None:
            self.numbers.add(number)
            return spoil(number, sent)

        with (
            Nginx(self.directory, server, certificates=self.certificates, listen=listen) as nginx,
            Relay(nginx.port, counted) as relay,
        ):
            yield f"https://{LOOPBACK}:{relay.port}"

    def protocols(self, url: str, calls: int = CALLS, **options) -> list[str | None]:
        client = sa.http.Client(ca=self.certificates.ca, proxy=False)
        function = sa.http.get(f"{url}/{{id}}", "protocol string", client=client)
        rows = pa.RecordBatch.from_pydict({"id": list(range(calls))})
        options = {"max_concurrency": calls, "tuning": sa.Tuning(warm_up=False)} | options
        batches = sa.arrow.ordered_wait([rows], function, **options)
        return [row["protocol"] for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def front(tmp_path, certificates) -> Front:
    return Front(tmp_path, certificates)


def test_calls_that_start_together_share_one_connection_over_http2(front):
    with front.before(SAYS_PROTOCOL, listen="http2") as url:
        assert front.protocols(url) == ["HTTP/2.0"] * CALLS

    assert front.numbers == {0}


@pytest.mark.parametrize("version", ["1.1", "2", "auto"])
def test_a_host_that_rows_name_is_the_one_that_answers(tmp_path, certificates, version):
    server = """location / { return 200 '{"host": "$host", "spoken": "$server_protocol"}'; }"""
    with Nginx(tmp_path, server, certificates=certificates, listen="http2") as nginx:
        client = sa.http.Client(ca=certificates.ca, proxy=False, version=version)
        headers = {"Host": "{tenant}.example.com"}
        schema = "host string, spoken string"
        function = sa.http.get(f"{nginx.url}/{{tenant}}", schema, headers=headers, client=client)
        rows = pa.RecordBatch.from_pydict({"tenant": ["a", "b", "c"]})
        out = [row for it in sa.arrow.ordered_wait([rows], function) for row in it.to_pylist()]

    assert [row["host"] for row in out] == ["a.example.com", "b.example.com", "c.example.com"]
    assert {row["spoken"] for row in out} == {"HTTP/1.1" if version == "1.1" else "HTTP/2.0"}


def test_a_second_connection_over_http2_is_one_too(front):
    with front.before(SAYS_PROTOCOL, listen="http2") as url:
        # 100 of them fit on the first.
        assert front.protocols(url, 180) == ["HTTP/2.0"] * 180

    assert front.numbers <= {0, 1}


def test_over_http1_calls_do_not_wait_for_the_answer_to_the_first(front):
    release = threading.Event()

    def answer(target: str, _before: int) -> Answer:
        if target == "/0":
            release.wait(60)
        if target == f"/{CALLS - 1}":
            release.set()
        return 200, {}, b'{"protocol": "HTTP/1.1"}'

    with ScriptedServer(answer) as behind:
        server = f"location / {{ proxy_pass {behind.url}; }}"
        with front.before(server) as url:
            # The answer to the first call leaves once the last one has come.
            assert front.protocols(url) == ["HTTP/1.1"] * CALLS


@pytest.mark.parametrize("listen", ["", "http2"])
def test_a_first_connection_that_stalls_holds_up_no_later_call(front, listen):
    release = threading.Event()

    def stall_first(number: int, sent: bytes) -> bytes:
        if number == 0:
            release.wait(60)
        return sent

    with front.before(SAYS_PROTOCOL, listen=listen, spoil=stall_first) as url:
        found = front.protocols(url, on_error="null", timeout="5s")
        release.set()

    assert len([protocol for protocol in found if protocol]) >= CALLS - 1


def slow_logins(number_of: set[int]) -> Spoil:
    """Has the first that a server says over each connection wait for longer than an attempt may."""

    def slow(number: int, sent: bytes) -> bytes:
        if number not in number_of:
            number_of.add(number)
            threading.Event().wait(0.9)
        return sent

    return slow


@pytest.mark.parametrize("retry", [0, sa.retry.fixed_delay(12, "50ms")])
@pytest.mark.parametrize("listen", ["", "http2"])
def test_a_login_that_takes_longer_than_an_attempt_is_made_once_a_connection(front, listen, retry):
    logins: set[int] = set()
    options = {"attempt_timeout": "300ms", "retry": retry, "max_concurrency": 4}

    with front.before(SAYS_PROTOCOL, listen=listen, spoil=slow_logins(logins)) as url:
        found = front.protocols(url, 23, **options)

    assert found == ["HTTP/2.0" if listen else "HTTP/1.1"] * 23
    # 4 connections; on a busy machine a call may take longer than an attempt, too.
    assert len(logins) <= 9


@pytest.mark.parametrize("listen", ["", "http2"])
def test_a_login_goes_on_when_the_rows_that_came_first_have_run_out_of_time(front, listen):
    logins: set[int] = set()
    release = threading.Event()

    def held(number: int, sent: bytes) -> bytes:
        logins.add(number)
        release.wait(60)
        return sent

    with front.before(SAYS_PROTOCOL, listen=listen, spoil=held) as url:
        options = {"timeout": "190ms", "retry": 0, "on_error": "null", "max_concurrency": 1}
        assert front.protocols(url, 7, **options) == [None] * 7
        release.set()
        found = front.protocols(url, 23, timeout="25s", max_concurrency=1)

    assert found == ["HTTP/2.0" if listen else "HTTP/1.1"] * 23
    # Others are tried beside one that stalls, in case that it does so for ever.
    assert len(logins) < 7


def test_a_first_connection_that_fails_holds_up_no_later_call(front):
    def cut_first(number: int, sent: bytes) -> bytes | None:
        return None if number == 0 else sent

    with front.before(SAYS_PROTOCOL, listen="http2", spoil=cut_first) as url:
        found = front.protocols(url, on_error="null")

    assert len([protocol for protocol in found if protocol]) >= CALLS - 1
