# SPDX-License-Identifier: Apache-2.0
"""Pythons with packages of their own, as users make them, and programs that run in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.servers import LOOPBACK

__all__ = ["Environment"]

_FOUND = ("PATH", "HOME", "JAVA_HOME", "JDK_JAVA_OPTIONS", "LANG", "TMPDIR", "SSL_CERT_FILE")
"""What a shell without settings of Python and Spark has."""


class Environment:
    """A Python and its packages.

    Attributes:
        folder: Its prefix, whose ``bin`` goes before others on PATH where it is activated.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def venv(folder: Path, *, beside: Environment | None = None) -> Environment:
        """Makes an empty one by ``python -m venv``, which also sees what another one has."""
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        made = Environment(folder)
        if beside is not None:
            made.see(beside)
        return made

    @staticmethod
    def prefix(folder: Path, packages: Path) -> Environment:
        """Makes one as conda lays it out: an interpreter with a prefix of its own, and no venv."""
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        own, library = folder / "lib" / version, Path(sysconfig.get_path("stdlib"))
        own.mkdir(parents=True)
        (folder / "bin").mkdir()
        shutil.copy2(Path(sys.executable).resolve(), folder / "bin" / version)
        (folder / "bin" / "python").symlink_to(version)
        # An interpreter takes the prefix in which it finds its library.
        for entry in library.iterdir():
            if entry.name not in {"site-packages", "dist-packages"}:
                (own / entry.name).symlink_to(entry)
        (own / "site-packages").symlink_to(packages)
        return Environment(folder)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return self.folder / "lib" / version / "site-packages"

    @property
    def spark_home(self) -> Path:
        return self.packages / "pyspark"

    def see(self, other: Environment) -> None:
        """Has it find the packages of another one behind its own."""
        (self.packages / "beside.pth").write_text(f"{other.packages}\n")

    def install(self, *what: str | Path) -> None:
        """Installs packages as a user does."""
        command = [self.python, "-m", "pip", "install", "--quiet", *what]
        installed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert installed.returncode == 0, installed.stderr[-3000:]

    def run(
        self, *command: str | Path, cwd: Path, activated: bool = False, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in a shell where nothing is set but what activation sets."""
        variables = {name: os.environ[name] for name in _FOUND if name in os.environ}
        if activated:
            variables["VIRTUAL_ENV"] = str(self.folder)
            variables["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{variables['PATH']}"
        return subprocess.run(
            command,
            cwd=cwd,
            env={**variables, "SPARK_LOCAL_IP": LOOPBACK, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
