# SPDX-License-Identifier: Apache-2.0
"""Jobs under a schedule of faults, until a time is over.

``python -m tests.cluster.soak SECONDS [SEED] [ROWS] [cluster]``: a journal, limits of the job at a
Redis and at the driver, retries; on one host, or on a cluster of two executors. Each round is a job
of some rows; the more there are, the faster they go. ``SEED`` draws its faults, which are printed.
They come after so many calls of the round, so they come again. After each round rows and calls are
compared with what the service has counted. The driver is a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from benches.compare.tree import below
from tests.cluster.soak_driver import BURST, CALLS, PARTITIONS, ROOT, rate_of
from tests.support.redis_server import RedisServer
from tests.support.shifted_clock import ShiftedClock
from tests.support.spark_cluster import SparkCluster, python_workers
from tests.support.waiting import wait_until

COMMIT = 997
"""Rows that a journal may lose with a worker, beside those in flight."""
KINDS = (
    "reset",
    "refuse",
    "stop",
    "kill",
    "halt",
    "redis",
    "full",
    "clock",
    "driver",
    "kill executor",
)
"""The last one on a cluster only."""
ROWS_OF_A_FAULT = 20_011
LEAST_FAULTS = 3
HOUR = 3_607
_PATH = re.compile(rb"GET /(\d+) ")


@dataclass(frozen=True)
class Fault:
    """What happens after so many calls of a round.

    Attributes:
        after: Calls.
        kind: ``reset`` and ``refuse``: so many calls; ``stop``: a worker stands still; ``halt``:
            half of them; ``kill`` and ``kill executor``: SIGKILL; ``redis``: the server of a limit
            is away; ``full``: no worker can write a file; ``clock``: Redis and workers are told
            another time, up to an hour from the right one; ``driver``: SIGKILL, and the job starts
            again.
        size: Calls, or tenths of a second.
        draw: Picks a process, or a time.
    """

    after: int
    kind: str
    size: int
    draw: float

    def __str__(self) -> str:
        """Says so in some words."""
        return f"after {self.after} calls {self.kind} ({self.size})"


def schedule(seed: int, number: int, rows: int, *, on_cluster: bool) -> list[Fault]:
    """Returns the faults of a round, which are the same for the same numbers."""
    drawn = random.Random(f"{seed} {number}")  # noqa: S311 - it is to come again
    kinds, drawn_kinds = KINDS if on_cluster else KINDS[:-1], list[str]()
    for _ in range(0, max(rows, LEAST_FAULTS * ROWS_OF_A_FAULT), LEAST_FAULTS * ROWS_OF_A_FAULT):
        drawn_kinds += drawn.sample(kinds, LEAST_FAULTS)
    faults = [
        Fault(drawn.randrange(13, rows * 3 // 4), it, drawn.randrange(3, 31), drawn.random())
        for it in drawn_kinds
    ]
    return sorted(faults, key=lambda it: it.after)


class Service:
    """Answers each row with a number that is its own, and counts; in a thread.

    Attributes:
        calls: How often it was called for each row.
        times: When each call came.
        failed: Calls that it has reset or refused.
        most: Calls at a time.
    """

    def __init__(self) -> None:
        """Listens."""
        self.calls: Counter[int] = Counter()
        self.times: list[float] = []
        self.failed = self.flying = self.most = 0
        self.resets = self.refusals = 0
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def begin(self) -> None:
        """Forgets what it has counted."""
        self.calls, self.times = Counter(), []
        self.failed = self.most = self.resets = self.refusals = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = _PATH.match(head)
                assert found is not None
                row = int(found[1])
                self.calls[row] += 1
                self.times.append(time.monotonic())
                self.flying += 1
                self.most = max(self.most, self.flying)
                await asyncio.sleep(0.007)
                self.flying -= 1
                if self.resets:
                    self.resets, self.failed = self.resets - 1, self.failed + 1
                    # The connection is closed by a reset, and not by an end.
                    linger = struct.pack("ii", 1, 0)
                    found = writer.get_extra_info("socket")
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    break
                body = b'{"v": %d}' % (7 * row)
                status = b"200 OK"
                if self.refusals:
                    self.refusals, self.failed = self.refusals - 1, self.failed + 1
                    status, body = b"429 Too Many Requests", b"{}"
                sized = b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)
                writer.write(sized)
                await writer.drain()
        writer.close()


@dataclass
class Round:
    """What a round came to.

    Attributes:
        calls: Calls that the service has counted.
        refused: Of these, those that it has refused or reset.
        again: Calls for rows that had been called for and not refused.
        kills: Executors and workers that were killed.
        stops: Those that stood still, or could not write, or were told another time.
        drivers: Drivers that were killed.
    """

    calls: int = 0
    refused: int = 0
    again: int = 0
    kills: int = 0
    stops: int = 0
    drivers: int = 0
    wrong: list[str] = field(default_factory=list[str])


class Driver:
    """The process of a driver, which runs one job after another.

    Args:
        settings: What it is told at its start.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        """Starts it, and waits for its session."""
        with Listener(family="AF_UNIX") as listener:
            command = [sys.executable, "-m", "tests.cluster.soak_driver", str(listener.address)]
            self._process = subprocess.Popen(command, cwd=ROOT)
            self.pid = self._process.pid
            self._connection: Connection = listener.accept()
        self._killing = threading.Lock()
        self.ask(settings)

    def ask(self, order: dict[str, Any]) -> Any:
        """Returns what it answers.

        Raises:
            EOFError: If it was killed.
        """
        try:
            self._connection.send(order)
            return self._connection.recv()
        except OSError as error:
            raise EOFError from error

    def kill(self) -> None:
        """Kills it, and waits until what it has started has ended by itself."""
        with self._killing:
            left = below(self.pid)
            self._process.kill()
            self._process.wait()
            wait_until(lambda: not any(map(_rss_of, left)))

    def end(self) -> None:
        """Ends it and its session."""
        self._connection.close()
        self._process.wait()


class Soak:
    """A cluster, a Redis, a service, and a driver."""

    def __init__(
        self, folder: Path, cluster: SparkCluster | None, redis: RedisServer, clock: ShiftedClock
    ) -> None:
        """Starts the session."""
        self._folder, self._cluster, self._redis, self._clock = folder, cluster, redis, clock
        self.service = Service()
        self._driver = self._start()

    def _start(self) -> Driver:
        # The clock of executors is that of their JVM, too, which Spark does not like to jump.
        of_workers = self._clock.environment if self._cluster is None else {}
        master = None if self._cluster is None else self._cluster.address
        return Driver({"master": master, "environment": of_workers, "url": self.service.url})

    def round(self, number: int, rows: int, faults: list[Fault]) -> Round:
        """Runs a job, and the same once more, which knows all answers."""
        self.service.begin()
        journal, found = self._folder / f"journal{number}", Round()
        order = {
            "journal": str(journal),
            "rows": rows,
            "name": f"soak {number}",
            "redis": self._redis.url,
        }
        with self._faults(faults, found):
            first = self._answers(order)
        calls = self.service.calls
        found.calls, found.refused = calls.total(), self.service.failed
        found.again = found.calls - found.refused - rows
        self._check(found, rows, first)
        again = self._answers(order)
        if calls.total() != found.calls:
            found.wrong.append(f"{calls.total() - found.calls} calls for what is known")
        if any(again.values()):
            found.wrong.append(f"of the journal: {again}")
        shutil.rmtree(journal)
        return found

    def _check(self, found: Round, rows: int, answers: dict[str, int]) -> None:
        wrong, rate = found.wrong, rate_of(rows)
        if any(answers.values()):
            wrong.append(f"{answers}")
        disturbed = found.kills + found.stops + found.drivers
        most = disturbed * (PARTITIONS * COMMIT)
        if not 0 <= found.again <= most:
            wrong.append(f"{found.again} calls again, {most} at most")
        if self.service.most > CALLS and not disturbed:
            wrong.append(f"{self.service.most} calls at a time")
        # Those in flight of a worker that stood still arrive later; a Redis that was killed has
        # forgotten what was taken.
        beyond = _most_beyond(self.service.times, rate)
        if beyond > CALLS + (rate if disturbed else 0):
            wrong.append(f"{beyond:.0f} calls beyond the limit")
        # What a driver has counted that was killed is gone. A killed worker has told what it had
        # counted a second ago.
        least = found.calls - found.kills * rate
        if found.drivers == 0:
            counted = self._driver.ask({"least": least})
            if counted < least or counted > found.calls + found.kills * rate:
                wrong.append(f"{counted} counted of {found.calls} calls")

    def _answers(self, order: dict[str, Any]) -> dict[str, int]:
        while True:
            try:
                return self._driver.ask(order)
            except EOFError:
                self._driver.kill()
                self._driver = self._start()

    def end(self) -> None:
        """Ends the session."""
        self._driver.end()

    @contextlib.contextmanager
    def _faults(self, faults: list[Fault], found: Round) -> Iterator[None]:
        is_over = threading.Event()
        undo: list[Callable[[], object]] = []

        def watch() -> None:
            for fault in faults:
                while len(self.service.times) < fault.after:
                    if is_over.wait(0.003):
                        return
                with contextlib.suppress(ProcessLookupError, IndexError, PermissionError):
                    undo.append(self._make(fault, found))
                    is_over.wait(fault.size / 10)
                    undo.pop()()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()

    def _make(self, fault: Fault, found: Round) -> Callable[[], object]:
        """Makes a fault; returns what ends it."""
        service, workers = self.service, self.workers()
        one = workers[int(fault.draw * len(workers)) :][:1]
        match fault.kind:
            case "reset":
                service.resets = fault.size
            case "refuse":
                service.refusals = 7 * fault.size
            case "redis":
                self._redis.kill()
                found.stops += 1
                return self._redis.start
            case "clock":
                found.stops += 1
                self._clock.set(int(2 * HOUR * (fault.draw - 0.5)))
                return lambda: self._clock.set(0)
            case "driver":
                found.drivers += 1
                self._driver.kill()
            case "kill" | "kill executor":
                found.kills += 1
                pids = one if fault.kind == "kill" else self._executors()[:1]
                os.kill(pids[0], signal.SIGKILL)
            case "stop" | "halt":
                found.stops += 1
                pids = one if fault.kind == "stop" else workers[: len(workers) // 2]
                for pid in pids:
                    os.kill(pid, signal.SIGSTOP)
                return lambda: _signal(pids, signal.SIGCONT)
            case _:
                found.stops += 1
                _let_write(workers, 0)
                return lambda: _let_write(workers, resource.RLIM_INFINITY)
        return lambda: None

    def memory(self) -> float:
        """Returns what the workers have, in MB."""
        return sum(map(_rss_of, self.workers())) / 1e6

    def memory_of_driver(self) -> float:
        """Returns what the driver has, without its JVM, in MB."""
        return _rss_of(self._driver.pid) / 1e6

    def workers(self) -> list[int]:
        """Returns the Python workers."""
        if self._cluster is not None:
            return self._cluster.python_workers()
        return python_workers(self._driver.pid)

    def _executors(self) -> list[int]:
        return [] if self._cluster is None else self._cluster.executors()


def _signal(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)


def _let_write(pids: list[int], most: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def _rss_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    return 0


def _most_beyond(times: list[float], rate: int) -> float:
    """Returns by how much arrivals exceed the limit, in the worst window."""
    worst, level, last = 0.0, 0.0, None
    for at in sorted(times):
        level = 1 + (0.0 if last is None else max(level - rate * (at - last), 0.0))
        worst, last = max(worst, level), at
    return worst - BURST


def tell(line: str) -> None:
    """Writes a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(seconds: float, seed: int, rows: int, *, on_cluster: bool = False) -> int:
    """Runs rounds for so long; returns how many were wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster").mkdir()
        with contextlib.ExitStack() as stack:
            clock, cluster = ShiftedClock(folder), None
            redis = stack.enter_context(RedisServer(env={**os.environ, **clock.environment}))
            if on_cluster:
                cluster = stack.enter_context(SparkCluster(folder / "cluster", cores=2))
            soak, wrong, done = Soak(folder, cluster, redis, clock), 0, 0
            ends = time.monotonic() + seconds
            while done == 0 or time.monotonic() < ends:
                faults = schedule(seed, done, rows, on_cluster=on_cluster)
                tell(f"seed {seed}, round {done}: {'; '.join(map(str, faults))}")
                begun = time.monotonic()
                found = soak.round(done, rows, faults)
                took = time.monotonic() - begun
                done += 1
                tell(
                    f"  {rows} rows in {took:.1f} s: {found.calls} calls, {found.refused} refused,"
                    f" {found.again} again, {found.kills} killed, {found.stops} stopped,"
                    f" {found.drivers} drivers, {soak.memory():.0f} MB, the driver"
                    f" {soak.memory_of_driver():.0f} MB",
                )
                for it in found.wrong:
                    tell(f"  WRONG: {it}")
                wrong += bool(found.wrong)
            soak.end()
    tell(f"{done} rounds, {done * rows} rows, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    words = [it for it in sys.argv[1:] if it != "cluster"]
    time_, seed_, rows_ = [*words, *["60", "1", "1013"][len(words) :]]
    sys.exit(main(float(time_), int(seed_), int(rows_), on_cluster="cluster" in sys.argv) > 0)
