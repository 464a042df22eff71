# SPDX-License-Identifier: Apache-2.0
"""What a journal has is not called for again, wherever a process is killed.

``JOURNAL_KILLS=30 JOURNAL_ROWS=30000`` kills more often.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.journal_program import COST, MOST_CALLS
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

_logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("JOURNAL_KILLS", "3"))
ROWS = int(os.environ.get("JOURNAL_ROWS", "3011"))
MODES = ("ordered_wait", "unordered_wait", "key_ordered_wait")


class Service:
    """Counts its calls, and answers each with what it was asked."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.lock = threading.Lock()

    def __call__(self, target: str, _before: int) -> Answer:
        id_ = int(target[1:])
        with self.lock:
            self.calls[id_] += 1
        return 200, {}, json.dumps({"name": f"name of {id_}"}).encode()

    @property
    def total(self) -> int:
        with self.lock:
            return self.calls.total()


def children(process: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        return [int(it) for task in tasks for it in (task / "children").read_text().split()]
    except OSError:
        return []


def is_daemon(process: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def workers_of(process: int) -> list[int]:
    """The Python workers below a driver: children of a daemon."""
    found = []
    for child in children(process):
        found += children(child) if is_daemon(child) else workers_of(child)
    return found


def kept_rows(folder: Path, columns: list[str]) -> list[dict[str, object]]:
    """The rows of a journal at which nobody works."""
    files = sorted(folder.glob("[!_.]*.parquet"))
    return [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]


def committed(folder: Path) -> tuple[dict[int, str], Counter[object]]:
    """The rows of a journal with their results, and how many there are of each commit."""
    names: dict[int, str] = {}
    sizes: Counter[object] = Counter()
    for _ in range(20):
        names.clear()
        sizes.clear()
        try:
            # One that begins with a dot was being written.
            for file in sorted(folder.glob("[!.]*.parquet")):
                rows = pq.read_table(file, columns=["input", "result", "at", "kind"]).to_pylist()
                assert {row["kind"] for row in rows} == {"ok"}
                names |= {row["input"]["id"]: row["result"][0]["name"] for row in rows}
                sizes.update(row["at"] for row in rows)
        except FileNotFoundError:  # it was put together with others
            continue
        break
    return names, sizes


@pytest.mark.timeout(200 + 40 * KILLS)
def test_a_kill_costs_what_was_in_flight_and_one_commit_at_most(tmp_path):
    chance = random.Random(f"kills {KILLS}")  # noqa: S311 - no secret
    service, folder, out = Service(), tmp_path / "journal", tmp_path / "out"
    kept: dict[int, int] = {}
    largest = 0
    with ScriptedServer(service) as server:

        def start(run: int) -> subprocess.Popen[bytes]:
            arguments = [server.url, ROWS, 2 + run % 3, MODES[run % len(MODES)], folder, out]
            command = [sys.executable, "-m", "tests.spark.journal_program", *map(str, arguments)]
            environment = {**os.environ, "PYTHONHASHSEED": str(run)}
            return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)

        runs = 0
        run = start(runs)
        for kill in range(KILLS):
            least = service.total + chance.randint(1, max(1, (ROWS - service.total) // 4))
            wait_until(
                lambda least=least, run=run: service.total >= least or run.poll() is not None, 300
            )
            assert run.poll() is None, "it ended by itself"
            if kill % 3 == 2:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
                runs += 1
                run = start(runs)
            elif workers := workers_of(run.pid):
                os.kill(chance.choice(workers), signal.SIGKILL)
            names, sizes = committed(folder)
            assert names == {id_: f"name of {id_}" for id_ in names}
            with service.lock:
                kept |= {id_: service.calls[id_] for id_ in names if id_ not in kept}
            largest = max(largest, *sizes.values(), 1)
        assert run.wait() == 0

    rows = pq.read_table(out).to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [
        (id_, f"name of {id_}") for id_ in range(ROWS)
    ]
    names, sizes = committed(folder)
    assert len(names) == ROWS
    largest = max(largest, *sizes.values())
    # What the service has counted is in the folder, except what was in flight or not committed.
    costs = {row["key"]: row["cost"] for row in kept_rows(folder, ["key", "cost"])}
    lost = service.total - sum(costs.values()) / COST
    assert 0 <= lost <= KILLS * 2 * (MOST_CALLS + largest)
    again = service.total - ROWS
    _logger.info(
        "%d kills: %d calls more than rows, %d not in the folder; %d rows of a commit",
        KILLS,
        again,
        lost,
        largest,
    )
    twice = sorted(id_ for id_, calls in kept.items() if service.calls[id_] != calls)
    assert twice == []
    assert again <= KILLS * 2 * (MOST_CALLS + largest)
