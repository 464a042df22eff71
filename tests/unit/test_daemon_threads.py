# SPDX-License-Identifier: Apache-2.0
"""The threads of a process for what blocks."""

import threading
from concurrent import futures

import pytest

from sparkawait._worker.blocking_calls import DaemonThreads


@pytest.fixture
def pool():
    pool = DaemonThreads(3)
    yield pool
    pool.shutdown()


def name() -> str:
    return threading.current_thread().name


def test_an_idle_thread_is_used_again(pool):
    first = pool.submit(name).result(20)
    # Idle is a thread a moment after its result is there.
    names = {pool.submit(name).result(20) for _ in range(17)}
    assert names <= {"sparkawait-blocking-1", "sparkawait-blocking-2", "sparkawait-blocking-3"}
    assert first == "sparkawait-blocking-1"


def test_the_process_does_not_wait_for_its_threads(pool):
    assert pool.submit(lambda: threading.current_thread().daemon).result(20)


def test_as_many_run_at_a_time_as_are_said_and_all_others_wait_their_turn(pool):
    together, lock = threading.Barrier(3), threading.Lock()
    running, most = 0, 0

    def work(number):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(20)
        with lock:
            running -= 1
        return number

    assert [it.result(20) for it in [pool.submit(work, i) for i in range(300)]] == list(range(300))
    assert most == 3


def test_work_that_takes_a_thread_at_once_is_not_bounded(pool):
    together, done = threading.Barrier(13), threading.Semaphore(0)

    def work():
        together.wait(20)
        done.release()

    for _ in range(13):
        pool.execute(work)
    assert all(done.acquire(timeout=20) for _ in range(13))


def test_what_it_raises_is_the_outcome_and_what_was_cancelled_is_not_called(pool):
    gate, called = threading.Event(), []
    held = [pool.submit(gate.wait, 20) for _ in range(3)]
    waiting = pool.submit(called.append, 1)
    assert waiting.cancel()
    gate.set()
    assert all(it.result(20) for it in held)

    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(20)
    assert called == []


def test_threads_end_when_it_is_shut_down(pool):
    started = {thread for thread in threading.enumerate() if "blocking" in thread.name}
    gate = threading.Event()
    futures.wait([pool.submit(name) for _ in range(3)])
    held = pool.submit(gate.wait, 20)
    pool.shutdown()
    gate.set()
    assert held.result(20)
    for thread in threading.enumerate():
        if "blocking" in thread.name and thread not in started:
            thread.join(20)
            assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="is closed"):
        pool.submit(name)
