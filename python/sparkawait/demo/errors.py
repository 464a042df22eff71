# SPDX-License-Identifier: Apache-2.0
"""What keeps the demo from running, said in one sentence."""

from __future__ import annotations

__all__ = ["DemoError"]


class DemoError(Exception):
    """Something outside the demo is missing or wrong; the message says what and what to do."""
