# SPDX-License-Identifier: Apache-2.0
"""Which hosts a row may name, and when you must say so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from sparkawait import _core
from sparkawait._plan.checks import refuse, shown, text
from sparkawait.connectors.http_form import Part
from sparkawait.connectors.http_items import Each, Lines
from sparkawait.secrets import Secret

__all__ = ["check_hosts", "require_hosts"]

_HARMLESS_HEADERS = frozenset(
    {"accept", "accept-charset", "accept-encoding", "accept-language", "content-language"}
    | {"content-type", "user-agent"}
)
"""Headers that tell a server nothing that only one should know."""

_USER = re.compile(r"[^/?#]*://[^/?#]*@")


def check_hosts(value: object) -> tuple[str, ...] | None:
    """Returns the hosts of ``allow_hosts``; their form is checked with the rest of the request.

    Raises:
        ConfigurationError: If they are not texts.
    """
    if value is None:
        return None
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        refuse(
            f"`allow_hosts` must be a list of names of hosts, got {shown(cast('object', value))}"
        )
    hosts = cast("Iterable[object]", value)
    return tuple(text(host, "allow_hosts", "a list of names of hosts") for host in hosts)


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
    if isinstance(value, Mapping):
        return any(map(_has_secret, cast("Mapping[str, Any]", value).values()))
    if isinstance(value, list | tuple):
        return any(map(_has_secret, cast("list[Any]", value)))
    if isinstance(value, Each | Part):
        return _has_secret(value.value)
    if isinstance(value, Lines):
        return _has_secret(value.values)
    return isinstance(value, Secret)
