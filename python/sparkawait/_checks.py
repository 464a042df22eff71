# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Checks of single arguments, where the user calls: words, numbers, times, sizes, columns.

Whatever is given, a check returns it in one form or raises `ConfigurationError`: values that cannot
be printed, compared or encoded included. Pure functions, for any thread.
"""

from __future__ import annotations

import difflib
import functools
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from numbers import Real
from typing import Any, Generic, Literal, NoReturn, Protocol, TypeAlias, TypeGuard, TypeVar, cast

import pyarrow as pa

from sparkawait._core import simple_string
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
    return "an empty str" if isinstance(value, str) and not value else f"a `{type(value).__name__}`"


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


# -- what Arrow types have inside of them. Pure functions, for any thread


def fields_within(field: pa.Field[Any]) -> Iterator[pa.Field[Any]]:
    """Yields a field, and all fields inside of it."""
    yield field
    kind: Any = field.type
    for index in range(kind.num_fields):
        yield from fields_within(kind.field(index))


def with_leaves(
    field: pa.Field[Any], change: Callable[[pa.Field[Any]], pa.Field[Any]]
) -> pa.Field[Any]:
    """Returns `field` with all fields changed that have none inside of them."""
    kind: Any = field.type

    def inside(part: pa.Field[Any]) -> Any:
        return with_leaves(part, change)

    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([inside(part) for part in kind]))
    if pa.types.is_map(kind):
        key, item = inside(kind.key_field), inside(kind.item_field)
        return field.with_type(cast("Any", pa.map_)(key, item, keys_sorted=kind.keys_sorted))
    if pa.types.is_fixed_size_list(kind):
        return field.with_type(pa.list_(inside(kind.value_field), kind.list_size))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(inside(kind.value_field)))
    if pa.types.is_large_list(kind):
        return field.with_type(pa.large_list(inside(kind.value_field)))
    return change(field)


def is_any_list(data_type: pa.DataType) -> bool:
    """Tells whether values are lists, of whatever length."""
    return (
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )


def is_variant(data_type: Any) -> bool:
    """Tells whether a type is that of variants, which is a struct with a mark."""
    if not pa.types.is_struct(data_type):
        return False
    return any(b"variant" in (field.metadata or {}) for field in data_type)


def nullable(fields: Iterable[pa.Field[Any]]) -> list[pa.Field[Any]]:
    """Returns fields that may all be null."""
    return [field.with_nullable(True) for field in fields]  # noqa: FBT003


# -- lengths of time, sizes and columns, as users write them. Pure functions, for any thread


Duration: TypeAlias = str | timedelta | float
"""A length of time: ``"5s"``, ``"1.5 min"``, ``"1h 30min"``, a `timedelta`, or seconds."""

_SECONDS = {
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_INVALID = ErrorKind.DURATION_INVALID
_LONGEST = 1e14
"""Seconds. More than any timedelta, and a length that all clocks can add."""
_SHORTEST = 1e-9
_PART = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Zµμ]+)\s*")


def parse_duration(value: object, name: str) -> float:
    """Returns `value` in seconds.

    Fractions of a millisecond are kept. The string form is one or more numbers with a unit, which
    are added up.

    Args:
        value: ``"100ms"``, ``"1.5 min"``, ``"1h 30min"``, a `timedelta`, or a number of seconds.
        name: The argument it was given for, used in messages.

    Raises:
        ConfigurationError: If `value` has another type, is negative, not finite or above 1e14
            seconds, three million years.

    Examples:
        >>> parse_duration("1.5 min", "timeout")
        90.0
    """
    seconds = _to_seconds(value, name)
    if not math.isfinite(seconds):
        refuse(f"`{name}` must be finite, got {shown(value)}", ErrorKind.DURATION_INVALID)
    if seconds < 0:
        refuse(f"`{name}` must not be negative, got {shown(value)}", ErrorKind.DURATION_INVALID)
    return seconds


def positive_duration(value: object, name: str, *, hint: str = "") -> float:
    """Returns `value` in seconds and refuses zero.

    Args:
        value: As in `parse_duration`.
        name: The argument it was given for, used in messages.
        hint: What to write instead, appended to the message.

    Raises:
        ConfigurationError: If `value` is not a duration, or not positive.
    """
    seconds = _to_seconds(value, name)
    if not seconds > 0 or math.isinf(seconds):
        found = f"{shown(value)}{hint and f'; {hint}'}"
        kind = ErrorKind.TIMEOUT_NOT_POSITIVE
        refuse(f"`{name}` must be positive and finite, got {found}", kind)
    if seconds < _SHORTEST:
        refuse(f"`{name}` must be at least a nanosecond, got {shown(value)}", kind=_INVALID)
    return seconds


def optional_duration(value: object, name: str) -> float | None:
    """Returns `value` in seconds, and ``None`` for no bound; refuses zero."""
    return None if value is None else positive_duration(value, name, hint="None sets no bound")


def _to_seconds(value: object, name: str) -> float:
    if isinstance(value, str):
        seconds = _parse_text(value, name)
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif not isinstance(value, bool) and isinstance(value, Real):
        seconds = _of_number(value)
    else:
        refuse(
            f"`{name}` must be a string with a unit, a timedelta or a number of seconds,"
            f" got `{type(value).__name__}`",
            _INVALID,
        )
    if _LONGEST < seconds < math.inf:
        refuse(f"`{name}` must be at most {_LONGEST:g} seconds, got {shown(value)}", _INVALID)
    return seconds


def _of_number(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if cast("Any", value) > 0 else -math.inf


def _parse_text(text: str, name: str) -> float:
    body = text.strip()
    sign = -1.0 if body.startswith("-") else 1.0
    body = body.removeprefix("-")
    total, position = 0.0, 0
    while match := _PART.match(body, position):
        number, unit = match.groups()
        if unit.lower() not in _SECONDS:
            break
        total += float(number) * _SECONDS[unit.lower()]
        position = match.end()
    if position == 0 or position != len(body):
        refuse(
            f"`{name}` is not a duration: {shown(text)}; write a number and a unit"
            " (ns, us, ms, s, min, h, d), as in '5s' or '100ms'",
            _INVALID,
        )
    return sign * total


# -- sizes in bytes, as users write them. Pure functions, for any thread

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
        ConfigurationError: If `value` has another type, is below one byte or above `most`.

    Examples:
        >>> parse_size("64 MB", "max_bytes", most=2**31 - 1)
        67108864
    """
    if isinstance(value, str):
        size = _parse_size(value, name, kind)
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


def _parse_size(text: str, name: str, kind: ErrorKind) -> int:
    match = _SIZE.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    # No size has so many digits, and numbers of thousands of them take long to read.
    if match is None or unit is None or len(match[1]) > 30:  # noqa: PLR2004
        refuse(
            f"`{name}` is not a size: {shown(text)}; write a number and a unit (b, kb, mb, gb),"
            " as in '64 MB'",
            kind,
        )
    number = match[1]
    return int(number) * unit if number.isdecimal() else int(float(number) * unit)


# -- columns of the input, as options name them: by a name or by an expression.
#
# Pure functions, for any thread.


class ColumnExpression(Protocol):
    """A ``Column`` of PySpark, of a classic session or of Spark Connect."""

    def alias(self, *alias: str, **kwargs: Any) -> Any: ...
    def isNotNull(self) -> Any: ...  # noqa: N802 - Spark's own


ColumnLike: TypeAlias = str | ColumnExpression
"""A column: its name, or an expression of PySpark such as ``F.lower("name")``."""

ColumnsLike: TypeAlias = ColumnLike | Sequence[ColumnLike]
"""A column, or several."""


def is_expression(value: object) -> TypeGuard[ColumnExpression]:
    """Tells whether it is a ``Column``, which only Spark can compute."""
    return type(value).__name__ == "Column" and hasattr(value, "alias")


def columns(
    value: object,
    name: str,
    kind: ErrorKind = ErrorKind.OPTION_INVALID,
    whose: str = "",
) -> tuple[ColumnLike, ...]:
    """Returns columns, given as one or as a list.

    Args:
        value: What was given.
        name: The argument it was given for.
        kind: Of the error.
        whose: What the argument belongs to, for the message.

    Raises:
        ConfigurationError: If it is something else, or an empty list.
    """
    several = isinstance(value, (list, tuple))
    given = cast("Sequence[object]", value if several else [value])
    if not given or not all(isinstance(it, str) or is_expression(it) for it in given):
        refuse(f"`{name}`{whose} must be a column name or a list of them, got {shown(value)}", kind)
    return tuple(cast("Sequence[ColumnLike]", given))


def named(
    value: Sequence[ColumnLike], name: str, kind: ErrorKind = ErrorKind.OPTION_INVALID
) -> tuple[str, ...]:
    """Returns columns that are all named, where nobody computes expressions.

    Raises:
        ConfigurationError: If one of them is an expression.
    """
    for column in value:
        if not isinstance(column, str):
            who = "which only calls over DataFrames compute"
            refuse(f"`{name}` is an expression, {who}; name columns", kind)
    return tuple(cast("Sequence[str]", value))
