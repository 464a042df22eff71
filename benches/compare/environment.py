# SPDX-License-Identifier: Apache-2.0
"""Virtual environments of peers, each with locked packages, none of them the project's own."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

__all__ = ["FOLDER", "ROOT", "NotInstalledError", "ensure", "is_installed", "python_of"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "compare"
"""Where the environments are, and what peers leave behind."""

_INSTALL_SECONDS = 1_800.0
_LINES_OF_OUTPUT = 5


class NotInstalledError(Exception):
    """A peer cannot run on this machine; the message is the reason that the report gives."""


def lock_of(name: str) -> Path:
    """Returns the file with the locked packages of an environment."""
    return ROOT / "requirements" / f"compare-{name}.lock"


def python_of(name: str) -> Path:
    """Returns the Python of an environment, whether it is there or not."""
    return FOLDER / name / "bin" / "python"


def is_installed(name: str) -> bool:
    """Tells whether the environment is there and as its lock says."""
    stamp = _stamp(name)
    return stamp.exists() and stamp.read_text() == _digest(name)


def ensure(name: str) -> None:
    """Makes the environment, unless it is there.

    Raises:
        NotInstalledError: If a package is not to be had for this machine.
    """
    if is_installed(name):
        return
    print(f"installing requirements/compare-{name}.lock", flush=True)
    python = python_of(name)
    if not python.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(python.parents[1])])
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--prefer-binary"]
    # The lock names all of them; older versions of pip do not find `google-auth[pyopenssl]` in it.
    options.append("--no-deps")
    _run([str(python), "-m", "pip", "install", *options, "--requirement", str(lock_of(name))])
    _stamp(name).write_text(_digest(name))


def _stamp(name: str) -> Path:
    return FOLDER / name / ".installed"


def _digest(name: str) -> str:
    return hashlib.sha256(lock_of(name).read_bytes()).hexdigest()


def _run(command: list[str]) -> None:
    try:
        subprocess.run(  # noqa: S603 - our own Python
            command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS
        )
    except subprocess.CalledProcessError as error:
        lines = f"{error.stdout}\n{error.stderr}".strip().splitlines()
        raise NotInstalledError("; ".join(lines[-_LINES_OF_OUTPUT:])) from error
    except subprocess.TimeoutExpired as error:
        raise NotInstalledError(f"not installed within {_INSTALL_SECONDS:.0f} s") from error
