# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Values of types that hold no others: which a column takes, and what PyArrow is given for them.

PyArrow takes more than is right: it cuts 1.5 to 1 for an integer column, drops the time of day for
a date, reads a number as microseconds since 1970 and a boolean as a number. So each type names the
values that need nothing done, and prepares or refuses all others. No state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from ctypes import c_float
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from operator import index
from time import mktime
from typing import Any, NoReturn, cast

import pyarrow as pa

_NONE = type(None)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_NAN = "NaN"
"""Stands for NaN, which Python takes for another value each time; no float is equal to it."""
_UNITS = {"s": 1_000_000, "ms": 1_000}
"""Microseconds of the units that are coarser."""


class Misfit(TypeError):  # noqa: N818 - caught here and in `results`, never seen
    """A value that a column does not take.

    Attributes:
        got: What it is, without the value itself.
        path: Where it is in a nested value, innermost last.
    """

    def __init__(self, got: str, path: str = "") -> None:
        """Describes the value."""
        super().__init__(got)
        self.got = got
        self.path = path


class Conversion:
    """Prepares the values of one column, or of one part of a nested column.

    Args:
        plain: Types whose values need nothing done.
        one: Prepares a value of another type, or raises.
        are_plain: Tells whether values of those types really need nothing done.
        stored: Makes of each value that needs nothing done what PyArrow is given.
    """

    def __init__(
        self,
        plain: set[type],
        one: Callable[[Any], Any],
        *,
        are_plain: Callable[[Sequence[Any]], bool] | None = None,
        stored: Callable[[Any], Any] | None = None,
    ) -> None:
        """Takes the parts of the rule."""
        self._plain = plain | {_NONE}
        self.one = one
        self._are_plain = are_plain
        self._stored = stored

    def all(self, values: Iterable[Any]) -> Sequence[Any]:
        """Prepares many values.

        Raises:
            Misfit: If one of them cannot be stored without loss.
        """
        values = values if isinstance(values, (list, tuple)) else list(values)
        values = cast("Sequence[Any]", values)
        prepare = self._stored
        if not self._plain.issuperset(map(type, values)) or (
            self._are_plain is not None and not self._are_plain(values)
        ):
            prepare = self.one
        if prepare is None:
            return values
        return [None if value is None else prepare(value) for value in values]


def refuse(value: object, what: str = "") -> NoReturn:
    """Raises the `Misfit` of `value`, whose type it names, and `what` about it."""
    raise Misfit(f"a value of type `{type(value).__name__}`{what}")


def identity_of_leaf(data_type: pa.DataType) -> Callable[[Any], Hashable] | None:
    """Returns what makes equal things of values that a column of `data_type` takes for one.

    Returns:
        ``None`` where those are the values that are equal in Python.
    """
    if pa.types.is_float64(data_type):
        return lambda value: _NAN if value != value else value  # noqa: PLR0124
    if pa.types.is_floating(data_type):
        return lambda value: _NAN if value != value else c_float(value).value  # noqa: PLR0124
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:  # pyright: ignore[reportAttributeAccessIssue]
        # In the hour that is there twice an aware time is equal to none of another zone.
        return lambda value: value - _EPOCH
    return None


def _native(value: Any) -> Any:
    """Returns a scalar of NumPy as Python's own; other values as they are."""
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        if hasattr(value, "mask"):
            refuse(value, ", which is masked; return None")
        kind = value.dtype.kind
        if kind in "mM":
            micros = value.astype(f"{kind}8[us]")
            if micros != value and value == value:  # noqa: PLR0124 - NaT is not itself
                refuse(value, " finer than a microsecond")
            return micros.item()
        return value.item()
    return value


def _boolean(value: Any) -> Any:
    value = _native(value)
    return value if isinstance(value, bool) else refuse(value)


def _integer(value: Any) -> Any:
    value = _native(value)
    if isinstance(value, (bool, complex)):
        refuse(value)
    if isinstance(value, (float, Decimal)):
        # Infinities and NaN are not whole.
        is_whole = (
            value.is_integer()
            if isinstance(value, float)
            else value.is_finite() and (value == value.to_integral_value())
        )
        return int(value) if is_whole else refuse(value, " that is not whole")
    try:
        return index(value)
    except TypeError:
        return refuse(value)


def _floating(most: int) -> Conversion:
    """For floats that hold integers up to `most`. Rounds a double to a float, as Spark does."""

    def one(value: Any) -> Any:
        value = _native(value)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, bool) or not isinstance(value, int):
            refuse(value)
        if not -most <= value <= most:
            refuse(value, " that a float cannot hold exactly")
        return float(value)

    return Conversion({float}, one)


def _decimal(value: Any) -> Any:
    value = _native(value)
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(value, "; return a Decimal" if isinstance(value, float) else "")
    return Decimal(value)


def _string(value: Any) -> Any:
    # Of a subclass, such as an enum's, the text that it is, not how it shows itself.
    return str.__str__(value) if isinstance(value, str) else refuse(value)


def _binary(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()  # as Spark's own functions do
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else refuse(value)


def _day(value: Any) -> Any:
    value = _native(value)
    if isinstance(value, datetime):
        if _is_nothing(value):
            return None
        if value.time() != time() or getattr(value, "nanosecond", 0):
            refuse(value, " with a time of day")
        return value.date()
    return value if isinstance(value, date) or value is None else refuse(value)


def _moment(value: Any, unit: str) -> datetime | None:
    """Returns a `datetime` that fits `unit`."""
    value = _native(value)
    if value is None or _is_nothing(value):
        return None
    if not isinstance(value, datetime):
        refuse(value)
    if value.microsecond % _UNITS.get(unit, 1) or getattr(value, "nanosecond", 0):
        refuse(value, f" finer than `{unit}`")
    to_datetime = getattr(value, "to_pydatetime", None)
    return value if to_datetime is None else to_datetime()


def _is_nothing(value: Any) -> bool:
    """Whether it is pandas' missing time, which is not equal to itself."""
    return bool(value != value)  # noqa: PLR0124


def _instant_conversion(data_type: pa.TimestampType) -> Conversion:
    unit = data_type.unit

    def one(value: Any) -> Any:
        if hasattr(value, "dtype"):
            refuse(value, ", which has no time zone; return an aware datetime")
        value = _moment(value, unit)
        if value is None or value.tzinfo is not None:
            return value
        # In the zone of this process, as in Spark's own functions.
        return _of_this_zone(value)

    return _moments(one, unit, is_aware=True)


def _of_this_zone(value: datetime) -> datetime:
    """Returns the instant of a time without zone; `fold` says which, where it was there twice."""
    whole = value.replace(microsecond=0)
    try:
        try:
            seconds = whole.timestamp()
        except (OverflowError, ValueError):  # near the ends of what `datetime` holds
            seconds = mktime(whole.timetuple())
        return _EPOCH + timedelta(seconds=int(seconds), microseconds=value.microsecond)
    except (OverflowError, ValueError, OSError):
        return refuse(value, " out of range")


def _wall_clock_conversion(data_type: pa.TimestampType) -> Conversion:
    unit = data_type.unit

    def one(value: Any) -> Any:
        value = _moment(value, unit)
        # What its clock shows, as in Spark's own functions.
        return None if value is None else value.replace(tzinfo=None)

    return _moments(one, unit, is_aware=False)


def _moments(one: Callable[[Any], Any], unit: str, *, is_aware: bool) -> Conversion:
    """The type of a `datetime` does not say whether it must be converted."""

    def are_plain(values: Sequence[Any]) -> bool:
        return all(value is None or (value.tzinfo is not None) is is_aware for value in values)

    return Conversion(set() if unit in _UNITS else {datetime}, one, are_plain=are_plain)


def _duration_conversion(data_type: pa.DurationType) -> Conversion:
    unit = data_type.unit

    def one(value: Any) -> Any:
        value = _native(value)
        if value is None or _is_nothing(value):
            return None
        if not isinstance(value, timedelta):
            refuse(value)
        if value // _MICROSECOND % _UNITS.get(unit, 1) or getattr(value, "nanoseconds", 0):
            refuse(value, f" finer than `{unit}`")
        return timedelta(value.days, value.seconds, value.microseconds)

    return Conversion(set() if unit in _UNITS else {timedelta}, one)


def _time_conversion(data_type: pa.Time32Type | pa.Time64Type) -> Conversion:
    unit = data_type.unit

    def one(value: Any) -> Any:
        if not isinstance(value, time):
            refuse(value)
        if value.microsecond % _UNITS.get(unit, 1):
            refuse(value, f" finer than `{unit}`")
        return value.replace(tzinfo=None)

    return Conversion(set() if unit in _UNITS else {time}, one)


Rules = list[tuple[Callable[[pa.DataType], bool], Callable[[Any], Conversion]]]
"""Tests of a type, each with what makes its conversion."""
LEAVES: Rules = [
    (pa.types.is_boolean, lambda _: Conversion({bool}, _boolean)),
    (pa.types.is_integer, lambda _: Conversion({int}, _integer)),
    (pa.types.is_float16, lambda _: _floating(2**11)),
    (pa.types.is_float32, lambda _: _floating(2**24)),
    (pa.types.is_float64, lambda _: _floating(2**53)),
    (pa.types.is_decimal, lambda _: Conversion({Decimal}, _decimal)),
    (pa.types.is_string, lambda _: Conversion({str}, _string)),
    (pa.types.is_large_string, lambda _: Conversion({str}, _string)),
    (pa.types.is_binary, lambda _: Conversion({bytes}, _binary)),
    (pa.types.is_large_binary, lambda _: Conversion({bytes}, _binary)),
    (lambda it: pa.types.is_timestamp(it) and it.tz is not None, _instant_conversion),
    (pa.types.is_timestamp, _wall_clock_conversion),
    (pa.types.is_date, lambda _: Conversion({date}, _day)),
    (pa.types.is_duration, _duration_conversion),
    (pa.types.is_time, _time_conversion),
]
