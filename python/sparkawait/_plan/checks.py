# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Checks of single arguments, where the user calls. Pure functions, for any thread.

Whatever is given, a check returns it or raises `ConfigurationError`: values that cannot be printed,
compared or encoded included.
"""

from __future__ import annotations

import difflib
import functools
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, Generic, Literal, NoReturn, TypeVar, cast

import pyarrow as pa

from sparkawait._core import simple_string
from sparkawait._plan.arrow_types import fields_within
from sparkawait.exceptions import ConfigurationError, ErrorKind

_T = TypeVar("_T")
_logger = logging.getLogger("sparkawait")

MAX_COUNT = 2**31 - 1
"""Most of anything that is counted in rows, calls or connections, unless an option says less."""

MAX_BYTES = 2**40
"""Most bytes that an option may name: a terabyte, more than any process has."""

_MAX_SHOWN = 100


def refuse(message: str, kind: ErrorKind = ErrorKind.OPTION_INVALID) -> NoReturn:
    """Raises a `ConfigurationError`."""
    raise ConfigurationError(message, kind)


@functools.cache
def warn_once(message: str, *arguments: object) -> None:
    """Logs a warning once a process, however often a `foreachBatch` comes to it."""
    _logger.warning(message, *arguments)


def shown(value: object) -> str:
    """Returns `value` for a message: shortened, and by its type alone if it cannot be printed."""
    try:
        # Not the representation of a huge number or container, only to cut it afterwards.
        printed = hex(value) if isinstance(value, int) and abs(value) > MAX_BYTES else repr(value)
    except Exception:  # noqa: BLE001 - whatever a foreign `__repr__` raises
        return f"a `{type(value).__name__}`"
    printed = printed.encode("utf-8", "backslashreplace").decode()
    return printed if len(printed) <= _MAX_SHOWN else f"{printed[: _MAX_SHOWN - 2]}.."


def text(
    value: object,
    name: str,
    rule: str = "a str",
    *,
    quoted: bool = True,
    of: str = "",
    kind: ErrorKind = ErrorKind.OPTION_INVALID,
) -> str:
    """Returns `value`, a text that is not empty and can be sent.

    Args:
        value: What was given.
        name: The argument it was given for.
        rule: What the argument takes.
        quoted: Whether the message may quote it; ``False`` where there may be a password in it.
        of: Whose argument, such as ``" of RateLimit"``.
        kind: What is wrong otherwise.

    Raises:
        ConfigurationError: If it is not.
    """
    if not isinstance(value, str) or not value:
        found = shown(value) if quoted else _kind(value)
        refuse(f"`{name}`{of} must be {rule}, got {found}", kind)
    if not is_unicode(value):
        refuse(f"`{name}`{of} has characters that are not Unicode text (lone surrogates)", kind)
    return value


def is_unicode(value: str) -> bool:
    """Tells whether a text can be encoded; those with lone surrogates cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def flag(
    value: object, name: str, *, of: str = "", kind: ErrorKind = ErrorKind.OPTION_INVALID
) -> bool:
    """Returns `value`, ``True`` or ``False``; nothing else is taken for one of them."""
    if not isinstance(value, bool):
        refuse(f"`{name}`{of} must be a bool, got {shown(value)}", kind)
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
    """Returns `value`, an int within bounds, not a bool.

    Args:
        value: What was given.
        name: The argument it was given for.
        least: The lower bound.
        most: The upper bound.
        of: Whose argument, such as ``" of Budget"``.
        other: What it may be instead.
        kind: What is wrong otherwise.

    Raises:
        ConfigurationError: If it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        refuse(f"`{name}`{of} must be an int of at least {least}{other}, got {shown(value)}", kind)
    if value > most:
        refuse(f"`{name}`{of} must be at most {most}, got {shown(value)}", kind)
    return value


def number(
    value: object,
    name: str,
    least: float,
    most: float = math.inf,
    *,
    of: str = "",
    kind: ErrorKind = ErrorKind.OPTION_INVALID,
) -> float:
    """Returns `value`, a finite number within bounds, not a bool."""
    if isinstance(value, bool) or not isinstance(value, Real):
        refuse(f"`{name}`{of} must be a number, got {shown(value)}", kind)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or not least <= found <= most:
        bounds = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        refuse(f"`{name}`{of} must be a number {bounds}, got {shown(value)}", kind)
    return found


def choice(
    value: object,
    name: str,
    *choices: str,
    of: str = "",
    kind: ErrorKind = ErrorKind.OPTION_INVALID,
) -> Any:
    """Returns `value`, one of some words."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(map(repr, choices))
        refuse(f"`{name}`{of} must be one of {known}, got {shown(value)}", kind)
    return value


def mapping(value: object, name: str, of: str = "texts by name") -> dict[str, Any]:
    """Returns a mapping with texts as its keys; an empty one for ``None``."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        refuse(f"`{name}` must be a mapping, {of}, got {_kind(value)}")
    items = dict(cast("Mapping[object, Any]", value))
    return {text(key, name, f"a mapping, {of}"): item for key, item in items.items()}


def or_none(cls: Callable[[], _T]) -> Callable[[bool], _T | None]:
    """Returns the short form that ``True`` is: an object of `cls` with its defaults."""
    return lambda value: cls() if value else None


class ObjectOf(Generic[_T]):
    """The check of an option whose value is an object of a class, or a short form that makes one.

    A bool is not an int.

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


# -- what was meant by a name that is not there. Pure functions, for any thread

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


# -- checks of columns that options name; each raises a `ConfigurationError`.
#
# Pure functions, for any thread.


def require_column(
    schema: pa.Schema, column: str, option: str, *, is_in_text: bool = False
) -> None:
    """Checks that the input has a column; one that a text has in braces may not be meant as one."""
    if column not in schema.names:
        is_text = is_in_text and not re.fullmatch(r"[\w.-]+", column)
        hint = "if the braces are part of the text, write `{{` and `}}`"
        hint += ", or sparkawait.http.literal(..)"
        refuse_column(schema.names, column, option, hint if is_text else "")


def refuse_column(columns: Iterable[str], column: str, option: str, hint: str = "") -> NoReturn:
    """Raises a `ConfigurationError` about a column that the input does not have."""
    hint = hint or suggestion(column, columns)
    msg = f"`{option}` names column `{column}`, which the input does not have; {hint}"
    raise ConfigurationError(msg, ErrorKind.COLUMN_MISSING)


def rename_of(column: str, written: str) -> str:
    """Returns what to write where a function returns a column that the input has, too.

    Args:
        column: The column of the input.
        written: Where a user has written what a native function returns; empty for others.
    """
    way = (
        f"write `{column} as new_{column}` in {written}" if written else "return it by another name"
    )
    before = f"df.withColumnRenamed({column!r}, {column + '_before'!r})"
    return f"{way}, or rename that of the input: {before}"


def require_key(schema: pa.Schema, column: str, option: str, kind: ErrorKind) -> None:
    """Checks that the input has a column whose values can be compared."""
    require_column(schema, column, option)
    found = schema.field(column)
    if any(pa.types.is_map(it.type) or pa.types.is_union(it.type) for it in fields_within(found)):
        refuse(
            f"`{option}` names column `{column}` of type {found.type}, whose values cannot be"
            " compared",
            kind,
        )


def require_number(field: pa.Field, option: str) -> None:
    """Checks that a column has numbers."""
    found, of = field.type, pa.types
    if not (of.is_integer(found) or of.is_floating(found) or of.is_decimal(found)):
        msg = f"`{option}` names `{field.name}`, which is not a number but {simple_string(found)}"
        raise ConfigurationError(msg, ErrorKind.RATE_LIMIT_INVALID)


def require_timestamp(schema: pa.Schema, column: str) -> None:
    """Checks that the input has a column of timestamps."""
    require_column(schema, column, "watermark")
    found = schema.field(column).type
    if not pa.types.is_timestamp(found):
        name = simple_string(found)
        msg = f"`watermark` names column `{column}`, which is not a timestamp but {name}"
        raise ConfigurationError(msg, ErrorKind.COLUMN_NOT_A_TIMESTAMP)


def require_number_at(schema: pa.Schema, path: str, option: str, function_name: str) -> list[str]:
    """Returns the names on the way to a column of numbers, or to a field inside of one.

    Args:
        schema: What the function returns.
        path: A column, or a column and fields with points between them.
        option: Names the column.
        function_name: What returns it.
    """
    names = [path] if path in schema.names else path.split(".")
    fields, found = list(schema), None
    for name in names:
        found = next((field for field in fields if field.name == name), None)
        if found is None:
            break
        fields = list(cast("Any", found.type)) if pa.types.is_struct(found.type) else []
    if found is None:
        msg = f"`{option}` names `{path}`, which `{function_name}` does not return"
        raise ConfigurationError(msg, ErrorKind.COLUMN_MISSING)
    require_number(found, option)
    return names
