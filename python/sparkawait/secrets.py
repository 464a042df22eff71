# SPDX-License-Identifier: Apache-2.0
"""Passwords and tokens that are looked up where they are used.

A `Secret` holds a name. It is pickled into the plan by that name alone and looked up in the
executor, when a task starts; neither its `repr`, nor a plan, a log or an error shows its value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparkawait._plan.checks import is_unicode, refuse
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["LookUp", "Secret", "left_out", "looked_up", "reveal", "secret"]

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
        prefix: Text before the secret, such as ``"Bearer "``.
    """

    name: str | None
    file: str | None = None
    prefix: str = ""

    def __repr__(self) -> str:
        """Names the secret without its prefix, which may say what it is for."""
        return f"secret({self.name!r})" if self.file is None else f"secret(file={self.file!r})"

    def reveal(self) -> str:
        """Looks the secret up, on this machine. Call it in the executor, in ``open``.

        Raises:
            ConfigurationError: If there is neither a variable nor a file.
        """
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


def secret(name: str | None = None, *, file: str | None = None, prefix: str = "") -> Secret:
    """Names a secret that is looked up in the executor.

    Args:
        name: An environment variable; if it is not set, a file of that name in the directory that
            ``SPARKAWAIT_SECRETS_DIR`` names, ``/run/secrets`` by default.
        file: Path of a file that holds the secret, instead of `name`. White space at its end is
            left out.
        prefix: Text to put before the secret, such as ``"Bearer "``.

    Raises:
        ConfigurationError: If not exactly one of `name` and `file` is given.

    Examples:
        >>> secret("API_TOKEN", prefix="Bearer ")
        secret('API_TOKEN')
    """
    given: tuple[object, object] = (name, file)
    if (name is None) == (file is None) or any(isinstance(it, str) and not it for it in given):
        refuse("`secret` needs a name or file=, and not both")
    for option, value in (("name", name), ("file", file), ("prefix", prefix)):
        _check(value, option)
    return Secret(name, file, prefix)


def _check(value: object, option: str) -> None:
    if value is None and option != "prefix":
        return
    if not isinstance(value, str) or "\0" in value or not is_unicode(value):
        # Not quoted: somebody may have given the secret itself.
        refuse(
            f"`{option}` of a secret must be a str without NUL and lone surrogates, got a"
            f" `{type(value).__name__}`"
        )


LookUp = Callable[[Secret, str], str]
"""What gives the text of a secret, told a text of the same form."""


def looked_up(secret: Secret, form: str) -> str:  # noqa: ARG001 - as `LookUp`
    """Looks a secret up, in the executor."""
    return secret.reveal()


def left_out(secret: Secret, form: str) -> str:  # noqa: ARG001 - as `LookUp`
    """Puts the text of the same form in the place of a secret, on the driver."""
    return form


def reveal(value: str | Secret, look_up: LookUp = looked_up, form: str = "secret") -> str:
    """Returns the text of a value that may be a secret."""
    return look_up(value, form) if isinstance(value, Secret) else value


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
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        msg = f"{description}: file `{path}` cannot be read: {reason}"
        raise ConfigurationError(msg, ErrorKind.SECRET_MISSING) from None
