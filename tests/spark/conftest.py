# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share beside Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparkawait as sa
from tests.spark.calls import CallLog, Once, Presence, Watch
from tests.spark.carried import Stream, session_for
from tests.spark.events import stream as stream_of
from tests.spark.events import write

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def over_connect(request, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came out of the program that uses Spark Connect, which is run once for all tests."""
    pytest.importorskip("grpc")
    out = tmp_path_factory.mktemp("connect") / "results.json"
    are_asked_for = any(item.path.name == "test_sessions.py" for item in request.session.items)
    parts = ["sessions"] if are_asked_for else []
    program = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_program", str(out), *parts],
        cwd=ROOT,
        env={**os.environ, "SPARKAWAIT_LOG": "INFO"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stderr[-5000:]
    return {**json.loads(out.read_text()), "log": program.stderr}


@pytest.fixture
def calls(tmp_path: Path) -> CallLog:
    return CallLog(tmp_path / "calls")


@pytest.fixture
def look_up(calls: CallLog):
    """A function that fails for each seventh row, of ids of 3 modulo 7."""

    @sa.async_function("doubled long")
    async def look_up(row):
        calls.add(row.id)
        if row.id % 7 == 3:
            raise ConnectionError(f"no {row.id}")
        return {"doubled": 2 * row.id}

    return look_up


@pytest.fixture
def once(tmp_path: Path) -> Once:
    return Once(tmp_path / "once")


@pytest.fixture
def presence(tmp_path: Path) -> Presence:
    return Presence(tmp_path / "presence")


@pytest.fixture
def watch(presence: Presence) -> Iterator[Watch]:
    watch = presence.watch()
    yield watch
    watch.close()


@pytest.fixture
def stream(request, spark, tmp_path: Path, calls: CallLog) -> Iterator[Stream]:
    """A stream with calls that are carried over; its parameter is the vehicle."""
    vehicle = getattr(request, "param", None)
    with session_for(vehicle, spark):
        stream = Stream(spark, tmp_path, calls, vehicle)
        yield stream
        stream.stop()


@pytest.fixture
def source_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.fixture
def events(spark, source_folder: Path):
    """A stream over ten files of ten events."""
    for number in range(10):
        write(source_folder, number)
    return stream_of(spark, source_folder)
