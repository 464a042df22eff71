# SPDX-License-Identifier: Apache-2.0
"""Sizes in bytes, as users write them. Pure functions, for any thread."""

from __future__ import annotations

import re
from typing import TypeAlias

from sparkawait._plan.checks import refuse, shown
from sparkawait.exceptions import ErrorKind

__all__ = ["Bytes", "Size", "parse_size"]

Size: TypeAlias = int | str
"""A number of bytes, or a text with a unit, such as ``"64 MB"``."""


class Bytes(int):
    """A number of bytes, where a plain int is a number of something else."""


_UNITS = {"": 1, "b": 1} | {
    unit: 1024**power
    for power, letter in enumerate("kmgt", start=1)
    for unit in (letter, f"{letter}b", f"{letter}ib")
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")


def parse_size(
    value: object, name: str, *, most: int, kind: ErrorKind = ErrorKind.OPTION_INVALID
) -> int:
    """Returns `value` in bytes.

    Units are those of Spark's settings: powers of 1024, in capital or small letters, so that
    ``"64m"``, ``"64 MB"`` and ``"64 MiB"`` are the same.

    Args:
        value: An int of bytes, or a text of a number and a unit (b, kb, mb, gb, tb).
        name: The argument it was given for, used in messages.
        most: The most bytes that it may be.
        kind: What is wrong otherwise.

    Raises:
        ConfigurationError: If `value` is none of these, below one byte or above `most`.

    Examples:
        >>> parse_size("64 MB", "max_bytes", most=2**31 - 1)
        67108864
    """
    if isinstance(value, str):
        size = _parse_text(value, name, kind)
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        refuse(
            f"`{name}` must be an int of bytes or a text such as '64 MB', got {shown(value)}",
            kind,
        )
    if size < 1:
        refuse(f"`{name}` must be at least 1 byte, got {shown(value)}", kind)
    if size > most:
        refuse(f"`{name}` must be at most {most} bytes, got {shown(value)}", kind)
    return size


def _parse_text(text: str, name: str, kind: ErrorKind) -> int:
    match = _SIZE.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    # No size has so many digits, and numbers of thousands of them take long to read.
    if match is None or unit is None or len(match[1]) > 30:  # noqa: PLR2004
        refuse(
            f"`{name}` is no size: {shown(text)}; write a number and a unit (b, kb, mb, gb),"
            " as in '64 MB'",
            kind,
        )
    number = match[1]
    return int(number) * unit if number.isdecimal() else int(float(number) * unit)
