# SPDX-License-Identifier: Apache-2.0
"""Certificates of encrypted connections: whom to trust, and how to show who connects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sparkawait._plan.checks import is_unicode, refuse
from sparkawait._plan.option import Option
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.secrets import LookUp, Secret, looked_up

Pem = str | Path | Secret
"""The path of a PEM file on every executor, a PEM text, or a secret that holds one."""


_WORDS_OF_OTHERS = (
    *("verify", "verify_ssl", "verify_certificate", "ssl_verify", "insecure"),
    *("ssl", "ssl_context", "tls", "cafile", "cacert", "ca_bundle", "ca_cert", "ssl_ca_certs"),
    *("ssl_cert_reqs", "sslrootcert"),
)
"""What other clients call the certificates that they trust."""


def tls_words(option: str) -> dict[str, str]:
    """Returns what to write instead of the names that other clients have for what is trusted."""
    hint = f"certificates are always checked; to trust an authority of your own give {option}"
    return dict.fromkeys(_WORDS_OF_OTHERS, hint)


class CertificateOptions:
    """The options of all connectors that encrypt; `Certificates` checks them together."""

    ca = Option(
        "certificates to trust instead of the system's, in PEM form: a path that every executor"
        " has, a text or a secret",
        type="Pem | None",
    )
    certificate = Option("the client's certificate, likewise", type="Pem | None")
    private_key = Option("the key of `certificate`, if it is not in there", type="Pem | None")


@dataclass(frozen=True, repr=False)
class Certificates:
    """What the connections of a native function are encrypted with.

    Attributes:
        ca: Authorities to trust instead of the system's.
        certificate: The client's certificate, with those between it and its authority.
        private_key: Its key; ``None`` if it is in `certificate`.

    Raises:
        ConfigurationError: If a value is of another type, or a key has no certificate.
    """

    ca: Pem | None = None
    certificate: Pem | None = None
    private_key: Pem | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        for name in ("ca", "certificate", "private_key"):
            value: object = getattr(self, name)
            if value is not None and not _is_pem(value):
                refuse(
                    f"`{name}` must be the path of a PEM file, a PEM text or a secret, "
                    f"got a {type(value).__name__}"
                )
        if self.private_key is not None and self.certificate is None:
            refuse("`private_key` needs `certificate`")

    def __bool__(self) -> bool:
        """Tells whether anything was given."""
        return any(it is not None for it in (self.ca, self.certificate, self.private_key))

    @staticmethod
    def of(options: Mapping[str, Any]) -> Certificates:
        """Returns those among the options of a connector."""
        return Certificates(options["ca"], options["certificate"], options["private_key"])

    def texts(self, look_up: LookUp) -> dict[str, str | None]:
        """Returns the PEM texts: those of files and secrets too, where secrets are looked up.

        Elsewhere a certificate is left out with its key: one cannot be checked without the other.

        Raises:
            ConfigurationError: If a file cannot be read, or a secret is not there.
        """
        if look_up is looked_up:
            names = ("ca", "certificate", "private_key")
            return {name: _text(getattr(self, name), name) for name in names}
        ca, certificate, key = map(_known, (self.ca, self.certificate, self.private_key))
        if self.private_key is not None and (certificate is None or key is None):
            certificate = key = None
        return {"ca": ca, "certificate": certificate, "private_key": key}


def _is_pem(value: object) -> bool:
    if isinstance(value, Secret):
        return True
    if not isinstance(value, (str, Path)) or str(value) in {"", "."}:
        return False
    return "\0" not in str(value) and is_unicode(str(value))


def _known(value: Pem | None) -> str | None:
    is_text = isinstance(value, str) and value.lstrip().startswith("-----BEGIN")
    return value if isinstance(value, str) and is_text else None


def _text(value: Pem | None, name: str) -> str | None:
    if isinstance(value, Secret):
        return value.reveal()
    if value is None or _known(value) is not None:
        return cast("str | None", value)
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        msg = f"`{name}`: file `{value}` cannot be read: {reason}; every executor needs it"
        raise ConfigurationError(msg, ErrorKind.CERTIFICATE_MISSING) from None
