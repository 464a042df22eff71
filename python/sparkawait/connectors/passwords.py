# SPDX-License-Identifier: Apache-2.0
"""The check of passwords, which no error quotes."""

from __future__ import annotations

from sparkawait._plan.checks import text
from sparkawait.secrets import Secret

__all__ = ["a_password"]


def a_password(value: object, name: str) -> str | Secret:
    """Returns a password that was given as a text or a secret, or refuses it."""
    if isinstance(value, Secret):
        return value
    return text(value, name, "a str or a secret", quoted=False)
