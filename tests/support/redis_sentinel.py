# SPDX-License-Identifier: Apache-2.0
"""A real Redis sentinel for tests, which watches a primary and replaces it by a replica."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.redis_server import RedisServer
from tests.support.servers import LOOPBACK, START_SECONDS, Server, find_program, free_port

__all__ = ["RedisSentinel"]

SILENCE_MS = 700
"""A primary that is silent for so long is lost."""


class RedisSentinel(Server):
    """One sentinel, which needs no other to decide; as a context manager.

    Args:
        name: What it calls the primary.
        primary: The primary, which runs.
        password: What those who ask the sentinel have to know.
    """

    def __init__(self, name: str, primary: RedisServer, password: str = "") -> None:
        self.name = name
        self.cli_arguments = ["-a", password] if password else []
        port = free_port()
        directory = Path(tempfile.mkdtemp(prefix="redis-sentinel-"))
        settings = directory / "sentinel.conf"
        lines = [
            f"port {port}",
            f"bind {LOOPBACK}",
            f"sentinel monitor {name} {LOOPBACK} {primary.port} 1",
            f"sentinel down-after-milliseconds {name} {SILENCE_MS}",
            f"sentinel failover-timeout {name} 1000",
            *([f"requirepass {password}"] if password else []),
        ]
        settings.write_text("\n".join(lines) + "\n")
        command = [find_program("redis-server"), str(settings), "--sentinel"]
        super().__init__(command, port, directory)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://{LOOPBACK}:{self.port}"

    def ask(self, *arguments: str) -> str:
        """Asks it something about its primary."""
        command = ["redis-cli", "-p", str(self.port), *self.cli_arguments, "sentinel", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def wait_for_replica(self) -> None:
        """Returns when it knows a replica that could take over."""
        deadline = time.monotonic() + START_SECONDS
        while "master-link-status\nok" not in self.ask("replicas", self.name):
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def __exit__(self, *details: object) -> None:
        """Stops it, and removes what it left."""
        super().__exit__(*details)
        shutil.rmtree(self.directory, ignore_errors=True)
