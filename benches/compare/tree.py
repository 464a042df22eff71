# SPDX-License-Identifier: Apache-2.0
"""Processes and those that they started: CPU time and memory of all together, over time.

Read from ``/proc`` by a thread, CPU time ten times a second and memory twice. Memory is
proportional: a page that several processes share counts once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "Sample",
    "TreeSampler",
    "adopt_orphans",
    "below",
    "cpu_between",
    "kill_below",
    "megabytes",
]

Sample = tuple[int, float, float]
"""Nanoseconds of the monotonic clock, CPU seconds so far, megabytes."""

_SECONDS_BETWEEN = 0.1
_SAMPLES_PER_MEMORY = 5
"""Adding up the pages of a process is costly."""
_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


def adopt_orphans(*, adopts: bool = True) -> None:
    """Makes this process the parent of what its children leave behind, so that it can end it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


def _parents() -> dict[int, tuple[int, float]]:
    """Returns the parent and the CPU seconds of each process, without those of its children."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found[int(stat.parent.name)] = (int(fields[1]), sum(map(int, fields[11:13])) / _TICKS)
    return found


def below(root: int) -> dict[int, float]:
    """Returns the CPU seconds of a process and of all below it, by process id."""
    parents = _parents()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in parents.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, float] = {}
    left = [root]
    while left:
        pid = left.pop()
        if pid in parents:
            found[pid] = parents[pid][1]
            left += children.get(pid, [])
    return found


def kill_below(root: int, spared: set[int]) -> None:
    """Ends all processes below one but those spared, and collects its own children."""
    for _ in range(100):
        found = set(below(root)) - {root} - spared
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for pid in found:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
        time.sleep(0.02)


def megabytes(pid: int) -> float:
    """Returns the proportional memory of a process; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu_between(samples: list[Sample], start_ns: int, end_ns: int) -> float:
    """Returns the CPU seconds between two moments, by interpolation."""
    return _cpu_at(samples, end_ns) - _cpu_at(samples, start_ns)


def _cpu_at(samples: list[Sample], moment: int) -> float:
    if not samples:
        return 0.0
    previous = samples[0]
    for sample in samples:
        if sample[0] >= moment:
            span = sample[0] - previous[0]
            share = (moment - previous[0]) / span if span else 1.0
            return previous[1] + max(0.0, share) * (sample[1] - previous[1])
        previous = sample
    return previous[1]


class TreeSampler:
    """Samples a process and all below it until it is told to stop.

    Attributes:
        samples: The samples so far. What a process that has ended was last seen with stays in.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[int, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tree-sampler", daemon=True)
        self.samples: list[Sample] = []
        self._thread.start()

    @property
    def peak_megabytes(self) -> float:
        """The most memory that all had together."""
        return max((sample[2] for sample in self.samples), default=0.0)

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self._thread.join()

    def add(self, moment: int, cpu_seconds: Mapping[int, float], memory: float) -> None:
        """Takes a last sample, made from inside before the process ended.

        Without it, the memory of a process that is short-lived would be what the first sample saw.
        """
        self.samples = [sample for sample in self.samples if sample[0] < moment]
        last = self.samples[-1] if self.samples else (0, 0.0, 0.0)
        self.samples.append((moment, self._total(cpu_seconds), max(last[2], memory)))

    def _total(self, found: Mapping[int, float]) -> float:
        """Returns the CPU seconds of all processes so far, given those of the living."""
        for pid, seconds in found.items():
            self._seen[pid] = max(seconds, self._seen.get(pid, 0.0))
        return sum(self._seen.values())

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._sample()
            self._stopping.wait(_SECONDS_BETWEEN)

    def _sample(self) -> None:
        found = below(self._root)
        weighs = len(self.samples) % _SAMPLES_PER_MEMORY == 0
        memory = sum(map(megabytes, found)) if weighs else self.samples[-1][2]
        self.samples.append((time.monotonic_ns(), self._total(found), memory))
