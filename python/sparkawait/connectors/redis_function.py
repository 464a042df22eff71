# SPDX-License-Identifier: Apache-2.0
"""What all lookups in Redis share: their options, and their description in the executor."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.checks import refuse, shown, text
from sparkawait.connectors.redis_commands import READS
from sparkawait.connectors.redis_options import certificates_of, check_options
from sparkawait.native_function import NativeFunction, check_native
from sparkawait.secrets import LookUp, Secret, left_out, looked_up, reveal, sources_of

__all__ = ["RedisFunction", "Url", "make"]

Url = str | Secret | Sequence[str | Secret]
"""``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, ``redis+unix://``; or
several of them."""

SCHEMES = ("redis", "rediss", "redis+unix", "unix")


@dataclass(frozen=True, repr=False)
class RedisFunction(NativeFunction):
    """One command per row. Made by the functions of `sparkawait.redis`.

    Attributes:
        operation: The name of the function that made it.
        url: Addresses of the server.
        arguments: The command and its arguments, each with the option that it was given for.
        result_schema: The columns that it returns.
        shape: What a reply becomes.
        options: The other options, complete.
        required: The columns that were declared as not null: a row for which Redis has none fails,
            while a miss has nulls.
        has_idempotent_writes: Whether two commands do what one does, though they write.
    """

    operation: str
    url: tuple[str | Secret, ...]
    arguments: tuple[tuple[str, str], ...]
    result_schema: pa.Schema
    shape: Any
    options: Mapping[str, Any]
    required: tuple[str, ...] = ()
    has_idempotent_writes: bool = False

    writes_texts = True

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

    @property
    def idempotent(self) -> bool:
        """Whether two commands do what one does."""
        return self.has_idempotent_writes or self.only_reads

    idempotent_by = "where two commands do what one does, give `writes='idempotent'`"

    @property
    def only_reads(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it is known to only read."""
        return self.operation != "command" or self.arguments[0][0].upper() in READS

    def dropping_misses(self) -> RedisFunction:
        """Returns the function with ``how="inner"``."""
        return replace(self, options={**self.options, "how": "inner"})

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Checks the command and its columns, as far as the driver can know."""
        check_native(self, self._read(left_out), input_schema)

    def _native(self, *, retry_misses: bool) -> _core.Native:
        return self._read(looked_up, retry_misses=retry_misses)

    def _read(self, look_up: LookUp, *, retry_misses: bool = False) -> _core.Native:
        options = self.options
        is_encrypted = any(options[name] is not None for name in ("ca", "certificate"))
        form = "rediss://host" if is_encrypted else "redis://host"
        password, certificates = options["password"], certificates_of(options)
        is_known = look_up is looked_up
        server: dict[str, Any] = {
            "url": [reveal(url, look_up, form) for url in self.url],
            "sentinel": options["sentinel"],
            "username": options["username"],
            "password": None if password is None else reveal(password, look_up),
            "database": options["database"],
            "tls": certificates.texts() if is_known else certificates.known_texts(),
            "cluster": options["cluster"],
            "read_from": options["read_from"],
            "connections": options["connections"],
            "connect_timeout": options["connect_timeout"],
            "idle_timeout": options["idle_timeout"],
            "max_reply_bytes": options["max_reply_bytes"],
        }
        named = {f"url {index}": url for index, url in enumerate(self.url)}
        sources, server["sources"] = sources_of({**named, "password": password})
        description = {
            "server": server,
            "command": [text for text, _ in self.arguments],
            "options": [option for _, option in self.arguments],
            "shape": self.shape,
            "reads": self.only_reads,
            "is_split": self.operation == "mget",
            "misses": {"how": options["how"], "retry": retry_misses},
            "required": self.required,
        }
        return _core.Native.redis(json.dumps(description), sources)


def make(
    operation: str,
    url: Url,
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
    urls = _urls(url)
    for argument, option in arguments:
        if not isinstance(argument, str) or argument:  # pyright: ignore[reportUnnecessaryIsInstance]
            text(argument, option, "text with columns in braces")
    # A miss gives nulls, and so does a field that a hash lacks.
    given = cast("list[Any]", list(schema))
    required = tuple(field.name for field in given if not field.nullable)
    fields = [it.with_nullable(True) for it in given]  # noqa: FBT003 - PyArrow has no name for it
    nullable = pa.schema(fields)
    checked = check_options(options)
    if checked["sentinel"] is not None and checked["cluster"]:
        refuse("`sentinel` and `cluster=True` exclude each other: a cluster has no sentinels")
    function = RedisFunction(operation, urls, tuple(arguments), nullable, shape, checked, required)
    function.check()
    return function


def _urls(given: object) -> tuple[str | Secret, ...]:
    urls: list[object] = [given]
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        urls = list(cast("Sequence[object]", given))
    if not urls:
        refuse("`url` must be an address or a list of at least one, got an empty list")
    for url in urls:
        if not isinstance(url, Secret):
            _check_url(url)
    return tuple(cast("list[str | Secret]", urls))


def _check_url(url: object) -> None:
    # The URL may have a password in it, so that only its scheme is quoted.
    *others, last = (f"{scheme}://" for scheme in SCHEMES)
    rule = f"text or a secret that begins with {', '.join(others)} or {last}"
    known = text(url, "url", rule, quoted=False)
    scheme = known.partition("://")[0] if "://" in known else ""
    if scheme.lower() not in SCHEMES:
        found = "text with another beginning" if not scheme.isalnum() else shown(scheme)
        refuse(f"`url` must be {rule}, got {found}")
