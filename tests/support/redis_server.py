# SPDX-License-Identifier: Apache-2.0
"""Real Redis servers on free loopback ports, with a directory of their own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Self

__all__ = ["RedisServer", "free_port", "openssl_certificates"]

START_SECONDS = 20


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class RedisServer:
    """A server, as a context manager; `stop` and `start` keep its port."""

    def __init__(self, *arguments: str, cli: Sequence[str] = (), tls: bool = False) -> None:
        """Prepares a server.

        Args:
            *arguments: Further arguments of ``redis-server``.
            cli: Further arguments of ``redis-cli``, such as a password.
            tls: Whether the only port speaks TLS.
        """
        self.port = free_port()
        self.arguments = arguments
        self.cli_arguments = tuple(cli)
        self.tls = tls
        self.directory = Path(tempfile.mkdtemp(prefix="redis-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'rediss' if self.tls else 'redis'}://localhost:{self.port}"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        binary = shutil.which("redis-server")
        assert binary, "redis-server is missing; apt-get install redis-server"
        port = ["--port", "0", "--tls-port"] if self.tls else ["--port"]
        settings = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
        place = ["--dir", str(self.directory)]
        self._process = subprocess.Popen(
            [binary, *port, str(self.port), *settings, *place, *self.arguments],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while "PONG" not in self.cli("ping", check=False):
            assert self._process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < deadline, "redis-server does not answer"

    def stop(self) -> None:
        """Kills it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cli(self, *arguments: str, stdin: bytes | None = None, check: bool = True) -> str:
        """Runs ``redis-cli``, and returns what it printed."""
        run = subprocess.run(
            ["redis-cli", "-p", str(self.port), *self.cli_arguments, *arguments],
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=check,
        )
        return (run.stdout + run.stderr).decode()

    def load(self, commands: Sequence[Sequence[str]]) -> None:
        """Sends commands, all at once."""
        packed = b""
        for command in commands:
            packed += f"*{len(command)}\r\n".encode()
            for argument in command:
                packed += f"${len(argument.encode())}\r\n{argument}\r\n".encode()
        printed = self.cli("--pipe", stdin=packed)
        assert "errors: 0" in printed, printed

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def openssl_certificates(directory: Path) -> dict[str, Path]:
    """Makes an authority and a certificate of it for ``localhost``."""
    paths = {name: directory / f"{name}.pem" for name in ("ca", "ca_key", "cert", "key", "request")}
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]

    def openssl(*arguments: str | Path) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    ca, ca_key, cert, key, request = paths.values()
    authority = ["-x509", *new_key, "-days", "2", "-subj", "/CN=test authority"]
    openssl("req", *authority, "-keyout", ca_key, "-out", ca)
    openssl("req", *new_key, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    extensions = directory / "extensions"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    signing = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2"]
    openssl("x509", "-req", "-in", request, *signing, "-extfile", extensions, "-out", cert)
    return paths
