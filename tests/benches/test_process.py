# SPDX-License-Identifier: Apache-2.0
"""A peer of benches/compare as a whole process, and the server that it calls."""

import os
import re
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from benches.compare import process
from benches.compare.calls import TABLE, value_of
from benches.compare.peer import Job, all_peers
from benches.compare.server import serving
from benches.compare.tree import adopt_orphans, below
from benches.compare.workloads import by_name

PEER = all_peers()["sparkawait_arrow"]


@pytest.fixture
def own_python(monkeypatch, tmp_path):
    """Peers run in this environment, which has what this one of them needs."""
    monkeypatch.setattr(process, "python_of", lambda _: Path(sys.executable))
    monkeypatch.setattr(process, "FOLDER", tmp_path)
    adopt_orphans()
    yield
    adopt_orphans(adopts=False)


def test_a_run_is_proven_and_watched(own_python):
    job = Job(by_name("no-op-ordered"), rows=50_000, warm_up_rows=10_000)
    measured = process.run(PEER, job, limit_seconds=50)
    assert measured.outcome.rows == 50_000
    assert measured.outcome.settings["capacity"] == "1000"
    assert measured.seconds > 0
    assert measured.startup_seconds > 0
    assert measured.rows_per_second == pytest.approx(50_000 / measured.seconds)
    assert measured.peak_megabytes > 10


def test_calls_over_http_are_counted_by_the_server(own_python):
    job = Job(by_name("http"), rows=300, warm_up_rows=100)
    measured = process.run(PEER, job, limit_seconds=50)
    assert measured.requests["requests"] == 400
    assert measured.requests["max_in_flight"] <= 100


def test_a_peer_that_fails_is_quoted_and_leaves_nothing(own_python, monkeypatch, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nsleep 1000 &\necho disk on fire >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(process, "python_of", lambda _: broken)
    before = set(below(os.getpid()))
    with pytest.raises(process.Failure, match="status 3: disk on fire"):
        process.run(PEER, Job(by_name("no-op-ordered"), 10, 0), limit_seconds=50)
    assert set(below(os.getpid())) - before == set()


@pytest.mark.parametrize(
    ("below", "quoted"),
    [
        (f"OSError: {process.ROOT}/disk is on fire", "OSError: ./disk is on fire"),
        (
            "Py4JJavaError: no\nCaused by: at last\n\tat org.Disk.read(Disk.java:7)\n\t... 19 more",
            "Caused by: at last",
        ),
    ],
    ids=["python", "java"],
)
def test_a_traceback_is_quoted_by_its_error_alone(
    own_python, monkeypatch, tmp_path, below: str, quoted: str
):
    broken = tmp_path / "python"
    log = f'Traceback (most recent call last):\n  File "{process.ROOT}/a.py", line 1\n{below}'
    broken.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{log}\nEND\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(process, "python_of", lambda _: broken)
    with pytest.raises(process.Failure, match=f"^status 3: {re.escape(quoted)}$"):
        process.run(PEER, Job(by_name("no-op-ordered"), 10, 0), limit_seconds=50)


def test_a_peer_that_hangs_is_ended(own_python, monkeypatch, tmp_path):
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 1000\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(process, "python_of", lambda _: hanging)
    with pytest.raises(process.Failure, match=r"it did not end within 0 s"):
        process.run(PEER, Job(by_name("no-op-ordered"), 10, 0), limit_seconds=0.1)


def test_the_server_answers_for_every_key_and_tells_its_counters():
    with serving(by_name("http")) as (url, counters):
        with urlopen(f"{url}/{TABLE}/7") as response:  # noqa: S310 - on this machine
            assert response.read().decode() == f'{{"value": {value_of(7)}}}'
        assert counters == {}
    assert counters["requests"] == 1


def test_one_of_several_destinations_never_answers(own_python):
    job = Job(by_name("http-stalled-host"), rows=100, warm_up_rows=0)
    measured = process.run(PEER, job, limit_seconds=50)
    assert measured.outcome.missing == 10
    assert measured.requests["requests"] == 90
    assert 1 <= measured.requests["stalled"] <= 10


def test_a_workload_without_a_service_has_no_server():
    with serving(by_name("no-op-ordered")) as (url, counters):
        assert (url, counters) == ("", {})
