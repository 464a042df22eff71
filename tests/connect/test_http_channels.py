# SPDX-License-Identifier: Apache-2.0
"""Channels over HTTP: hosts of nginx, and one beside them that stands still."""

from __future__ import annotations

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
    return sa.http.get("http://127.0.0.1:{port}/{id}", "n bigint", proxy=False, **options)


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_a_host_that_stands_still_holds_its_own_calls(others, mode):
    called = []

    def answer(target, before):
        # The first calls are answered when the rows of all others have been.
        wait_until(lambda: len(silent.targets) >= SHARE)
        wait_until(lambda: len(others.requests) == OTHERS * EACH)
        called.append(len(silent.targets))
        return 200, {}, b'{"n": 2}'

    with ScriptedServer(answer) as silent:
        still = int(silent.url.rpartition(":")[2])
        ports = [still] * 200 + [port for port in others.ports for _ in range(EACH)]
        wait = getattr(sparkawait.arrow, f"{mode}_wait")
        out = wait([rows_of(ports)], get(), capacity=1000, channels=sa.Channels())
        found = [row for batch in out for row in batch.to_pylist()]

    assert called[0] == SHARE
    assert len(silent.targets) == 200
    assert sorted(row["id"] for row in found) == list(range(len(ports)))
    assert all(row["n"] == (2 if row["port"] == still else 1) for row in found)
