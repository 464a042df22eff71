# SPDX-License-Identifier: Apache-2.0
"""How an HTTP function connects: `Client`, for the option ``client=`` of `sparkawait.http`.

Made and checked on the driver, immutable; the connections are made in the executors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from sparkawait import _core
from sparkawait._checks import (
    Duration,
    ObjectOf,
    Size,
    choice,
    flag,
    integer,
    positive_duration,
    refuse,
    shown,
    text,
)
from sparkawait._option import seconds, size
from sparkawait.connectors.base import Certificates, Pem
from sparkawait.connectors.http_body import Each, Lines, Part, leaves
from sparkawait.secrets import LookUp, Secret, reveal

MAX_CONNECTIONS = 65_535
"""As many as there are ports to one address of a server."""

_MAX_REDIRECTS = 1000


@dataclass(frozen=True)
class Client:
    """How connections are made, and what they carry; several functions may have the same.

    All tasks of a process that have equal clients share their connections.

    Args:
        connect_timeout: Longest time for making a connection: a text with a unit, a timedelta or
            seconds.
        read_timeout: Longest time without a byte of a response; ``None``: any, as long as the
            server is there. A server that is gone is found by its connection.
        max_reply_bytes: Longest body, after decompression: an int of bytes, or a text (powers of
            1024).
        redirects: Most redirects to follow.
        version: ``"auto"``: what TLS negotiates, else HTTP/1.1; or ``"1.1"`` or ``"2"``.
        streams_per_connection: Most requests at a time over one connection of HTTP/2, if the server
            allows as many, beyond which another connection is made.
        compressed: Whether to ask for compressed responses: gzip or deflate.
        proxy: The URL of a proxy; ``None`` for what the environment says (``HTTPS_PROXY``,
            ``NO_PROXY`` and the like), ``False`` for none.
        ca: Certificates to trust instead of the system's, in PEM form: a path that every executor
            has, a text or a secret.
        certificate: The client's certificate, likewise.
        private_key: The key of `certificate`, if it is not in there.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> inside = sa.http.Client(ca="/etc/ssl/inside.pem", read_timeout="5 min")
        >>> sa.http.get("https://models.inside/{id}", "answer string", client=inside)
        HttpFunction(method='GET', input_columns=('id',))
    """

    connect_timeout: Duration = "10s"
    read_timeout: Duration | None = None
    max_reply_bytes: Size = "16 MB"
    redirects: int = 5
    version: Literal["auto", "1.1", "2"] = "auto"
    streams_per_connection: int = 100
    compressed: bool = True
    # May have a password, or a key, in it.
    proxy: str | Secret | Literal[False] | None = field(default=None, repr=False)
    ca: Pem | None = field(default=None, repr=False)
    certificate: Pem | None = field(default=None, repr=False)
    private_key: Pem | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Checks the values; each is kept in one form."""
        connecting = positive_duration(self.connect_timeout, "connect_timeout")
        object.__setattr__(self, "connect_timeout", connecting)
        reading = seconds(self.read_timeout, "read_timeout")
        object.__setattr__(self, "read_timeout", reading)
        most = size(self.max_reply_bytes, "max_reply_bytes")
        object.__setattr__(self, "max_reply_bytes", most)
        integer(self.redirects, "redirects", 0, _MAX_REDIRECTS)
        choice(self.version, "version", "auto", "1.1", "2")
        integer(self.streams_per_connection, "streams_per_connection", 1, MAX_CONNECTIONS)
        flag(self.compressed, "compressed")
        if not (self.proxy is None or self.proxy is False or isinstance(self.proxy, Secret)):
            rule = "a URL, a secret, None for what the environment says, or False for no proxy"
            text(self.proxy, "proxy", rule, quoted=False)
        self._certificates()

    def description(self, look_up: LookUp) -> dict[str, Any]:
        """Returns what the extension module is told of connections, with the secrets looked up."""
        return {
            "connect_timeout": self.connect_timeout,
            "read_timeout": self.read_timeout,
            "version": self.version,
            "streams_per_connection": self.streams_per_connection,
            "compressed": self.compressed,
            "proxy": _proxy(self.proxy, look_up),
            "tls": self._certificates().texts(look_up),
        }

    def _certificates(self) -> Certificates:
        return Certificates(self.ca, self.certificate, self.private_key)


def _proxy(proxy: str | Secret | Literal[False] | None, look_up: LookUp) -> str | dict[str, str]:
    if proxy is None:
        return "system"
    return "none" if proxy is False else {"url": reveal(proxy, look_up, "http://proxy")}


the_client = ObjectOf(Client, "a sparkawait.http.Client")


# -- which hosts a row may name, and when you must say so

_HARMLESS_HEADERS = frozenset(
    {"accept", "accept-charset", "accept-encoding", "accept-language", "content-language"}
    | {"content-type", "user-agent"}
)
"""Headers that tell a server nothing that only one should know."""

_USER = re.compile(r"[^/?#]*://[^/?#]*@")


def check_hosts(value: object, name: str) -> tuple[str, ...]:
    """Returns the hosts of ``allow_hosts``; their form is checked with the rest of the request.

    Raises:
        ConfigurationError: If they are not texts.
    """
    rule = "a list of names of hosts"
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        refuse(f"`{name}` must be {rule}, got {shown(cast('object', value))}")
    return tuple(text(host, name, rule) for host in cast("Iterable[object]", value))


def require_hosts(
    url: str | Secret,
    hosts: tuple[str, ...] | None,
    headers: Iterable[tuple[str, str | Secret]],
    query: Iterable[tuple[str, str | Secret]],
    bodies: Iterable[Any],
) -> None:
    """Refuses to send what is meant for one server to whichever a row names.

    Raises:
        ConfigurationError: If a column names the host, ``allow_hosts`` does not say which there
            are, and something goes along that not every server should see.
    """
    if hosts is not None or isinstance(url, Secret):
        return
    columns, is_whole = _core.host_columns(url)
    if not columns and not is_whole:
        return
    told = next(_confidential(url, headers, query, bodies), None)
    if told is not None:
        refuse(
            f"`url` takes its host from a column, and {told} would be sent to whichever host a row"
            ' names; say which there are: allow_hosts=["api.example.com", ".example.com"]'
        )


def _confidential(
    url: str,
    headers: Iterable[tuple[str, str | Secret]],
    query: Iterable[tuple[str, str | Secret]],
    bodies: Iterable[Any],
) -> Iterator[str]:
    for name, value in headers:
        is_harmless = name.lower() in _HARMLESS_HEADERS and not isinstance(value, Secret)
        if not is_harmless or _core.template_columns(cast("str", value), "headers"):
            yield f"header `{name}`"
    for name, value in query:
        if isinstance(value, Secret):
            yield f"the secret in parameter `{name}`"
    if any(map(_has_secret, bodies)):
        yield "the secret in the body"
    if _USER.match(url):
        yield "the name or password in front of `@`"


def _has_secret(value: Any) -> bool:
    return any(
        isinstance(it, Secret) or (isinstance(it, Each | Lines | Part) and _has_secret(it.value))
        for it in leaves(value)
    )
