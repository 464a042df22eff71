# SPDX-License-Identifier: Apache-2.0
"""Real Redis servers on free loopback ports, with a directory of their own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.servers import START_SECONDS, Server, find_program, free_port

__all__ = ["RedisServer", "openssl_certificates"]


class RedisServer(Server):
    """A server, as a context manager; it keeps its port when it starts again."""

    def __init__(
        self, *arguments: str, cli: Sequence[str] = (), tls: bool = False, **options: Any
    ) -> None:
        """Prepares a server.

        Args:
            *arguments: Further arguments of ``redis-server``.
            cli: Further arguments of ``redis-cli``, such as a password.
            tls: Whether the only port speaks TLS.
            **options: Further arguments of `Server`.
        """
        port = free_port()
        directory = Path(tempfile.mkdtemp(prefix="redis-"))
        self.cli_arguments = tuple(cli)
        self.tls = tls
        listen = ["--port", "0", "--tls-port", str(port)] if tls else ["--port", str(port)]
        settings = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
        command = [find_program("redis-server"), *listen, *settings, *arguments]
        super().__init__(command, port, directory, **options)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'rediss' if self.tls else 'redis'}://localhost:{self.port}"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        super().start()
        deadline = time.monotonic() + START_SECONDS
        while "PONG" not in self.cli("ping", check=False):
            assert time.monotonic() < deadline, self.log

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

    def __exit__(self, *_: object) -> None:
        """Stops it, and removes what it left."""
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
