# SPDX-License-Identifier: Apache-2.0
"""A function that blocks the event loop is named, once."""

import logging
import threading

import pytest

from sparkawait.event_loop import EventLoopThread
from sparkawait.watchdog import Watchdog


def blocking(event):
    event.wait()


async def call(function_name, function):
    """Stands for what calls a function: the frame that the watchdog looks for."""
    await function()


@pytest.fixture
def thread():
    thread = EventLoopThread()
    yield thread
    thread.stop()
    thread.loop.close()


@pytest.fixture
def warned(caplog):
    """Set by the first warning; the messages are in its `messages`."""
    event = threading.Event()
    event.messages = []

    class Handler(logging.Handler):
        def emit(self, record):
            event.messages.append(record.getMessage())
            event.set()

    handler = Handler()
    logger = logging.getLogger("sparkawait")
    logger.addHandler(handler)
    yield event
    logger.removeHandler(handler)


def test_a_blocking_function_is_reported_by_name_and_place_and_only_once(thread, warned):
    async def slow():
        blocking(warned)

    watchdog = Watchdog(thread.loop, thread.thread, seconds=0.01)
    watchdog.watch(call.__code__)

    thread.run(call("slow_function", slow))
    thread.run(call("slow_function", slow))
    watchdog.unwatch()

    assert len(warned.messages) == 1
    line = slow.__code__.co_firstlineno + 1
    assert f"slow_function at {__file__}:{line}" in warned.messages[0]


def test_each_function_is_reported(thread, warned):
    async def slow():
        blocking(warned)

    watchdog = Watchdog(thread.loop, thread.thread, seconds=0.01)
    watchdog.watch(call.__code__)
    thread.run(call("one", slow))
    warned.clear()
    thread.run(call("two", slow))
    watchdog.unwatch()
    assert len(warned.messages) == 2


def test_the_thread_of_the_watchdog_ends_with_the_last_task(thread):
    watchdog = Watchdog(thread.loop, thread.thread, seconds=0.01)
    watchdog.watch(call.__code__)
    watchdog.watch(call.__code__)
    (watching,) = [t for t in threading.enumerate() if t.name == "sparkawait-watchdog"]

    watchdog.unwatch()
    assert watching.is_alive()
    watchdog.unwatch()
    watching.join(5)
    assert not watching.is_alive()
