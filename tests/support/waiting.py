# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another thread, process or server does."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["PATIENCE_SECONDS", "wait_until"]

PATIENCE_SECONDS = 90.0


def wait_until(condition: Callable[[], bool], patience: float = PATIENCE_SECONDS) -> None:
    """Returns as soon as `condition` holds.

    Args:
        condition: Asked again and again.
        patience: Seconds after which it never will.

    Raises:
        TimeoutError: If it does not for so long that it never will.
    """
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            msg = "the condition did not become true"
            raise TimeoutError(msg)
        time.sleep(0.002)
