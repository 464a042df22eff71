# SPDX-License-Identifier: Apache-2.0
"""What exceptions say of the channel of their row. Pure functions, for any thread."""

from __future__ import annotations

from sparkawait._worker.retry_after import announced_pause
from sparkawait.retry import RetryAfter

__all__ = ["pause_after"]


def pause_after(error: BaseException) -> float | None:
    """Returns the seconds for which `error` asks that no row of its channel is called.

    Returns:
        0 if the service has too much to do and does not say for how long, ``None`` if nothing is
        said of it.
    """
    if isinstance(error, RetryAfter):
        return error.delay if error.channel else None
    return announced_pause(error)
