# SPDX-License-Identifier: Apache-2.0
"""Finds functions that block the event loop, on which everything else of the process waits.

One daemon thread per process, which exists only while tasks are open. It asks the loop for a sign
of life and, if none comes, looks at the stack of the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from types import CodeType, FrameType

__all__ = ["BLOCKED_SECONDS", "Watchdog"]

_logger = logging.getLogger("sparkawait")
BLOCKED_SECONDS = 1.0
"""A loop that runs no callback for this long is reported as blocked."""


class Watchdog:
    """Reports each function that blocks `loop`, once by name and with the place.

    Args:
        loop: The loop to watch.
        thread: The thread that runs it.
        seconds: How long without a sign of life is too long, and how often one is asked for.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: threading.Thread,
        seconds: float = BLOCKED_SECONDS,
    ) -> None:
        """Starts nothing yet."""
        self._loop = loop
        self._thread = thread
        self._seconds = seconds
        self._lock = threading.Lock()
        self._watched: dict[CodeType, str] = {}
        self._open = 0
        self._stopped = threading.Event()
        self._reported: set[str] = set()

    def watch(self, entry: CodeType) -> None:
        """Counts one more open task whose functions are called by `entry`.

        `entry` is the code that calls the user's function; its frame has a local ``function_name``.
        """
        with self._lock:
            self._watched[entry] = entry.co_name
            self._open += 1
            if self._open == 1:
                self._stopped = threading.Event()
                threading.Thread(
                    target=self._run, args=(self._stopped,), name="sparkawait-watchdog", daemon=True
                ).start()

    def unwatch(self) -> None:
        """Counts one open task less; the thread ends with the last."""
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._stopped.set()

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._seconds):
            alive = threading.Event()
            try:
                self._loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # the loop is closed
                return
            if not alive.wait(self._seconds):
                self._report()
                while not alive.wait(self._seconds):
                    if stopped.is_set():
                        return

    def _report(self) -> None:
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        inner: FrameType | None = None
        while frame is not None and frame.f_code not in self._watched:
            inner, frame = frame, frame.f_back
        if frame is None or inner is None:
            return  # the user's function is not what the loop is in
        name = str(frame.f_locals.get("function_name", "?"))
        if name in self._reported:
            return
        self._reported.add(name)
        _logger.warning(
            "async function blocks the event loop for more than %g s, all calls wait for it:"
            " %s at %s:%d",
            self._seconds,
            name,
            inner.f_code.co_filename,
            inner.f_lineno,
        )
