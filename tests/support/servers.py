# SPDX-License-Identifier: Apache-2.0
"""Real servers for tests: programs on free loopback ports, each with a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Self

__all__ = ["LOOPBACK", "START_SECONDS", "Server", "find_program", "free_port"]

LOOPBACK = "127.0.0.1"

START_SECONDS = 25.0
"""A server that does not accept connections by then does not start at all."""

STOP_SECONDS = 10.0
"""A server that is asked to stop and has not ended by then is killed."""


_held: list[socket.socket] = []


def free_port() -> int:
    """Returns a port of the loopback interface that nobody else is given, and nobody listens on.

    It stays bound until the process ends: the system gives it to nobody who asks for any port, and
    who connects is refused. A server that sets ``SO_REUSEADDR``, as most do, can listen there.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((LOOPBACK, 0))
    _held.append(held)
    return held.getsockname()[1]


def find_program(name: str) -> str:
    """Returns the path of a server program; those of Debian may lie off the PATH.

    Skips the test if it is not installed, but not in CI.

    Raises:
        RuntimeError: If it is not installed, in CI.
    """
    places = ["/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin")))]
    path = os.pathsep.join([os.environ.get("PATH", ""), *places])
    found = shutil.which(name, path=path)
    if found is None:
        msg = f"`{name}` is not installed; run `tools/install-servers`"
        if os.environ.get("CI") != "true":
            pytest.skip(msg)
        raise RuntimeError(msg)
    return found


class Server:
    """A server program that accepts connections on one port, until it is stopped.

    Args:
        command: The program and its arguments; it must stay in the foreground.
        port: The port that it listens on.
        directory: Where it runs, and where its output goes to ``server.log``.
        options: Further arguments of `subprocess.Popen`, such as ``user=``.
    """

    start_seconds = START_SECONDS

    def __init__(self, command: Sequence[str], port: int, directory: Path, **options: Any) -> None:
        self.command = list(command)
        self.port = port
        self.directory = directory
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Starts the server."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the server."""
        self.stop()

    @property
    def log(self) -> str:
        """What the server has printed."""
        path = self.directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Starts the server and returns when it accepts connections."""
        with (self.directory / "server.log").open("ab") as log:
            # A group of its own, so that a server's children end with it.
            self.process = subprocess.Popen(
                self.command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.options,
            )
        self._wait_until_it_accepts(self.process)

    def stop(self) -> None:
        """Asks the server to end, and waits for that; no error if it does not run."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self) -> None:
        """Ends the server and its children at once, as a crash would."""
        if self.process is not None:
            self._signal(self.process, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stops the server's and its children's work; connections stay open and stall."""
        if self.process is not None:
            self._signal(self.process, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused server go on."""
        if self.process is not None:
            self._signal(self.process, signal.SIGCONT)

    def restart(self) -> None:
        """Kills the server and starts it again, on the same port and directory."""
        self.kill()
        self.start()

    @staticmethod
    def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def _wait_until_it_accepts(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.start_seconds
        while True:
            code = process.poll()
            if code is not None:
                self.process = None
                msg = f"`{self.command[0]}` ended with code {code}:\n{self.log}"
                raise RuntimeError(msg)
            try:
                socket.create_connection((LOOPBACK, self.port), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline:
                    self.kill()
                    msg = f"`{self.command[0]}` accepts no connection:\n{self.log}"
                    raise RuntimeError(msg) from None
                time.sleep(0.02)
            else:
                return
