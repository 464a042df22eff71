# SPDX-License-Identifier: Apache-2.0
"""What the thread of an event loop is doing, told by its stack. Any thread may look."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from types import CodeType, FrameType

__all__ = ["Blocking", "blocking_of"]

_MACHINERY = {"asyncio", "concurrent", "selectors", "sparkawait", "threading", "uvloop"}
"""Packages that run what users wrote; a loop that is in nothing else waits, or works for us."""
CALLBACK = "a callback"
"""Names what no function of a task called: a background task, a handler of signals or logs."""


@dataclass(frozen=True)
class Blocking:
    """Code of a user that a loop is in.

    Attributes:
        name: The function of the task that called it, or `CALLBACK`.
        place: The file and the line of the outermost frame that the user wrote.
        stack: The frames from there on, as a traceback shows them.
    """

    name: str
    place: str
    stack: str

    def __str__(self) -> str:
        """Returns the name and the place."""
        return f"`{self.name}` at {self.place}"


def blocking_of(thread: threading.Thread, entries: Collection[CodeType]) -> Blocking | None:
    """Returns the user's code that `thread` is in; ``None`` if it is in none.

    Args:
        thread: The thread of a loop.
        entries: The codes that call functions of users; their frames have a local
            ``function_name``.
    """
    frames: list[FrameType] = []
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    name, first = CALLBACK, 0
    for index, each in enumerate(frames):
        if each.f_code in entries:
            name, first = str(each.f_locals.get("function_name", "?")), index + 1
    users = frames[first:]
    while users and _package(users[0]) in _MACHINERY:
        users.pop(0)
    if not users:
        return None
    place = f"{users[0].f_code.co_filename}:{users[0].f_lineno}"
    lines = traceback.StackSummary.extract((each, each.f_lineno) for each in users).format()
    return Blocking(name, place, "".join(lines).rstrip())


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
