# SPDX-License-Identifier: Apache-2.0
"""CPU time of the clients that a bench compares, beside their rates.

It is that of Spark, its Python worker and this process; the server does the same work for both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame
from session import write_rate

from tests.support.servers import Server

__all__ = ["CpuMeter", "client_seconds"]

_PARENT = 1
_TICKS = slice(11, 15)
"""User and system time, of the process and of its children that have ended."""


class CpuMeter:
    """Takes rates, and the CPU time that each of them took.

    Args:
        server: What answers, if anything does; its time is not counted.
    """

    def __init__(self, server: Server | None = None) -> None:
        self._server = server
        self._seconds: dict[str, list[float]] = {}

    def taking(self, name: str, frame: DataFrame, rows: int) -> Callable[[], float]:
        """Returns a function that computes `frame` and returns its rows per second."""

        def run() -> float:
            before = self._now()
            measured = write_rate(frame, rows)
            taken = (self._now() - before) / rows * 1e6
            self._seconds.setdefault(name, []).append(taken)
            return measured

        return run

    def samples(self, name: str) -> list[float]:
        """Returns the CPU seconds a million rows of each run of `name`, without its first one."""
        return self._seconds[name][1:]

    def details(self, figure: str) -> dict[str, Any]:
        """Prints and returns the median CPU seconds of each client, without its first run."""
        seconds = {name: median(taken[1:]) for name, taken in self._seconds.items()}
        for name, value in seconds.items():
            line = f"{figure}, {name}: {value:.1f} CPU seconds a million rows, Spark included"
            print(line, flush=True)
        return {"cpu_seconds_per_million_rows": seconds}

    def _now(self) -> float:
        process = self._server.process if self._server else None
        return client_seconds(process.pid if process else 0)


def client_seconds(server: int = 0) -> float:
    """Returns the CPU seconds of this process and of all that it has started.

    Args:
        server: The process that is not counted, with what it has started.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(stat.parent.name)
        parents[pid], ticks[pid] = int(fields[_PARENT]), sum(map(int, fields[_TICKS]))

    def is_client(pid: int) -> bool:
        while pid in parents and pid != server:
            if pid == os.getpid():
                return True
            pid = parents[pid]
        return False

    own = sum(spent for pid, spent in ticks.items() if is_client(pid))
    return own / os.sysconf("SC_CLK_TCK")
