# SPDX-License-Identifier: Apache-2.0
"""Certificates and keys are read however other programs write them, and no error shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait.exceptions import ConfigurationError
from tests.support.certificates import EXPIRED, Certificates
from tests.support.servers import free_port

ATTRIBUTES = """Bag Attributes
    friendlyName: reports
    localKeyID: 54 69 6D 65 20 31
Key Attributes: <No Attributes>
"""
"""What `openssl pkcs12 -nodes` writes before each key and certificate."""

WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "openssl pkcs12": lambda pem: pem.replace("-----BEGIN", f"{ATTRIBUTES}-----BEGIN"),
    "openssl x509 -text": lambda pem: f"Certificate:\n    Data:\n        Version: 3 (0x2)\n{pem}",
    "a byte order mark": lambda pem: "\ufeff" + pem,
    "lines of Windows": lambda pem: pem.replace("\n", "\r\n"),
    "a comment": lambda pem: f"# of the reports\n{pem}",
}


def http(**options: Any) -> Any:
    return sa.http.get("https://h/{id}", "v string", client=sa.http.Client(**options))


def redis(**options: Any) -> Any:
    return sa.redis.get("rediss://h", "{id}", schema="v string", **options)


def postgres(**options: Any) -> Any:
    return sa.postgres.lookup(
        "postgresql://h/d",
        "select v from t where id = $1",
        args=["id"],
        schema="v string",
        **options,
    )


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("pems"))


@pytest.mark.parametrize("make", [http, redis, postgres])
@pytest.mark.parametrize("way", WRITTEN)
def test_a_text_a_file_and_a_secret_are_read_alike(
    make: Any, way: str, pems: Certificates, tmp_path: Path
):
    written = {"ca": WRITTEN[way](pems.ca), "certificate": WRITTEN[way](pems.client)}
    files = {name: tmp_path / name for name in written}
    for name, text in written.items():
        files[name].write_bytes(text.encode())
    secrets = {name: sa.secret(file=str(path)) for name, path in files.items()}
    for given in (written, files, {name: str(path) for name, path in files.items()}, secrets):
        make(**given)._native(retry_misses=False)


KEYS: dict[str, Callable[[str], str]] = {
    **WRITTEN,
    "one line": lambda pem: "".join(pem.splitlines()[1:-1]),
    "cut": lambda pem: pem[:-71],
}


@pytest.mark.parametrize("make", [http, redis, postgres])
@pytest.mark.parametrize("way", KEYS)
@pytest.mark.parametrize("option", ["ca", "certificate", "private_key"])
def test_no_error_shows_a_key(make: Any, way: str, option: str, pems: Certificates):
    key = KEYS[way](pems.client[: pems.client.index("-----BEGIN CERTIFICATE")])
    given: dict[str, Any] = {"certificate": pems.client, option: key}
    if option == "private_key" and way in WRITTEN:
        make(**given)._native(retry_misses=False)
        return
    with pytest.raises(ConfigurationError, match=f"`{option}`") as caught:
        make(**given)._native(retry_misses=False)
    parts = {line.strip() for line in key.splitlines() if len(line) > 20}
    assert not [part for part in parts if part in str(caught.value)]


@pytest.mark.parametrize("make", [http, redis, postgres])
def test_a_path_that_is_not_there_is_told_by_its_option(make: Any, tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"`ca` is taken for the path .*No such file"):
        make(ca=str(tmp_path / "none.pem"))._native(retry_misses=False)


@pytest.mark.parametrize("argument", ["name", "file"])
@pytest.mark.parametrize("way", WRITTEN)
def test_a_secret_that_is_given_itself_is_refused_without_being_shown(
    argument: Any, way: str, pems: Certificates
):
    with pytest.raises(ConfigurationError, match="must say where it is") as caught:
        sa.secret(**{argument: WRITTEN[way](pems.client)})
    assert not [line for line in pems.client.splitlines() if line in str(caught.value)]


def test_an_authority_that_has_expired_is_told_where_it_is_used(
    pems: Certificates, caplog: pytest.LogCaptureFixture
):
    url = f"https://localhost:{free_port()}/{{id}}"
    told = []
    for ca in (pems.ca, pems.ca + EXPIRED):
        function = sa.http.get(url, "v string", client=sa.http.Client(ca=ca), max_requests=7)
        options = {"retry": 0, "on_error": "null", "timeout": "20s"}
        sa.arrow.ordered_wait(pa.table({"id": [1, 2, 3]}), function, **options).to_table()
        told.append([it for it in caplog.messages if "has expired" in it])
    assert told[0] == []
    (message,) = told[1]
    assert "the authority `Example Root Ä1` in `ca` has expired, on 2023-03-07;" in message
    assert not [line for line in EXPIRED.splitlines() if line in message]
