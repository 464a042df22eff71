# SPDX-License-Identifier: Apache-2.0
"""Checks of single arguments, where the user calls. Pure functions, for any thread.

Whatever is given, a check returns it or raises `ConfigurationError`: values that cannot be printed,
compared or encoded included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Generic, Literal, NoReturn, TypeVar, cast

from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = [
    "ObjectOf",
    "choice",
    "flag",
    "integer",
    "mapping",
    "number",
    "refuse",
    "shown",
    "text",
    "the_writes",
]

_T = TypeVar("_T")

MAX_COUNT = 2**31 - 1
"""Most of anything that is counted in rows, calls or connections, unless an option says less."""

MAX_BYTES = 2**40
"""Most bytes that an option may name: a terabyte, more than any process has."""

_MAX_SHOWN = 100


def refuse(message: str, kind: ErrorKind = ErrorKind.OPTION_INVALID) -> NoReturn:
    """Raises a `ConfigurationError`."""
    raise ConfigurationError(message, kind)


def shown(value: object) -> str:
    """Returns `value` for a message: shortened, and by its type alone if it cannot be printed."""
    try:
        # Not the representation of a huge number or container, only to cut it afterwards.
        printed = hex(value) if isinstance(value, int) and abs(value) > MAX_BYTES else repr(value)
    except Exception:  # noqa: BLE001 - whatever a foreign `__repr__` raises
        return f"a `{type(value).__name__}`"
    printed = printed.encode("utf-8", "backslashreplace").decode()
    return printed if len(printed) <= _MAX_SHOWN else f"{printed[: _MAX_SHOWN - 2]}.."


def text(value: object, name: str, rule: str = "a str", *, quoted: bool = True) -> str:
    """Returns `value`, a text that is not empty and can be sent.

    Args:
        value: What was given.
        name: The argument it was given for.
        rule: What the argument takes.
        quoted: Whether the message may quote it; ``False`` where there may be a password in it.

    Raises:
        ConfigurationError: If it is no such text.
    """
    if not isinstance(value, str) or not value:
        found = shown(value) if quoted or not isinstance(value, str) else "an empty str"
        refuse(f"`{name}` must be {rule}, got {found if quoted else _kind(value)}")
    if not is_unicode(value):
        refuse(f"`{name}` has characters that are no Unicode text (lone surrogates)")
    return value


def is_unicode(value: str) -> bool:
    """Tells whether a text can be encoded; those with lone surrogates cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def flag(value: object, name: str) -> bool:
    """Returns `value`, ``True`` or ``False``; nothing else is taken for one of them."""
    if not isinstance(value, bool):
        refuse(f"`{name}` must be a bool, got {shown(value)}")
    return value


def the_writes(value: object, name: str) -> bool | Literal["idempotent"]:
    """Returns whether a call may change something; ``"idempotent"``: twice does what once does."""
    if isinstance(value, str) and value == "idempotent":
        return "idempotent"
    if not isinstance(value, bool):
        refuse(f"`{name}` must be a bool, or 'idempotent', got {shown(value)}")
    return value


def integer(
    value: object,
    name: str,
    least: int,
    most: int = MAX_COUNT,
    *,
    of: str = "",
    other: str = "",
    kind: ErrorKind = ErrorKind.OPTION_INVALID,
) -> int:
    """Returns `value`, an int within bounds; a bool is none.

    Args:
        value: What was given.
        name: The argument it was given for.
        least: The lower bound.
        most: The upper bound.
        of: Whose argument, such as ``" of RetryBudget"``.
        other: What it may be instead.
        kind: What is wrong otherwise.

    Raises:
        ConfigurationError: If it is no such int.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        refuse(f"`{name}`{of} must be an int of at least {least}{other}, got {shown(value)}", kind)
    if value > most:
        refuse(f"`{name}`{of} must be at most {most}, got {shown(value)}", kind)
    return value


def number(value: object, name: str, least: float, most: float = math.inf) -> float:
    """Returns `value`, a finite number within bounds; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        refuse(f"`{name}` must be a number, got {shown(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or not least <= found <= most:
        bounds = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        refuse(f"`{name}` must be a number {bounds}, got {shown(value)}")
    return found


def choice(value: object, name: str, *choices: str) -> Any:
    """Returns `value`, one of some words."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(map(repr, choices))
        refuse(f"`{name}` must be one of {known}, got {shown(value)}")
    return value


def mapping(value: object, name: str, of: str = "texts by name") -> dict[str, Any]:
    """Returns a mapping with texts as its keys; an empty one for ``None``."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        refuse(f"`{name}` must be a mapping, {of}, got {_kind(value)}")
    items = dict(cast("Mapping[object, Any]", value))
    return {text(key, name, f"a mapping, {of}"): item for key, item in items.items()}


class ObjectOf(Generic[_T]):
    """The check of an option whose value is an object of a class, or a short form that makes one.

    A bool is no int.

    Args:
        cls: The class.
        rule: What the option takes, for messages.
        kind: What is wrong otherwise.
        short: How values of other types become an object, or ``None``.
        default: What ``None`` stands for.
    """

    def __init__(
        self,
        cls: type[_T],
        rule: str,
        kind: ErrorKind = ErrorKind.OPTION_INVALID,
        short: Mapping[type, Callable[[Any], _T | None]] | None = None,
        default: _T | None = None,
    ) -> None:
        self._class = cls
        self._rule = rule
        self._kind = kind
        self._default = default
        self._short: Mapping[type, Callable[[Any], _T | None]] = short or {}

    def __call__(self, value: object, name: str) -> _T | None:
        """Returns the object.

        Raises:
            ConfigurationError: If `value` is neither one nor a short form of one.
        """
        if value is None:
            return self._default
        if isinstance(value, self._class):
            return value
        for form, make in self._short.items():
            if isinstance(value, form) and isinstance(value, bool) == (form is bool):
                try:
                    return make(value)
                except ConfigurationError as error:
                    refuse(f"`{name}` must be {self._rule}: {error}", error.kind)
        refuse(f"`{name}` must be {self._rule}, got {shown(value)}", self._kind)


def _kind(value: object) -> str:
    return "an empty str" if isinstance(value, str) else f"a `{type(value).__name__}`"
