# SPDX-License-Identifier: Apache-2.0
"""What all lookups in Redis share: their options, and their description in the executor."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import pyarrow as pa

from sparkawait import _core
from sparkawait.certificates import Certificates
from sparkawait.durations import positive_duration
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import NativeFunction
from sparkawait.secrets import Secret, reveal

__all__ = ["RedisFunction", "make"]

SCHEMES = ("redis", "rediss", "redis+unix", "unix")

DEFAULTS: Mapping[str, Any] = {
    "how": "left",
    "username": None,
    "password": None,
    "database": None,
    "ca": None,
    "certificate": None,
    "private_key": None,
    "cluster": False,
    "read_from": "primary",
    "connections": 1,
    "connect_timeout": "5s",
    "idle_timeout": "30s",
    "max_reply_bytes": 64 << 20,
}


@dataclass(frozen=True, repr=False)
class RedisFunction(NativeFunction):
    """One command per row. Made by the functions of `sparkawait.redis`.

    Attributes:
        operation: The name of the function that made it.
        url: Address of the server.
        arguments: The command and its arguments, each with the option that it was given for.
        result_schema: The columns that it returns.
        shape: What a reply becomes.
        options: The other options, complete.
    """

    operation: str
    url: str | Secret
    arguments: tuple[tuple[str, str], ...]
    result_schema: pa.Schema
    shape: Any
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Finds the columns that the arguments name."""
        found = [
            it for text, option in self.arguments for it in _core.template_columns(text, option)
        ]
        object.__setattr__(self, "input_columns", tuple(dict.fromkeys(found)))

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return f"redis.{self.operation}"

    @property
    def finds_channels(self) -> bool:
        """Whether there are several nodes; each is a channel."""
        return bool(self.options["cluster"])

    def __repr__(self) -> str:
        """Shows what is asked for, and not where."""
        given = ("arguments",) if self.operation == "command" else ("key", "keys")
        shown = ", ".join(repr(text) for text, option in self.arguments if option in given)
        return f"redis.{self.operation}({shown})"

    def _native(self, *, retry_misses: bool) -> _core.Native:
        options = self.options
        server = {
            "url": reveal(self.url),
            "username": options["username"],
            "password": _reveal_optional(options["password"]),
            "database": options["database"],
            "tls": _certificates(options).texts(),
            "cluster": options["cluster"],
            "read_from": options["read_from"],
            "connections": options["connections"],
            "connect_timeout": options["connect_timeout"],
            "idle_timeout": options["idle_timeout"],
            "max_reply_bytes": options["max_reply_bytes"],
        }
        description = {
            "server": server,
            "command": [text for text, _ in self.arguments],
            "options": [option for _, option in self.arguments],
            "shape": self.shape,
            "is_split": self.operation == "mget",
            "misses": {"how": options["how"], "retry": retry_misses},
        }
        return _core.Native.redis(json.dumps(description))


def make(
    operation: str,
    url: str | Secret,
    arguments: Sequence[tuple[str, str]],
    schema: pa.Schema,
    *,
    shape: Any,
    options: Mapping[str, Any],
) -> RedisFunction:
    """Checks what all lookups have in common, and makes one.

    Raises:
        ConfigurationError: If an argument is wrong.
    """
    _check_url(url)
    for text, option in arguments:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"`{option}` must be text with columns in braces, got {text!r}"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    # A miss gives nulls, and so does a field that a hash lacks.
    given = cast("list[Any]", list(schema))
    fields = [it.with_nullable(True) for it in given]  # noqa: FBT003 - PyArrow has no name for it
    nullable = pa.schema(fields)
    checked = _check_options(options)
    return RedisFunction(operation, url, tuple(arguments), nullable, shape, checked)


def _check_url(url: object) -> None:
    if isinstance(url, Secret):
        return
    # The URL may have a password in it, so that only its scheme is quoted.
    scheme = urlsplit(url).scheme if isinstance(url, str) else type(url).__name__
    if scheme not in SCHEMES:
        msg = f"`url` must be text or a secret that begins with one of {SCHEMES}, got {scheme!r}"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(options) - set(DEFAULTS))
    if unknown:
        msg = f"redis has no option {unknown[0]!r}; it has {', '.join(sorted(DEFAULTS))}"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    checked = {**DEFAULTS, **options}
    for name in ("connect_timeout", "idle_timeout"):
        checked[name] = positive_duration(checked[name], name)
    _check_choice(checked["how"], "how", ("left", "inner"))
    _check_choice(checked["read_from"], "read_from", ("primary", "replica"))
    if checked["read_from"] == "replica" and not checked["cluster"]:
        msg = "`read_from='replica'` needs `cluster=True`; a single server is what its `url` names"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    _check_int(checked["connections"], "connections", 1)
    _check_int(checked["max_reply_bytes"], "max_reply_bytes", 1)
    if checked["database"] is not None:
        _check_int(checked["database"], "database", 0)
    _certificates(checked)
    return checked


def _certificates(options: Mapping[str, Any]) -> Certificates:
    return Certificates(options["ca"], options["certificate"], options["private_key"])


def _check_choice(value: object, name: str, choices: tuple[str, str]) -> None:
    if value not in choices:
        msg = f"`{name}` must be {choices[0]!r} or {choices[1]!r}, got {value!r}"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)


def _check_int(value: object, name: str, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        msg = f"`{name}` must be an int of at least {least}, got {value!r}"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)


def _reveal_optional(value: str | Secret | None) -> str | None:
    return None if value is None else reveal(value)
