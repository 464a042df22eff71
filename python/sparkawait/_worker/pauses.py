# SPDX-License-Identifier: Apache-2.0
"""What exceptions say of the channel of their row. Pure functions, for any thread."""

from __future__ import annotations

from sparkawait._worker.retry_after import announced_pause
from sparkawait.retry import RetryAfter

__all__ = ["pause_after"]


def pause_after(error: BaseException) -> float | None:
    """Returns the seconds for which `error` asks that no row of its channel is called."""
    if isinstance(error, RetryAfter):
        return error.delay if error.channel else None
    return announced_pause(error)
