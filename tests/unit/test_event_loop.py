# SPDX-License-Identifier: Apache-2.0
"""The process-wide event loop thread."""

import os
import threading

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
    assert event_loop_thread().submit(where()).result() == ("sparkawait-loop", os.getpid())


def test_a_forked_child_gets_a_thread_of_its_own():
    parent = event_loop_thread()
    parent.submit(where()).result()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        thread = event_loop_thread()
        found = thread.submit(where()).result()
        works = thread is not parent and found == ("sparkawait-loop", os.getpid())
        os.write(write, b"y" if works else b"n")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert os.read(read, 1) == b"y"
    os.close(read)
    assert parent.submit(where()).result() == ("sparkawait-loop", os.getpid())


def test_a_callback_that_exits_does_not_end_the_loop(thread, caplog):
    def leave():
        raise SystemExit

    thread.loop.call_soon_threadsafe(leave)
    assert thread.submit(where()).result()[0] == "sparkawait-loop"
    assert "goes on" in caplog.text


def test_the_thread_knows_itself(thread):
    async def is_current():
        return thread.is_current()

    assert thread.submit(is_current()).result()
    assert not thread.is_current()


def test_a_stopped_thread_ends(thread):
    thread.stop()
    assert not thread.thread.is_alive()
