# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What the connectors have in common: how they are described and checked, and options of several.

Made and checked on the driver, pickled, started in the executors.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._checks import fields_within, is_unicode, is_variant, refuse, warn_once
from sparkawait._option import Option, one_of, optional
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import NativeFunction
from sparkawait.secrets import (
    LookUp,
    Secret,
    Sources,
    a_password,
    is_content,
    left_out,
    looked_up,
)

if TYPE_CHECKING:
    from typing_extensions import Self

HOW = Option(
    'what happens to a row that misses: `"left"` gives nulls, `"inner"` drops it',
    one_of("left", "inner"),
    default="left",
    type='Literal["left", "inner"]',
)
"""An option of each connector."""

PASSWORD = Option(
    "where the address does not have it: a text, or a secret, which is looked up again when the"
    " server refuses it",
    optional(a_password),
    type="str | Secret | None",
)
"""An option of connectors to databases."""


class Connector(NativeFunction, ABC):
    """A function of one of the connectors, which are described to the extension module in JSON."""

    connector: ClassVar[str]
    """What the extension module calls it."""

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Checks the description and its columns; unknown ones are taken for texts."""
        native = self._described
        if input_schema is None and not self.input_columns:
            warn_once(
                "`%s` names no column, so all rows ask the same; write columns in braces, as in"
                " '/customers/{id}', and not in an f-string, which fills them in before",
                self.name,
            )

        def column(name: str) -> pa.Field[Any]:
            if input_schema is None:
                return pa.field(name, pa.string())
            return cast("Any", input_schema).field(name)

        columns = [column(name) for name in dict.fromkeys(self.input_columns)]
        try:
            native.check(pa.schema(columns), self.result_schema)
        except ConfigurationError:
            raise
        except (pa.ArrowException, TypeError, ValueError) as error:
            msg = f"`{self.name}` has a column of a type that it cannot read: {error}"
            raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID) from error

    def dropping_misses(self) -> Self:
        """Returns the function with ``how="inner"``."""
        own: Any = self
        return replace(own, options=own.options.replaced(how="inner"))

    @cached_property
    def _described(self) -> _core.Native:
        """What checks columns: made once on the driver, where no secret is looked up."""
        for field in cast("Any", self.result_schema):
            if any(is_variant(it.type) for it in fields_within(field)):
                refuse(
                    f"column `{field.name}` is declared as a variant, which Spark makes of texts;"
                    f" declare it as a string, and write parse_json({field.name})",
                    ErrorKind.SCHEMA_INVALID,
                )
        return self._as_native(left_out)

    def __getstate__(self) -> dict[str, Any]:
        """Returns what travels to the executors."""
        state = vars(self).copy()
        state.pop("_described", None)
        return state

    def _native(self, *, retry_misses: bool) -> _core.Native:
        return self._as_native(looked_up, retry_misses=retry_misses)

    def _as_native(self, look_up: LookUp, *, retry_misses: bool = False) -> _core.Native:
        description = self.description(look_up, retry_misses=retry_misses)
        return _core.Native.of(self.connector, json.dumps(description), self._sources()[0])

    def description(
        self, look_up: LookUp = looked_up, *, retry_misses: bool = False
    ) -> dict[str, Any]:
        """Returns what tasks are told, with the secrets looked up."""
        own: Any = self
        misses = {"how": own.options.how, "retry": retry_misses}
        return {**self._description(look_up), "misses": misses, "required": own.required}

    @abstractmethod
    def _description(self, look_up: LookUp) -> dict[str, Any]:
        """Returns what tasks are told of this connector alone."""

    @property
    def asks(self) -> dict[str, Any]:
        """What decides about results: whom it asks, for what, and what it makes of the answer."""
        own: Any = self
        asked = self._asked(self._description(_named_secret))
        return {"connector": self.connector, **asked, "how": own.options.how}

    @abstractmethod
    def _asked(self, description: dict[str, Any]) -> dict[str, Any]:
        """Returns what of the description decides about results."""

    @abstractmethod
    def _sources(self) -> tuple[Sources, dict[str, str]]:
        """Returns what reads secrets again that may change, and what tells them from others."""


def _named_secret(secret: Secret, form: str) -> str:  # noqa: ARG001 - as `LookUp`
    """Replaces a secret by what names it."""
    return repr(secret)


_PASSWORD = re.compile(r"(?<=//)[^/@?#]*@|\bpassword\s*=\s*(?:'[^']*'|[^\s&#]+)", re.IGNORECASE)


def without_password(url: str) -> str:
    """Returns an address without what its caller shows who it is."""
    return _PASSWORD.sub("", url)


# -- certificates of encrypted connections: whom to trust, and how to show who connects

Pem = str | Path | Secret
"""The path of a PEM file on every executor, a PEM text, or a secret that holds one."""

_PARTS = ("ca", "certificate", "private_key")
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
        for name in _PARTS:
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
        return self != Certificates()

    @staticmethod
    def of(options: CertificateOptions) -> Certificates:
        """Returns those among the options of a connector."""
        return Certificates(options.ca, options.certificate, options.private_key)

    def texts(self, look_up: LookUp) -> dict[str, str | None]:
        """Returns the PEM texts: those of files and secrets too, where secrets are looked up.

        Elsewhere a certificate is left out with its key: one cannot be checked without the other.

        Raises:
            ConfigurationError: If a file cannot be read, or a secret is not there.
        """
        if look_up is looked_up:
            return {name: _text(getattr(self, name), name) for name in _PARTS}
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
    """Returns the text that a value is; ``None`` for a path, a secret and ``None``.

    Other programs write lines before the first certificate or key: its attributes, or the
    certificate in words.
    """
    if isinstance(value, str) and is_content(value):
        return value.removeprefix(_BYTE_ORDER_MARK)
    return None


_BYTE_ORDER_MARK = "\ufeff"


def _text(value: Pem | None, name: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, Secret):
        return value.reveal().removeprefix(_BYTE_ORDER_MARK)
    known = _known(value)
    if known is not None:
        return known
    try:
        return Path(value).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        # The path is not quoted: what was taken for one may be a key.
        msg = (
            f"`{name}` is taken for the path of a file, which cannot be read: {reason}; every"
            " executor needs the file"
        )
        raise ConfigurationError(msg, ErrorKind.CERTIFICATE_MISSING) from None
