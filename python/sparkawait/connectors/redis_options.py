# SPDX-License-Identifier: Apache-2.0
"""The options that all lookups in Redis have: defaults, checks, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from sparkawait._plan.checks import flag, integer, refuse, text
from sparkawait._plan.option import Option, checked, options_of
from sparkawait._plan.option_checks import one_of, optional, size
from sparkawait.connectors.certificates import CertificateOptions, Certificates, Pem, tls_words
from sparkawait.durations import Duration, positive_duration
from sparkawait.secrets import Secret, a_password
from sparkawait.sizes import Size

__all__ = ["REDIS_OPTIONS", "RedisOptions", "certificates_of", "check_options"]

MAX_CONNECTIONS = 1000
"""Of a process and node: each has buffers and a task, and commands are pipelined over few."""


class RedisOptions(TypedDict, total=False):
    """The types of the options of all functions of `sparkawait.redis`."""

    how: Literal["left", "inner"]
    username: str | None
    password: str | Secret | None
    database: int | None
    sentinel: str | None
    cluster: bool
    read_from: Literal["primary", "replica"]
    connections: int
    connect_timeout: Duration
    idle_timeout: Duration
    max_reply_bytes: Size
    ca: Pem | None
    certificate: Pem | None
    private_key: Pem | None


class _Fields(CertificateOptions):
    how = Option(
        "left",
        one_of("left", "inner"),
        'what becomes of a row that misses: `"left"` gives nulls, `"inner"` drops it',
    )
    username = Option(None, optional(text), "where the URL does not have it")
    password = Option(
        None,
        optional(a_password),
        "a text or a secret, likewise; a secret is looked up again when the server refuses it",
    )
    database = Option(
        None,
        optional(lambda value, name: integer(value, name, 0)),
        "the number of the database, likewise",
    )
    sentinel = Option(
        None,
        optional(text),
        "the name that sentinels know the primary by; then the URLs are those of the sentinels and"
        " of their users, while `username` and `password` are those of the server",
    )
    cluster = Option(
        default=False,
        check=flag,
        meaning="whether the server is a node of a cluster, whose nodes are channels if `channels=`"
        " is given",
    )
    read_from = Option(
        "primary",
        one_of("primary", "replica"),
        'which nodes of a cluster are asked: `"primary"` or `"replica"`',
    )
    connections = Option(
        1,
        lambda value, name: integer(value, name, 1, MAX_CONNECTIONS),
        "connections of each process to a node, shared by its tasks; at most 1000",
    )
    connect_timeout = Option("5s", positive_duration, "longest time to connect in")
    idle_timeout = Option(
        "30s",
        positive_duration,
        "a server that owes replies and sends nothing for so long is given up, and so is one that"
        " sends nothing until all calls of its oldest commands were cancelled",
    )
    max_reply_bytes = Option(
        "64 MB",
        size,
        "a row whose reply has more fails: an int of bytes, or a text (powers of 1024)",
    )


REDIS_OPTIONS = options_of(_Fields)
"""The options by name."""


def check_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options, checked.

    Raises:
        ConfigurationError: If one is wrong or unknown.
    """
    values = checked(REDIS_OPTIONS, given, tls_words("ca= with a `url` of `rediss://`"))
    if values["read_from"] == "replica" and not values["cluster"]:
        refuse("`read_from='replica'` needs `cluster=True`; a server alone is what its `url` names")
    certificates_of(values)
    return values


def certificates_of(options: Mapping[str, Any]) -> Certificates:
    """Returns the certificates among the options."""
    return Certificates(options["ca"], options["certificate"], options["private_key"])
