# SPDX-License-Identifier: Apache-2.0
"""Drivers that are killed when a sink has a micro-batch that Spark then runs again.

Four streams run in one process, which is killed when each of them stands between the two commits:
see `carry_over_driver`. What comes out is what `docs/streaming.md` says of each sink.
"""

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.spark.carry_over_driver import QUERIES, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
SLOW = 7
"""Is answered when the driver was killed."""
SLOWER = 17
"""Is answered at once, and late if it is asked for again."""
BRIEF, LONG = "50ms", "60s"
"""Ends a micro-batch with calls in flight; waits for their answers."""
QUICK = tuple(id_ for id_ in range(10) if id_ != SLOW)
LATER = tuple(range(20, 25))
ALL = [*range(10), SLOWER, *LATER]
UNSAFE = "at_once-batches"
"""Emits other rows when it runs a micro-batch again, which its sink then skips."""


class Lookups:
    """Doubles numbers and counts who asks for them; holds answers back."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, int]] = Counter()
        self._changed = threading.Condition()
        self._held: set[int] = set()
        lookups = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                query, id_ = json.loads(self.rfile.readline())
                lookups.ask(query, id_)
                self.wfile.write(f"{2 * id_}\n".encode())

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, request, client_address) -> None:
                """Nobody waits for the answer: whoever asked was killed."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def ask(self, query: str, id_: int) -> None:
        with self._changed:
            self.calls[query, id_] += 1
            self._changed.wait_for(lambda: id_ not in self._held)

    def hold(self, *ids: int) -> None:
        """Holds the answers for these back, and gives all others."""
        with self._changed:
            self._held = set(ids)
            self._changed.notify_all()

    def close(self) -> None:
        self.hold()
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Driver:
    """Runs `carry_over_driver` again and again, over one folder."""

    folder: Path
    lookups: Lookups
    kills: int = 0
    process: "subprocess.Popen[str] | None" = None
    _files: int = field(default=0)

    def put(self, ids) -> None:
        """Adds a file, which is read in a micro-batch of its own."""
        lines = "\n".join(json.dumps({"id": id_}) for id_ in ids)
        self._files += 1
        path = self.folder / f"{self._files}.json"
        path.write_text(lines)
        os.utime(path, (self._files, self._files))
        path.rename(self.folder / "source" / path.name)

    def start(self, linger: str, until: Mapping[str, Sequence[int]], then: str = "stand") -> None:
        arguments = [self.folder, str(self.lookups.port), linger, json.dumps(until), then]
        with (self.folder / "errors").open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.carry_over_driver", *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # with its JVM
            )

    def events(self) -> Iterator[list[str]]:
        """Yields what the driver says until it and its JVM have ended."""
        assert self.process is not None
        assert self.process.stdout is not None
        yield from (json.loads(line) for line in self.process.stdout if line.startswith("["))

    def kill(self) -> None:
        """Ends the driver and its JVM at once, and returns when they are gone."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.kills += 1
        for _ in self.events():
            pass
        assert self._ended() == -signal.SIGKILL

    def kill_when_all_stand(self) -> None:
        standing: set[str] = set()
        for what, query in self.events():
            standing |= {query} if what == "stands" else set()
            if standing == set(QUERIES):
                return self.kill()
        raise AssertionError(self.errors)

    def until_executed(self, query: str) -> None:
        """Waits until the query has run one more micro-batch."""
        for event in self.events():
            if event == ["executed", query]:
                return
        raise AssertionError(self.errors)

    def until_end(self) -> None:
        for _ in self.events():
            pass
        assert self._ended() == 0, self.errors

    def _ended(self) -> int:
        assert self.process is not None
        with self.process as process:
            self.process = None
        return process.returncode

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text()[-5000:]

    def close(self) -> None:
        if self.process is not None:
            self.kill()


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A driver that was killed twice, and what its lookups have counted."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "source").mkdir()
    lookups = Lookups()
    driver = Driver(folder, lookups)
    try:
        _kill_and_run_to_the_end(driver, lookups)
        yield driver
    finally:
        driver.close()
        lookups.close()


def _kill_and_run_to_the_end(driver: Driver, lookups: Lookups) -> None:
    # A row is in flight, and completed when the batch is run again.
    driver.put(range(10))
    lookups.hold(SLOW)
    driver.start(BRIEF, dict.fromkeys(QUERIES, QUICK))
    driver.kill_when_all_stand()

    # A row is completed, and in flight when the batch is run again.
    lookups.hold()
    driver.put([SLOWER])
    driver.start(LONG, dict.fromkeys(QUERIES, (SLOWER,)))
    driver.kill_when_all_stand()

    lookups.hold(SLOWER)
    driver.put(LATER)
    twice = {UNSAFE: [*LATER, SLOWER, SLOWER]}
    driver.start(BRIEF, dict.fromkeys(QUERIES, LATER) | twice, then="end")
    driver.until_executed(UNSAFE)
    lookups.hold()
    driver.until_end()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("query", [query for query in QUERIES if query != UNSAFE])
def test_each_row_comes_out_once_though_the_driver_is_killed(killed, query):
    assert killed.kills == 2
    assert sorted(rows_of(killed.folder, query)) == ALL


@pytest.mark.timeout(300)
def test_at_once_loses_and_doubles_what_was_in_flight_if_a_sink_runs_batches_again(killed):
    rows = Counter(rows_of(killed.folder, UNSAFE))

    assert [id_ for id_ in ALL if rows[id_] == 0] == [SLOW]
    assert {id_: count for id_, count in rows.items() if count > 1} == {SLOWER: 2}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("query", [query for query in QUERIES if query != UNSAFE])
def test_only_what_was_in_flight_is_called_again(killed, query):
    calls = killed.lookups.calls
    assert {id_: calls[query, id_] for id_ in ALL} == {id_: 1 + (id_ == SLOW) for id_ in ALL}


@pytest.mark.timeout(300)
def test_what_left_in_a_batch_that_is_run_again_is_called_again(killed):
    calls = {id_: killed.lookups.calls[UNSAFE, id_] for id_ in ALL}

    assert calls[SLOW] == calls[SLOWER] == 2
    assert set(calls.values()) <= {1, 2}
