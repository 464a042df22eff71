# SPDX-License-Identifier: Apache-2.0
"""Lookups in PostgreSQL over TLS: who is trusted, and who gets in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

import sparkawait as sa
from sparkawait import postgres
from tests.support.postgres_server import PASSWORD, PostgresServer

SCHEMA = "encrypted int"
SQL = "select ssl::int as encrypted from encryption where $1 >= 0"
VIEW = "create view encryption as select ssl from pg_stat_ssl where pid = pg_backend_pid()"
CLIENTS = "select count(*) from pg_stat_activity where application_name = 'sparkawait'"
RETRY = sa.retry.fixed_delay(3, "1ms")


def row_of(function: object, **options: Any) -> dict[str, Any]:
    batch = pa.RecordBatch.from_pydict({"k": pa.array([1], pa.int32())})
    options = {"on_error": "capture", "timeout": "25s"} | options
    (out,) = sa.arrow.ordered_wait([batch], function, **options)
    return {name: values[0] for name, values in out.to_pydict().items()}


def issue(authority: trustme.CA, directory: Path, host: str) -> tuple[Path, Path]:
    issued = authority.issue_cert(host)
    certificate, key = directory / "server.pem", directory / "server.key"
    certificate.write_bytes(b"".join(it.bytes() for it in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return certificate, key


def client_of(authority: trustme.CA, name: str) -> str:
    """A certificate with its key, as a text."""
    issued = authority.issue_cert(f"{name}@example.com", common_name=name)
    return issued.private_key_and_cert_chain_pem.bytes().decode()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


@pytest.fixture(scope="module")
def server(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgresServer]:
    certificate = issue(authority, tmp_path_factory.mktemp("server"), "127.0.0.1")
    with PostgresServer(certificate) as running:
        running.run(VIEW)
        yield running


def test_connections_are_encrypted_and_verified(
    server: PostgresServer, ca: str, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(ca)
    dsn = server.dsn_with(PASSWORD, sslmode="verify-full")

    assert row_of(postgres.lookup(dsn, SQL, ["k"], ca=str(path)))["encrypted"] == 1


@pytest.mark.parametrize(("mode", "encrypted"), [("disable", 0), ("prefer", 1), ("require", 1)])
def test_sslmode_has_the_meaning_that_libpq_gives_it(
    server: PostgresServer, mode: str, encrypted: int
) -> None:
    dsn = server.dsn_with(PASSWORD, sslmode=mode)

    assert row_of(postgres.lookup(dsn, SQL, ["k"]))["encrypted"] == encrypted


def test_a_certificate_of_another_authority_is_refused_for_good(server: PostgresServer) -> None:
    other = trustme.CA().cert_pem.bytes().decode()

    function = postgres.lookup(server.dsn, SQL, ["k"], ca=other, schema=SCHEMA)

    error = row_of(function, retry=RETRY)["error"]
    assert "certificate" in error["message"]
    assert error["attempts"] == 1


def test_a_certificate_of_another_host_is_refused_for_good(
    authority: trustme.CA, ca: str, tmp_path: Path
) -> None:
    with PostgresServer(issue(authority, tmp_path, "db.example.com")) as server:
        server.run(VIEW)
        dsn = server.dsn_with(PASSWORD, sslmode="verify-full")
        error = row_of(postgres.lookup(dsn, SQL, ["k"], ca=ca, schema=SCHEMA), retry=RETRY)["error"]
        assert "not valid for this name; call it by one that it has: db.exa" in error["message"]
        assert error["attempts"] == 1

        # As with libpq, nobody looks at it otherwise.
        dsn = server.dsn_with(PASSWORD, sslmode="require")
        assert row_of(postgres.lookup(dsn, SQL, ["k"]))["encrypted"] == 1


def test_verify_full_needs_an_encrypted_server(ca: str) -> None:
    with PostgresServer() as plain:
        dsn = plain.dsn_with(PASSWORD, sslmode="verify-full")
        with pytest.raises(sa.ConfigurationError, match="server does not support TLS, which"):
            row_of(postgres.lookup(dsn, SQL, ["k"], ca=ca, schema=SCHEMA), retry=RETRY)


@pytest.mark.parametrize("given", ["ca", "certificate"])
def test_certificates_ask_for_an_encrypted_server(
    authority: trustme.CA, ca: str, given: str
) -> None:
    client = {"ca": ca, "certificate": client_of(authority, "tester")}[given]
    with PostgresServer() as plain:
        function = postgres.lookup(plain.dsn, SQL, ["k"], schema=SCHEMA, **{given: client})
        with pytest.raises(sa.ConfigurationError, match="server does not support TLS, which"):
            row_of(function, retry=RETRY)

        assert plain.run(CLIENTS) == "0"


@pytest.mark.parametrize("option", ["ca", "certificate"])
@pytest.mark.parametrize("as_path", [True, False])
def test_certificates_and_a_mode_without_encryption_are_refused_on_the_driver(
    authority: trustme.CA, ca: str, tmp_path: Path, option: str, as_path: bool
) -> None:
    given: Any = {"ca": ca, "certificate": client_of(authority, "tester")}[option]
    if as_path:
        # The driver does not have it.
        given = tmp_path / "of-the-executors.pem"

    with pytest.raises(sa.ConfigurationError, match=r"sslmode=disable.*`ca`.*`certificate`"):
        postgres.lookup("host=db user=u sslmode=disable", SQL, ["k"], SCHEMA, **{option: given})


@pytest.mark.parametrize("spelling", ["sslmode=verify-ca", "sslmode = 'verify-ca'"])
def test_verify_ca_takes_the_certificate_of_another_host(
    authority: trustme.CA, ca: str, tmp_path: Path, spelling: str
) -> None:
    with PostgresServer(issue(authority, tmp_path, "db.example.com")) as server:
        server.run(VIEW)
        dsn = f"host=127.0.0.1 port={server.port} user=tester password={PASSWORD} dbname=postgres"
        other = trustme.CA().cert_pem.bytes().decode()

        assert row_of(postgres.lookup(f"{dsn} {spelling}", SQL, ["k"], ca=ca))["encrypted"] == 1

        for mode, authorities in (("verify-full", ca), ("verify-ca", other)):
            wrong = f"{dsn} sslmode={mode}"
            function = postgres.lookup(wrong, SQL, ["k"], ca=authorities, schema=SCHEMA)
            error = row_of(function, retry=RETRY)["error"]
            assert "certificate" in error["message"]
            assert error["attempts"] == 1


@pytest.fixture(scope="module")
def strict(
    authority: trustme.CA, ca: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgresServer]:
    directory = tmp_path_factory.mktemp("strict")
    (directory / "ca.pem").write_text(ca)
    certificate = issue(authority, directory, "127.0.0.1")
    with PostgresServer(certificate, directory / "ca.pem") as running:
        running.run(VIEW)
        yield running


def test_a_client_gets_in_by_its_certificate(
    strict: PostgresServer, authority: trustme.CA, ca: str
) -> None:
    dsn = strict.dsn_with("nobody-asks", sslmode="verify-full")
    client = client_of(authority, "tester")

    function = postgres.lookup(dsn, SQL, ["k"], ca=ca, certificate=client)

    assert row_of(function)["encrypted"] == 1


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        ("missing", "SQLSTATE 28000: connection requires a valid client certificate"),
        ("of somebody else", "SQLSTATE 28000: certificate authentication failed"),
        ("of another authority", "UnknownCA"),
    ],
)
def test_a_client_without_the_right_certificate_is_refused_for_good(
    strict: PostgresServer, authority: trustme.CA, ca: str, client: str, reason: str
) -> None:
    certificate = {
        "missing": None,
        "of somebody else": client_of(authority, "somebody"),
        "of another authority": client_of(trustme.CA(), "tester"),
    }[client]
    dsn = strict.dsn_with(PASSWORD, sslmode="verify-full")
    function = postgres.lookup(dsn, SQL, ["k"], ca=ca, certificate=certificate, schema=SCHEMA)

    error = row_of(function, retry=RETRY)["error"]

    assert reason in error["message"]
    assert error["attempts"] == 1
