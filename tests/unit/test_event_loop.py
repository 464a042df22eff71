# SPDX-License-Identifier: Apache-2.0
"""The process-wide event loop thread."""

import asyncio
import os
import threading
from concurrent import futures

import pytest

from sparkawait._worker.event_loop import EventLoopThread, event_loop_thread


@pytest.fixture
def thread():
    thread = EventLoopThread()
    yield thread
    thread.stop()
    thread.loop.close()


async def where():
    return threading.current_thread().name, os.getpid()


def test_tasks_of_a_process_share_one_thread():
    assert event_loop_thread() is event_loop_thread()
    assert event_loop_thread().run(where()) == ("sparkawait-loop", os.getpid())


def test_a_forked_child_gets_a_thread_of_its_own():
    parent = event_loop_thread()
    parent.run(where())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        thread = event_loop_thread()
        works = thread is not parent and thread.run(where()) == ("sparkawait-loop", os.getpid())
        os.write(write, b"y" if works else b"n")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert os.read(read, 1) == b"y"
    os.close(read)
    assert parent.run(where()) == ("sparkawait-loop", os.getpid())


def test_a_callback_that_exits_does_not_end_the_loop(thread, caplog):
    def leave():
        raise SystemExit

    thread.loop.call_soon_threadsafe(leave)
    assert thread.run(where())[0] == "sparkawait-loop"
    assert "goes on" in caplog.text


def test_what_is_waited_for_is_cancelled_when_the_wait_is_broken_off(thread, monkeypatch):
    cancelled = threading.Event()

    async def hang():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(futures.Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread.run(hang())
    assert cancelled.wait(5)


def test_the_thread_knows_itself(thread):
    async def is_current():
        return thread.is_current()

    assert thread.run(is_current())
    assert not thread.is_current()


def test_a_stopped_thread_ends(thread):
    thread.stop()
    assert not thread.thread.is_alive()
