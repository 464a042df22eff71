# SPDX-License-Identifier: Apache-2.0
"""What servers refuse, and what keeps connections from being made: in words that say what to do."""

from __future__ import annotations

import ipaddress
import socketserver
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import sparkawait as sa
from sparkawait.exceptions import ErrorKind
from tests.support.certificates import Certificates
from tests.support.nginx import Nginx
from tests.support.scripted_server import ScriptedServer
from tests.support.servers import LOOPBACK

ANSWER = """location / { return 200 '{"n": 1}'; }"""


def look_up(url: str, ids=("a",), client=None, **options) -> list[dict]:
    client = sa.http.Client(**{"proxy": False} | (client or {}))
    function = sa.http.get(url, "n bigint", client=client, missing=())
    rows = pa.record_batch({"id": list(ids)})
    out = list(sa.arrow.ordered_wait([rows], function, **options))
    return pa.Table.from_batches(out).to_pylist() if out else []


def error_of(url: str, **options) -> dict:
    (row,) = look_up(url, on_error="capture", retry=0, **options)
    return row["error"]


@pytest.fixture
def refusing() -> Iterator[ScriptedServer]:
    """Answers with the status that is the last part of the path."""

    def answer(target, before):
        return int(target.rsplit("/")[-1]), {}, b"no, a is bad"

    with ScriptedServer(answer) as server:
        yield server


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "request-refused"),
        (404, "request-refused"),
        (422, "request-refused"),
        (401, "unauthorized"),
        (403, "unauthorized"),
        (429, "user-function-failed"),
        (500, "user-function-failed"),
        (503, "user-function-failed"),
    ],
)
def test_a_captured_failure_has_the_status_and_a_kind_that_says_who_is_at_fault(
    refusing, status, kind
):
    error = error_of(f"{refusing.url}/{{id}}/{status}")

    assert (error["kind"], error["status"], error["attempts"]) == (kind, status, 1)
    assert error["message"].endswith(": no, a is bad")


def test_attempts_that_are_used_up_and_a_timeout_have_the_last_status(refusing):
    retry = sa.retry.fixed_delay(2, "1ms")
    url = f"{refusing.url}/{{id}}/503"
    (exhausted,) = look_up(url, on_error="capture", retry=retry)
    (late,) = look_up(url, on_error="capture", timeout="200ms", retry=sa.retry.fixed_delay(9, "1h"))

    assert exhausted["error"]["kind"] == "retries-exhausted"
    assert late["error"]["kind"] == "element-timed-out"
    assert exhausted["error"]["status"] == late["error"]["status"] == 503


def test_an_exception_has_the_status_and_says_how_to_see_the_text(refusing):
    with pytest.raises(sa.AsyncFunctionError) as info:
        look_up(f"{refusing.url}/{{id}}/401")

    assert (info.value.kind, info.value.status) == (ErrorKind.UNAUTHORIZED, 401)
    message = str(info.value)
    assert message.endswith("answered 401 Unauthorized; on_error='capture' shows its text")


def test_no_answer_has_no_status():
    assert error_of("http://no-such-host.invalid/{id}")["status"] is None


def self_signed(name: str, days: int) -> tuple[bytes, str]:
    """Makes what ``openssl req -x509`` makes: the certificate of an authority, with a key.

    Args:
        name: The address that it is for.
        days: How many days from now it ends.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "of its own")])
    now = datetime.now(timezone.utc)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(4711)
        .not_valid_before(now - timedelta(days=71))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(alternative, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + pem, pem.decode()


@pytest.mark.parametrize(
    ("name", "days", "why"),
    [
        (LOOPBACK, 7, None),
        (LOOPBACK, -3, "has expired"),
        ("10.7.7.7", 7, "not valid for this name"),
    ],
)
def test_a_certificate_of_an_authority_is_that_of_a_server_if_it_was_given(
    tmp_path, name, days, why
):
    given, (server, ca) = Certificates(tmp_path), self_signed(name, days)
    given.server_path.write_bytes(server)
    with Nginx(tmp_path / "nginx", ANSWER, certificates=given) as nginx:
        url = nginx.url.replace("localhost", LOOPBACK)
        unknown = error_of(url + "/{id}")["message"]
        (found,) = look_up(url + "/{id}", client={"ca": ca}, on_error="capture", retry=0)
        try:
            urllib.request.urlopen(url + "/a", context=ssl.create_default_context(cadata=ca))  # noqa: S310
        except urllib.error.URLError:
            is_taken_by_python = False
        else:
            is_taken_by_python = True

    assert "no connection: the server's certificate " in unknown
    if days > 0:
        assert "is self-signed" in unknown
        assert "`ca=`" in unknown
    assert is_taken_by_python == (why is None)
    if why is None:
        assert (found["n"], found["error"]) == (1, None)
    else:
        assert why in found["error"]["message"]


def test_a_certificate_of_another_authority_is_not_taken_for_one_that_was_given(tmp_path):
    given, (server, _) = Certificates(tmp_path), self_signed(LOOPBACK, 7)
    given.server_path.write_bytes(server)
    _, other = self_signed(LOOPBACK, 7)
    with Nginx(tmp_path / "nginx", ANSWER, certificates=given) as nginx:
        url = nginx.url.replace("localhost", LOOPBACK)
        message = error_of(url + "/{id}", client={"ca": other})["message"]

    assert "is self-signed" in message


def test_a_certificate_of_an_unknown_authority_or_for_another_name_is_told(tmp_path):
    authority, given = trustme.CA(), Certificates(tmp_path)
    issued = authority.issue_cert("api.example.com", "10.7.7.7").private_key_and_cert_chain_pem
    given.server_path.write_bytes(issued.bytes())
    with Nginx(tmp_path / "nginx", ANSWER, certificates=given) as nginx:
        unknown = error_of(nginx.url + "/{id}")["message"]
        client = {"ca": authority.cert_pem.bytes().decode()}
        misnamed = error_of(nginx.url + "/{id}", client=client)["message"]

    assert "an authority that is not trusted here; give the certificate of the authority" in unknown
    assert (
        "is not valid for this name; call it by one that it has: api.example.com, 10." in misnamed
    )


def test_tls_where_none_is_spoken_is_told(tmp_path):
    with Nginx(tmp_path / "nginx", ANSWER) as nginx:
        message = error_of(nginx.url.replace("http://", "https://") + "/{id}")["message"]

    assert "the server does not speak TLS on this port" in message


def test_plain_http_where_tls_is_spoken_is_told():
    class Alert(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1)
            # What OpenSSL answers to what is not TLS: a fatal alert, `protocol_version`.
            self.request.sendall(b"\x15\x03\x01\x00\x02\x02\x46")

    with socketserver.TCPServer((LOOPBACK, 0), Alert) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        message = error_of(f"http://{LOOPBACK}:{server.server_address[1]}/{{id}}")["message"]
        serving.join()

    assert message.endswith("; if the port is one of TLS, write `https://`")


@pytest.mark.parametrize(
    ("method", "calls", "lost"), [("GET", 1, 0), ("GET", 7, 0), ("POST", 1, 1)]
)
def test_more_than_a_hundred_headers_are_read(method, calls, lost):
    """The first response says so; a request that must not be sent twice is lost with it."""
    headers = {f"X-{number}": "v" for number in range(150)}
    with ScriptedServer(lambda _target, _before: (200, headers, b'{"v": 7}')) as server:
        client = sa.http.Client(proxy=False)
        url = server.url + "/{id}"
        function = sa.http.request(method, url, "v bigint", body="x", client=client)
        rows = pa.record_batch({"id": range(13)})
        options = {"max_concurrency": calls, "on_error": "capture", "retry": 0}
        out = sa.arrow.ordered_wait([rows], function, tuning=sa.Tuning(warm_up=False), **options)
        found = pa.Table.from_batches(out).to_pylist()

    assert [row["id"] for row in found] == list(range(13))
    assert [row["v"] for row in found] == [None] * lost + [7] * (13 - lost)
    for row in found[:lost]:
        assert "too large; this server's next may have 1024" in row["error"]["message"]


def test_too_many_headers_fail_for_good():
    headers = {f"X-{number}": "v" for number in range(1_100)}
    with ScriptedServer(lambda _target, _before: (200, headers, b'{"v": 7}')) as server:
        again = sa.retry.fixed_delay(3, "7ms")
        (row,) = look_up(server.url + "/{id}", on_error="capture", retry=again)

    error = row["error"]
    assert "the head of the response is too large; it may have 1024 headers" in error["message"]
    # The first one found out that there are more than most servers send.
    assert error["attempts"] == 2
