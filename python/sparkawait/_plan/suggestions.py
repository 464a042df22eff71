# SPDX-License-Identifier: Apache-2.0
"""What was meant by a name that is not there. Pure functions, for any thread."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["suggestion"]

_FEW = 8


def suggestion(name: str, names: Iterable[str]) -> str:
    """Returns the end of a message: those of `names` that are close to `name`, or else a few.

    Examples:
        >>> suggestion("ID", ["id", "city"])
        'did you mean `id`?'
        >>> suggestion("key", ["id", "city"])
        'it has `id`, `city`'
    """
    names = list(names)
    same = [it for it in names if it.casefold() == name.casefold()]
    close = same or difflib.get_close_matches(name, names, n=3)
    shown = ", ".join(f"`{it}`" for it in close or names[:_FEW])
    more = ", .." if not close and len(names) > _FEW else ""
    return f"did you mean {shown}?" if close else f"it has {shown or 'none'}{more}"
