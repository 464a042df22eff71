# SPDX-License-Identifier: Apache-2.0
"""The bound in time of `open` and `close`. Runs on the event loop thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["PhaseExpiredError", "within"]

_T = TypeVar("_T")


class PhaseExpiredError(Exception):
    """A phase of a function took longer than it may, and was cancelled."""


async def within(seconds: float | None, awaitable: Awaitable[_T]) -> _T:
    """Awaits in the caller's own task, so that context variables that are set are the caller's.

    Args:
        seconds: After these the caller's task is cancelled; ``None`` for never.
        awaitable: What is awaited. One that goes on when it is cancelled is waited for.

    Raises:
        PhaseExpiredError: If it was cancelled because of its time.
    """
    task = asyncio.current_task()
    if seconds is None or task is None:
        return await awaitable
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        return await awaitable
    except asyncio.CancelledError:
        if expired:
            raise PhaseExpiredError from None
        raise
    finally:
        timer.cancel()
