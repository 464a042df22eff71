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

__all__ = ["RedisServer"]


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

    def load(self, commands: Sequence[Sequence[str]], *, expect: str | None = None) -> None:
        """Sends commands, all at once; errors are only allowed if they say what is expected."""
        packed = bytearray()
        for command in commands:
            packed += f"*{len(command)}\r\n".encode()
            for argument in command:
                packed += f"${len(argument.encode())}\r\n{argument}\r\n".encode()
        printed = self.cli("--pipe", stdin=bytes(packed), check=expect is None)
        count = 0 if expect is None else printed.count(expect)
        assert f"errors: {count}" in printed, printed

    def __exit__(self, *_: object) -> None:
        """Stops it, and removes what it left."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
