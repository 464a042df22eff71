# SPDX-License-Identifier: Apache-2.0
"""Threads for code that blocks, which the process does not wait for when it ends.

One pool for each event loop: `asyncio.to_thread` and plain functions of users take its threads. The
pool of the standard library would have the process wait at its exit for a call that never returns.
Any thread may use it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from sparkawait._worker import address_space

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Work = Callable[[], None]


class DaemonThreads(ThreadPoolExecutor):
    """Starts a thread when work comes and none is idle; idle ones stay for what comes later.

    A `ThreadPoolExecutor` by its type, since asyncio takes no other.

    Args:
        most: Threads at most for what `submit` is given; what goes beyond waits. Those of `execute`
            come on top: its users bound them.
    """

    def __init__(self, most: int) -> None:
        """Starts no thread."""
        super().__init__(most)
        self._most = most
        self._lock = threading.Lock()
        self._works: SimpleQueue[_Work | None] = SimpleQueue()
        """What idle threads are to do next: never more of it than there are idle threads."""
        self._idle = 0
        """Threads that wait for work, and have not been promised any."""
        self._started = 0
        self._submitted = 0
        """How much of what `submit` was given is being done."""
        self._waiting: deque[_Work] = deque()
        self._is_shut_down = False

    def execute(self, work: _Work) -> None:
        """Does `work`, which lets no exception pass, in a thread, at once.

        Raises:
            AsyncIOError: If no thread is idle, and the system lets no other be started.
        """
        with self._lock:
            is_idle = self._idle > 0
            self._idle -= is_idle
            self._started += not is_idle
            name = f"sparkawait-blocking-{self._started}"
        if is_idle:
            self._works.put(work)
            return
        address_space.start(
            threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        )

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Calls `fn` in a thread, as soon as one may.

        Raises:
            RuntimeError: After `shutdown`.
            AsyncIOError: As `execute`.
        """
        future: Future[_T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    future.set_exception(error)
                else:
                    future.set_result(result)

        with self._lock:
            if self._is_shut_down:
                msg = "the event loop of this thread pool is closed"
                raise RuntimeError(msg)
            if self._submitted == self._most:
                self._waiting.append(work)
                return future
            self._submitted += 1
        try:
            self.execute(partial(self._work_off, work))
        except BaseException:
            with self._lock:
                self._submitted -= 1
            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - as in the standard library
        """Ends idle threads, and the others after what they are doing; waits for none of them."""
        with self._lock:
            self._is_shut_down = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._works.put(None)

    def _work_off(self, work: _Work | None) -> None:
        """Does `work`, and then what waits for one of the threads of `submit`."""
        while work is not None:
            work()
            with self._lock:
                work = self._waiting.popleft() if self._waiting else None
                self._submitted -= work is None

    def _run(self, work: _Work | None) -> None:
        while work is not None:
            work()
            work = None  # nothing of it is kept alive by an idle thread
            with self._lock:
                if self._is_shut_down:
                    return
                self._idle += 1
            work = self._works.get()
