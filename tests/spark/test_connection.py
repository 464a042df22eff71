# SPDX-License-Identifier: Apache-2.0
"""A worker notices that Spark has hung up, even when it neither reads nor writes."""

import os
import select
import socket
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType

import pytest

from sparkawait.spark import tasks
from sparkawait.spark.tasks import Connection

pytestmark = pytest.mark.spark


def wait_for_signal():
    """Blocks until a signal handler raises."""
    reader, writer = os.pipe()
    try:
        select.select([reader], [], [])
    finally:
        os.close(reader)
        os.close(writer)


def main(outfile, body):
    with Connection.of_this_worker().interrupted_by_hang_up():
        body()


# As in a worker: a function of that module has the stream to the JVM as an argument.
worker_main = FunctionType(
    main.__code__, {**globals(), "__spec__": ModuleSpec("pyspark.worker", loader=None)}
)


@pytest.fixture(params=["unix", "tcp"])
def sockets(request):
    if request.param == "unix":
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


def test_a_hang_up_is_seen_by_who_looks_for_it(sockets):
    ours, theirs = sockets
    with ours.makefile("wb") as outfile:
        connection = Connection(outfile)
        assert not connection.has_hung_up()
        theirs.sendall(b"nobody reads it")
        assert not connection.has_hung_up()
        theirs.close()
        assert connection.has_hung_up()
    assert not Connection(None).has_hung_up()


def test_a_hang_up_interrupts_the_task(sockets):
    ours, theirs = sockets

    def hang():
        theirs.close()
        wait_for_signal()

    with pytest.raises(KeyboardInterrupt), ours.makefile("wb") as outfile:
        worker_main(outfile, hang)


def test_a_hang_up_is_noticed_behind_data_that_was_not_read(sockets):
    ours, theirs = sockets

    def hang():
        theirs.sendall(b"x" * 1000)
        theirs.close()
        wait_for_signal()

    with pytest.raises(KeyboardInterrupt), ours.makefile("wb") as outfile:
        worker_main(outfile, hang)


def test_data_is_no_hang_up(sockets):
    ours, theirs = sockets
    with ours.makefile("wb") as outfile:
        worker_main(outfile, lambda: theirs.sendall(b"x" * 1000))
    assert ours.recv(10) == b"x" * 10


def test_no_thread_is_left_when_the_task_has_ended(sockets):
    ours, _ = sockets
    before = set(threading.enumerate())  # those of other tests may be about to end
    watchers = []
    with ours.makefile("wb") as outfile:
        worker_main(
            outfile,
            lambda: watchers.extend(
                thread
                for thread in threading.enumerate()
                if thread.name == "sparkawait-connection" and thread not in before
            ),
        )
    assert len(watchers) == 1
    watchers[0].join()


def test_without_a_worker_nothing_is_watched():
    with Connection.of_this_worker().interrupted_by_hang_up():
        names = [thread.name for thread in threading.enumerate()]
    assert "sparkawait-connection" not in names


def test_that_no_connection_was_found_is_said_once(caplog):
    tasks._say_that_there_is_none.cache_clear()
    with caplog.at_level("WARNING", "sparkawait"):
        Connection.of_this_worker()
        Connection.of_this_worker()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "keeps its connection elsewhere" in caplog.text


def test_a_stream_that_hides_its_socket_is_not_watched(sockets):
    ours, _ = sockets
    with ours.makefile("rwb") as outfile:
        worker_main(outfile, lambda: None)


def test_flushing_sends_what_was_written(sockets):
    ours, theirs = sockets
    with ours.makefile("wb") as outfile:
        outfile.write(b"rows")
        Connection(outfile).flush()
        assert theirs.recv(10) == b"rows"


def test_what_is_flushed_waits_for_no_acknowledgement(sockets):
    ours, theirs = sockets
    # A socket that is made out of a descriptor takes it, and its mode is that of all copies.
    socket.setdefaulttimeout(5)
    try:
        ours.setblocking(True)
        with ours.makefile("wb") as outfile:
            stream = Connection(outfile)
            outfile.write(b"rows")
            stream.flush()
    finally:
        socket.setdefaulttimeout(None)

    assert theirs.recv(4) == b"rows"
    assert os.get_blocking(ours.fileno())
    if ours.family != socket.AF_UNIX:
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_stream_that_is_no_socket_is_left_as_it_is():
    reader, writer = os.pipe()
    known = len([*Path("/proc/self/fd").iterdir()])
    with os.fdopen(reader, "rb") as rows, os.fdopen(writer, "wb") as outfile:
        Connection(outfile)
        outfile.write(b"rows")
        outfile.flush()
        assert rows.read(4) == b"rows"
        assert len([*Path("/proc/self/fd").iterdir()]) == known
