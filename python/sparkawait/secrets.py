# SPDX-License-Identifier: Apache-2.0
"""Passwords and tokens that are looked up where they are used.

A `Secret` holds a name, or a function that gets it. It is pickled into the plan by that alone and
looked up in the executor, when a task starts, and again when a server refuses it; neither its
`repr`, nor a plan, a log or an error shows its value.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkawait._checks import is_unicode, refuse, text
from sparkawait.exceptions import ConfigurationError, ErrorKind

DIRECTORY_VARIABLE = "SPARKAWAIT_SECRETS_DIR"
"""Environment variable that names the directory with a file for each secret."""

DEFAULT_DIRECTORY = "/run/secrets"
"""Where containers find their secrets."""

_REDACTED = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""What Spark's ``spark.redaction.regex`` is by default: settings whose names have it are hidden."""


@dataclass(frozen=True)
class Secret:
    """The name of a password or token. Made by `secret`.

    Attributes:
        name: Name of an environment variable, or of a file in the directory of secrets.
        file: Path of the file that holds the secret; ``None`` to look for `name`.
        provider: What returns the secret, called in the executor.
        identity: Equal for providers that do the same.
        prefix: Text before the secret, such as ``"Bearer "``.
    """

    name: str | None
    file: str | None = None
    prefix: str = ""
    provider: Callable[[], str] | None = field(default=None, compare=False)
    identity: str = ""

    def __repr__(self) -> str:
        """Names the secret without its prefix, which may say what it is for."""
        if self.provider is not None:
            return f"secret(provider={_name_of(self.provider)})"
        return f"secret({self.name!r})" if self.file is None else f"secret(file={self.file!r})"

    @property
    def source(self) -> str:
        """What tells this secret from others, whatever its text is at the moment."""
        return json.dumps([self.name, self.file, self.prefix, self.identity])

    @property
    def is_cheap(self) -> bool:
        """Whether it costs no more than to read a file."""
        return self.provider is None

    @property
    def may_change(self) -> bool:
        """Whether it may be another one when it is looked up again, on this machine."""
        return self.name is None or self.name not in os.environ

    def reveal(self) -> str:
        """Looks the secret up, on this machine. Call it in the executor, in ``open``.

        Raises:
            ConfigurationError: If there is neither a variable nor a file, or the provider fails.
        """
        if self.provider is not None:
            return self.prefix + _provided(self.provider, repr(self))
        if self.file is not None:
            return self.prefix + _read(Path(self.file), repr(self))
        name = self.name or ""
        value = os.environ.get(name)
        if value is not None:
            return self.prefix + value
        path = Path(os.environ.get(DIRECTORY_VARIABLE, DEFAULT_DIRECTORY)) / name
        if path.is_file():
            return self.prefix + _read(path, repr(self))
        msg = (
            f"{self!r} was not found: there is no environment variable `{name}` and no file"
            f" `{path}`; {_advice(name)}"
        )
        raise ConfigurationError(msg, ErrorKind.SECRET_MISSING)


def secret(
    name: str | None = None,
    *,
    file: str | None = None,
    provider: Callable[[], str] | None = None,
    prefix: str = "",
) -> Secret:
    """Names a secret that is looked up in the executor, when a task starts.

    Connectors look it up again when a server refuses it, at most once a second in a process;
    `sparkawait.postgres` and `sparkawait.redis` read a file before each new connection, too. What
    cannot be looked up then leaves the last text as it is. `sparkawait.http` does so for ``auth=``
    and for headers that are secrets.

    Args:
        name: An environment variable; if it is not set, a file of that name in the directory that
            ``SPARKAWAIT_SECRETS_DIR`` names, ``/run/secrets`` by default.
        file: Path of a file that holds the secret, instead of `name`. White space at its end is
            left out.
        provider: A function without parameters that returns the secret, such as one that asks a
            vault or makes a token, instead of `name`. It is pickled and called in the executors, on
            a thread of its own when it is called again.
        prefix: Text to put before the secret, such as ``"Bearer "``.

    Raises:
        ConfigurationError: If not exactly one of `name`, `file` and `provider` is given, or the
            provider is not callable or cannot be pickled.

    Examples:
        >>> secret("API_TOKEN", prefix="Bearer ")
        secret('API_TOKEN')
    """
    given: tuple[object, ...] = (name, file, provider)
    # Not compared with a text: an object may do anything then.
    is_empty = any(isinstance(it, str) and not it for it in given)
    if is_empty or sum(it is not None for it in given) != 1:
        refuse("`secret` needs a name, file= or provider=, and one of them only")
    for option, value in (("name", name), ("file", file), ("prefix", prefix)):
        _check(value, option)
    if provider is None:
        return Secret(name, file, prefix)
    if not callable(provider):
        refuse(f"`provider` of a secret must be callable, got a `{type(provider).__name__}`")
    return Secret(None, None, prefix, provider, _identity_of(provider))


def a_password(value: object, name: str) -> str | Secret:
    """Returns a password that was given as a text or a secret, or refuses it without quoting it."""
    if isinstance(value, Secret):
        return value
    return text(value, name, "a str or a secret", quoted=False)


def is_content(given: str) -> bool:
    """Whether a text is a key or a certificate, and not the name or the path of one."""
    return "-----BEGIN" in given or "\n" in given or "\r" in given


def _check(value: object, option: str) -> None:
    if value is None and option != "prefix":
        return
    if isinstance(value, str) and option != "prefix" and is_content(value):
        refuse(
            f"`{option}` of a secret must say where it is, got a text with line breaks or a key;"
            " put that into a file or an environment variable"
        )
    if not isinstance(value, str) or "\0" in value or not is_unicode(value):
        # Not quoted: somebody may have given the secret itself.
        refuse(
            f"`{option}` of a secret must be a str without NUL and lone surrogates, got a"
            f" `{type(value).__name__}`"
        )


def _identity_of(provider: Callable[[], str]) -> str:
    # Spark's pickler, which takes functions of a notebook, where there is one.
    pickler: Any = sys.modules.get("pyspark.cloudpickle", pickle)
    try:
        return hashlib.sha256(pickler.dumps(provider)).hexdigest()
    except Exception as error:  # noqa: BLE001 - whatever an object does when it is pickled
        if pickler is pickle:
            # Nothing travels without Spark.
            return uuid.uuid4().hex
        refuse(
            f"`provider` of a secret, {_name_of(provider)}, cannot be pickled for the executors:"
            f" {type(error).__name__}: {error}"
        )


def _name_of(provider: Callable[[], str]) -> str:
    return str(getattr(provider, "__qualname__", type(provider).__qualname__))


def _provided(provider: Callable[[], str], description: str) -> str:
    try:
        provided = provider()
    except Exception as error:  # noqa: BLE001 - whatever it is that a provider raises
        # Not quoted: it may have the secret in it.
        msg = f"{description} raised a `{type(error).__name__}`"
        raise ConfigurationError(msg, ErrorKind.SECRET_MISSING) from None
    if not isinstance(provided, str) or not provided:  # pyright: ignore[reportUnnecessaryIsInstance]
        found = "an empty str" if provided == "" else f"a `{type(provided).__name__}`"
        msg = f"{description} must return a str that is not empty, got {found}"
        raise ConfigurationError(msg, ErrorKind.SECRET_MISSING)
    return provided


LookUp = Callable[[Secret, str], str]
"""What gives the text of a secret, told a text of the same form."""


def looked_up(secret: Secret, form: str) -> str:  # noqa: ARG001 - as `LookUp`
    """Looks a secret up, in the executor."""
    return secret.reveal()


def left_out(secret: Secret, form: str) -> str:  # noqa: ARG001 - as `LookUp`
    """Replaces a secret by a text of the same form, on the driver."""
    return form


def reveal(value: str | Secret, look_up: LookUp = looked_up, form: str = "secret") -> str:
    """Returns the text of a value that may be a secret."""
    return look_up(value, form) if isinstance(value, Secret) else value


Sources = dict[str, tuple[Callable[[], str], bool]]
"""What reads secrets again, by the names that a description gives them, and whether it is cheap."""


def sources_of(values: Mapping[str, object]) -> tuple[Sources, dict[str, str]]:
    """Returns what reads those values again that are secrets, and what tells these from others."""
    secrets = {name: it for name, it in values.items() if isinstance(it, Secret)}
    sources: Sources = {name: (it.reveal, it.is_cheap) for name, it in secrets.items()}
    return sources, {name: it.source for name, it in secrets.items()}


def _advice(name: str) -> str:
    """Says how a secret gets to the executors without being shown to those who look at Spark."""
    return (
        f"{_places(name)}. A variable that is set on the driver after Spark has started does not"
        " reach the workers: set it before, or start the session again"
    )


def _places(name: str) -> str:
    advice = (
        "put the file there on every executor, as the secrets of containers and of Kubernetes are"
        f" mounted, or let `{DIRECTORY_VARIABLE}` name another directory"
    )
    if _REDACTED.search(name):
        return f"{advice}; or set the variable by the Spark setting `spark.executorEnv.{name}`"
    return (
        f"{advice}. The Spark setting `spark.executorEnv.{name}` would work, but Spark shows its"
        " value in its UI and event log: it hides only settings with `secret`, `password`, `token`"
        " or `access key` in their name (`spark.redaction.regex`)"
    )


def _read(path: Path, description: str) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        msg = f"{description}: file `{path}` cannot be read: {reason}"
        raise ConfigurationError(msg, ErrorKind.SECRET_MISSING) from None
