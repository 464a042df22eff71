# SPDX-License-Identifier: Apache-2.0
"""A function that blocks the event loop is named, once."""

import asyncio
import logging
import threading

import pytest

from sparkawait._worker.event_loop import EventLoopThread, Watch, Watchdog
from sparkawait.exceptions import ErrorKind


def blocking(event):
    event.wait()


def watch(timeout=None, fail=None):
    return Watch(frozenset({call.__code__}), timeout, fail)


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
    watched = watch()
    watchdog.watch(watched)

    thread.submit(call("slow_function", slow)).result()
    thread.submit(call("slow_function", slow)).result()
    watchdog.unwatch(watched)

    assert len(warned.messages) == 1
    line = slow.__code__.co_firstlineno + 1
    assert f"slow_function at {__file__}:{line}" in warned.messages[0]
    assert "asyncio.to_thread" in warned.messages[0]
    assert "in blocking" in warned.messages[0]


def test_a_background_task_that_blocks_is_reported(thread, warned):
    async def background():
        blocking(warned)

    async def starts_one():
        await asyncio.create_task(background())

    watchdog = Watchdog(thread.loop, thread.thread, seconds=0.01)
    watched = watch()
    watchdog.watch(watched)
    thread.submit(call("function", starts_one)).result()
    watchdog.unwatch(watched)

    line = background.__code__.co_firstlineno + 1
    assert f"a callback at {__file__}:{line}" in warned.messages[0]


def test_a_task_is_failed_after_its_time_with_what_blocks_it(thread):
    errors, failed = [], threading.Event()

    def fail(error):
        errors.append(error)
        failed.set()

    async def slow():
        blocking(failed)

    watchdog = Watchdog(thread.loop, thread.thread, seconds=100)
    watched = watch(0.01, fail)
    watchdog.watch(watched)
    thread.submit(call("slow_function", slow)).result()
    watchdog.unwatch(watched)

    [error] = errors
    line = slow.__code__.co_firstlineno + 1
    assert error.kind is ErrorKind.LOOP_BLOCKED
    assert f"`slow_function` at {__file__}:{line} blocked the event loop for 0.01 s" in str(error)
    assert "`blocked_loop_timeout`" in str(error)
    assert "in blocking" in error.__notes__[-1]


def test_each_function_is_reported(thread, warned):
    async def slow():
        blocking(warned)

    watchdog = Watchdog(thread.loop, thread.thread, seconds=0.01)
    watched = watch()
    watchdog.watch(watched)
    thread.submit(call("one", slow)).result()
    warned.clear()
    thread.submit(call("two", slow)).result()
    watchdog.unwatch(watched)
    assert len(warned.messages) == 2


def test_the_thread_of_the_watchdog_ends_with_the_last_task(thread):
    watchdog = Watchdog(thread.loop, thread.thread, seconds=0.01)
    first, second = watch(), watch()
    watchdog.watch(first)
    watchdog.watch(second)
    (watching,) = [t for t in threading.enumerate() if t.name == "sparkawait-watchdog"]

    watchdog.unwatch(first)
    assert watching.is_alive()
    watchdog.unwatch(second)
    watching.join(5)
    assert not watching.is_alive()
