# SPDX-License-Identifier: Apache-2.0
"""Channels over HTTP: hosts of nginx, and one beside them that stands still."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import sparkawait as sa
import sparkawait.arrow
from tests.support.nginx import Nginx
from tests.support.scripted_server import ScriptedServer
from tests.support.servers import LOOPBACK, free_port
from tests.support.waiting import wait_until

OTHERS = 9
"""Hosts beside the one that stands still."""
EACH = 30
"""Rows of each of them."""
SHARE = 10
"""Calls of one host: a tenth of the requests that there may be at a time."""


@pytest.fixture
def others(tmp_path):
    ports = [free_port() for _ in range(OTHERS)]
    listens = "".join(f"listen {LOOPBACK}:{port};" for port in ports)
    with Nginx(tmp_path, listens + """location / { return 200 '{"n": 1}'; }""") as nginx:
        nginx.ports = ports
        yield nginx


def rows_of(ports: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"port": ports, "id": list(range(len(ports)))})


def get(**options) -> sa.http.HttpFunction:
    return sa.http.get(
        "http://127.0.0.1:{port}/{id}", "n bigint", client=sa.http.Client(proxy=False), **options
    )


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_a_host_that_stands_still_holds_its_own_calls(others, mode):
    called = []

    def answer(target, before):
        # The first calls are answered when the rows of all others have been.
        wait_until(lambda: len(silent.targets) >= SHARE)
        wait_until(lambda: len(others.logged) == OTHERS * EACH)
        called.append(len(silent.targets))
        return 200, {}, b'{"n": 2}'

    with ScriptedServer(answer) as silent:
        still = int(silent.url.rpartition(":")[2])
        ports = [still] * 200 + [port for port in others.ports for _ in range(EACH)]
        wait = getattr(sparkawait.arrow, f"{mode}_wait")
        # Otherwise a tenth of few calls, until the first of all rows leaves: 10 s.
        options = {"capacity": 1000, "channel": sa.Channel(), "tuning": sa.Tuning(warm_up=False)}
        out = wait([rows_of(ports)], get(), **options)
        found = [row for batch in out for row in batch.to_pylist()]

    assert called[0] == SHARE
    assert len(silent.targets) == 200
    assert sorted(row["id"] for row in found) == list(range(len(ports)))
    assert all(row["n"] == (2 if row["port"] == still else 1) for row in found)


class MuteHost:
    """Accepts connections and never says a word.

    Attributes:
        port: Where.
        connections: How many it accepted.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._accepted: list[socket.socket] = []

    @property
    def connections(self) -> int:
        return len(self._accepted)

    def serve(self) -> None:
        """Accepts until it is closed."""
        while True:
            try:
                self._accepted.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        """Ends all of it."""
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        for connection in (self._listener, *self._accepted):
            connection.close()


@contextmanager
def mute_host() -> Iterator[MuteHost]:
    host = MuteHost()
    thread = threading.Thread(target=host.serve)
    thread.start()
    try:
        yield host
    finally:
        host.close()
        thread.join()


def test_a_dead_host_is_connected_to_no_more_than_its_calls_in_flight(others):
    """Its rows run out of time; those behind them are not called just to run out of it, too."""
    timeouts = 3
    with mute_host() as mute:
        ports = [mute.port] * (SHARE * 20) + others.ports * EACH
        found = []

        def batches():
            for batch in range(1, timeouts + 1):
                before = mute.connections
                yield rows_of(ports)
                given = batch * len(ports)
                # On a busy machine the time of all rows may be over before one more is called.
                wait_until(lambda: mute.connections > before or len(found) == given)  # noqa: B023

        out = sparkawait.arrow.unordered_wait(
            batches(),
            get(),
            capacity=1000,
            channel=sa.Channel(),
            timeout="1s",
            on_error="null",
        )
        for batch in out:
            found += batch.to_pylist()

    answered = [row for row in found if row["port"] != mute.port]
    assert len(answered) == timeouts * OTHERS * EACH
    assert all(row["n"] == 1 for row in answered)
    assert all(row["n"] is None for row in found if row["port"] == mute.port)
    assert SHARE <= mute.connections <= SHARE * (timeouts + 1)
