# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the extension module waits for a server that accepts and says nothing."""

from __future__ import annotations

import _thread
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.servers import LOOPBACK

FOREVER = "600s"


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Python's own handler: a shell starts its background jobs with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port whose first connection has Ctrl-C pressed."""
    listener = socket.create_server((LOOPBACK, 0))
    accepted: list[socket.socket] = []

    def accept() -> None:
        accepted.append(listener.accept()[0])
        # What was sent shows that the answer is waited for.
        accepted[0].recv(1)
        _thread.interrupt_main()

    presses = threading.Thread(target=accept)
    presses.start()
    yield listener.getsockname()[1]
    presses.join()
    for end in (listener, *accepted):
        end.close()


def describe_postgres(port: int) -> None:
    dsn = f"postgresql://tester@{LOOPBACK}:{port}/postgres"
    sa.postgres.lookup(dsn, "select 1 where $1 = 1", ["k"], connect_timeout=FOREVER)


def find_nodes(port: int) -> None:
    url = f"redis://{LOOPBACK}:{port}"
    function = sa.redis.get(
        url, "{k}", schema="v string", cluster=True, connect_timeout=FOREVER, idle_timeout=FOREVER
    )
    batch = pa.RecordBatch.from_pydict({"k": ["a"]})
    list(sa.arrow.unordered_wait([batch], function, channel=sa.Channel()))


def look_up(port: int) -> None:
    url = f"redis://{LOOPBACK}:{port}"
    function = sa.redis.get(url, "{k}", schema="v string", connect_timeout=FOREVER)
    list(sa.arrow.unordered_wait([pa.RecordBatch.from_pydict({"k": ["a"]})], function))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("wait", [describe_postgres, find_nodes, look_up])
def test_ctrl_c_ends_the_wait(silent: int, wait: Callable[[int], None]) -> None:
    with pytest.raises(KeyboardInterrupt):
        wait(silent)
