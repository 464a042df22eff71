# SPDX-License-Identifier: Apache-2.0
"""Passwords and tokens that are looked up where they are used.

A `Secret` holds a name. It is pickled into the plan by that name alone and looked up in the
executor, when a task starts; neither its `repr`, nor a plan, a log or an error shows its value.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["Secret", "reveal", "secret"]

DIRECTORY_VARIABLE = "SPARKAWAIT_SECRETS_DIR"
"""Environment variable that names the directory with a file for each secret."""

DEFAULT_DIRECTORY = "/run/secrets"
"""Where containers find their secrets."""


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
            f" `{path}`; set one of them on every executor, for example by the Spark setting"
            f" `spark.executorEnv.{name}`"
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
    if (name is None) == (file is None) or "" in (name, file):
        msg = "`secret` needs a name or file=, and not both"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    return Secret(name, file, prefix)


def reveal(value: str | Secret) -> str:
    """Returns the text of a value that may be a secret."""
    return value.reveal() if isinstance(value, Secret) else value


def _read(path: Path, description: str) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        msg = f"{description}: file `{path}` cannot be read: {reason}"
        raise ConfigurationError(msg, ErrorKind.SECRET_MISSING) from None
