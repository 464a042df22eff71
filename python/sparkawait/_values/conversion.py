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

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from ctypes import c_float
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal, Rounded
from itertools import chain
from operator import index
from struct import pack
from time import mktime
from typing import Any, NoReturn, cast

import pyarrow as pa

from sparkawait._checks import is_any_list, is_variant
from sparkawait._values.records import fields_of

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


# -- which values a column takes: by the two kinds first, then by the value. Casts of whole columns
# (`kept`) ask the same table.

_KINDS: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "integer"),
    (pa.types.is_floating, "floating"),
    (pa.types.is_decimal, "decimal"),
    (lambda it: str(it) in {"string", "large_string", "string_view"}, "text"),
    (lambda it: str(it) in {"binary", "large_binary", "binary_view"}, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_duration, "duration"),
    (lambda it: pa.types.is_timestamp(it) and cast("Any", it).tz is None, "clock"),
    (pa.types.is_timestamp, "instant"),
]
_TAKES = {
    "integer": {"floating", "decimal"},
    "floating": {"integer"},
    "decimal": {"integer"},
    "bytes": {"text"},
    "date": {"clock"},
}
"""A column takes values of its own kind, and of these kinds what loses nothing in it. Others would
say something else there: 5 is another thing than "5", and 1.5 often the nearest double to what was
meant as a decimal."""
_AS_RESULTS = {"clock": {"instant"}, "instant": {"clock"}, "date": {"instant"}}
"""And those of a function's results, as of Spark's own: what a clock shows, or where it is."""


def kind_of(data_type: pa.DataType) -> str | None:
    """Returns the kind of a type that holds no others; ``None`` for other types."""
    return next((kind for matches, kind in _KINDS if matches(data_type)), None)


def kinds_for(kind: str | None, *, keeps_all: bool) -> set[str | None]:
    """Returns the kinds whose values a column of this one may take; see `conversion_to`."""
    if kind is None:
        return set()
    more = set[str]() if keeps_all else _AS_RESULTS.get(kind, set())
    return {kind, *_TAKES.get(kind, ()), *more}


_OF_PYTHON: list[tuple[type | tuple[type, ...], str]] = [
    (bool, "boolean"),
    (int, "integer"),
    (float, "floating"),
    (Decimal, "decimal"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytes"),
    (date, "date"),
    (time, "time"),
    (timedelta, "duration"),
]


def _kind_of_value(value: Any) -> str | None:
    if isinstance(value, datetime):
        return "clock" if value.tzinfo is None else "instant"
    known = next((kind for types, kind in _OF_PYTHON if isinstance(value, types)), None)
    return known or ("integer" if hasattr(value, "__index__") else None)


def _leaf(
    kind: str,
    plain: set[type],
    prepare: Callable[[Any], Any],
    *,
    keeps_all: bool,
    are_plain: Callable[[Sequence[Any]], bool] | None = None,
    native: Callable[[Any], Any] = _native,
) -> Conversion:
    """Returns the conversion for a kind of column; `prepare` sees values of kinds that it takes."""
    known = kinds_for(kind, keeps_all=keeps_all)

    def one(value: Any) -> Any:
        value = native(value)
        if value is None or (kind in _TIMES and _is_nothing(value)):
            return None
        found = _kind_of_value(value)
        if found not in known:
            refuse(value, _WHY.get((found, kind), ""))
        return prepare(value)

    return Conversion(plain, one, are_plain=are_plain)


_TIMES = {"date", "duration", "clock", "instant"}
_WHY: dict[tuple[str | None, str], str] = {
    ("floating", "decimal"): "; return a Decimal",
    ("clock", "instant"): " without a time zone",
    ("instant", "clock"): " with a time zone",
    ("instant", "date"): " with a time zone",
}


def _is_nothing(value: Any) -> bool:
    """Whether it is pandas' missing time, which is not equal to itself."""
    return not isinstance(value, (float, Decimal)) and bool(value != value)  # noqa: PLR0124


def _same(value: Any) -> Any:
    return value


def _integer(value: Any) -> int:
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
    except TypeError:  # an array has the method, too
        return refuse(value)


def _floats(most: int, form: str, *, keeps_all: bool) -> Conversion:
    """For floats of a `form` of `struct`, which hold integers up to `most`.

    A double is rounded to a float, as Spark does, but does not become an infinity.
    """

    def fit(values: Sequence[Any]) -> bool:
        found = [value for value in values if value is not None]
        try:
            pack(f"<{len(found)}{form}", *found)  # `<`, since native floats are not checked
        except OverflowError:
            return False
        return True

    def prepare(value: Any) -> float:
        if not isinstance(value, float):
            value = _integer(value)
            if not -most <= value <= most:
                refuse(value, " that a float cannot hold exactly")
        return float(value) if fit([value]) else refuse(value, " out of range")

    are_plain = None if form == "d" else fit
    return _leaf("floating", {float}, prepare, keeps_all=keeps_all, are_plain=are_plain)


_MOST_DIGITS = Context(prec=38, traps=[Rounded])
"""Raises for more digits than any column has; zeros count."""


def _decimal(value: Any) -> Decimal:
    if not isinstance(value, Decimal):
        return Decimal(_integer(value))
    try:
        return _MOST_DIGITS.plus(value)
    except Rounded:
        # It needs no rounding where those are zeros.
        value = value.normalize(Context(prec=len(value.as_tuple().digits)))
        return value if len(value.as_tuple().digits) <= _MOST_DIGITS.prec else refuse(value)


def _are_short(values: Sequence[Any]) -> bool:
    """PyArrow stores some decimals of more digits as others, such as 1.5 with 40 zeros as 0."""
    try:
        deque(map(_MOST_DIGITS.plus, (it for it in values if it is not None)), 0)
    except Rounded:
        return False
    return True


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)  # as Spark's own functions do


def _day(value: Any) -> date:
    if not isinstance(value, datetime):
        return value
    if value.time() != time() or getattr(value, "nanosecond", 0):
        refuse(value, " with a time of day")
    return value.date()


def _moments(data_type: pa.TimestampType, *, keeps_all: bool) -> Conversion:
    unit, is_aware = data_type.unit, data_type.tz is not None

    def prepare(value: Any) -> datetime:
        if value.microsecond % _UNITS.get(unit, 1) or getattr(value, "nanosecond", 0):
            refuse(value, f" finer than `{unit}`")
        to_datetime = getattr(value, "to_pydatetime", None)
        value = value if to_datetime is None else to_datetime()
        if not is_aware:
            # What its clock shows, as in Spark's own functions.
            return value.replace(tzinfo=None)
        # In the zone of this process, as in Spark's own functions.
        return value if value.tzinfo is not None else _of_this_zone(value)

    def are_plain(values: Sequence[Any]) -> bool:
        # The type of a `datetime` does not say whether it must be converted.
        return all(value is None or (value.tzinfo is not None) is is_aware for value in values)

    plain = set[type]() if unit in _UNITS else {datetime}
    kind = "instant" if is_aware else "clock"
    native = _without_numpy if is_aware else _native
    return _leaf(kind, plain, prepare, keeps_all=keeps_all, are_plain=are_plain, native=native)


def _without_numpy(value: Any) -> Any:
    if hasattr(value, "dtype"):
        refuse(value, ", which has no time zone; return an aware datetime")
    return value


def _of_this_zone(value: datetime) -> datetime:
    """Returns the instant of a time without zone; `fold` says which, where it was there twice."""
    whole = value.replace(microsecond=0)
    try:
        try:
            seconds = whole.timestamp()
        except (OverflowError, ValueError):  # near the ends of what `datetime` holds
            seconds = mktime(whole.timetuple())
        since = timedelta(seconds=int(seconds), microseconds=value.microsecond)
    except (OverflowError, ValueError, OSError):
        return refuse(value, " out of range")
    try:
        return _EPOCH + since
    except OverflowError:  # it is a year 0 or 10000 in UTC
        return value.replace(tzinfo=timezone(value - _EPOCH.replace(tzinfo=None) - since))


def _durations(data_type: pa.DurationType, *, keeps_all: bool) -> Conversion:
    unit = data_type.unit

    def prepare(value: Any) -> timedelta:
        if value // _MICROSECOND % _UNITS.get(unit, 1) or getattr(value, "nanoseconds", 0):
            refuse(value, f" finer than `{unit}`")
        return timedelta(value.days, value.seconds, value.microseconds)

    plain = set[type]() if unit in _UNITS else {timedelta}
    return _leaf("duration", plain, prepare, keeps_all=keeps_all)


def _times_of_day(data_type: pa.Time32Type | pa.Time64Type, *, keeps_all: bool) -> Conversion:
    unit = data_type.unit

    def prepare(value: Any) -> time:
        if value.microsecond % _UNITS.get(unit, 1):
            refuse(value, f" finer than `{unit}`")
        return value.replace(tzinfo=None)

    plain = set[type]() if unit in _UNITS else {time}
    return _leaf("time", plain, prepare, keeps_all=keeps_all)


def _of_leaf(data_type: Any, *, keeps_all: bool) -> Conversion | None:
    """Returns the conversion for a type that holds no others, if one is needed."""
    # Of a subclass of `str`, such as an enum's, the text that it is, not how it shows itself.
    simple: dict[str, tuple[type, Callable[[Any], Any]]] = {
        "boolean": (bool, _same),
        "integer": (int, _integer),
        "decimal": (Decimal, _decimal),
        "text": (str, str.__str__),
        "bytes": (bytes, _bytes),
        "date": (date, _day),
    }
    kind = kind_of(data_type)
    if kind is None:
        return None
    if kind == "floating":
        return _floats(*_FLOATS[data_type.bit_width], keeps_all=keeps_all)
    if kind in simple:
        plain, prepare = simple[kind]
        are_plain = _are_short if kind == "decimal" else None
        return _leaf(kind, {plain}, prepare, keeps_all=keeps_all, are_plain=are_plain)
    of_kind: Any = {"time": _times_of_day, "duration": _durations}.get(kind, _moments)
    return of_kind(data_type, keeps_all=keeps_all)


_FLOATS = {16: (2**11, "e"), 32: (2**24, "f"), 64: (2**53, "d")}


# -- values of columns, nested ones above all, in the form that PyArrow takes
#
# Columns whose values PyArrow takes as they should be are not looked at further.
# No state.


def conversion_to(data_type: pa.DataType, *, keeps_all: bool = False) -> Conversion | None:
    """Returns the conversion for a column of `data_type`; ``None`` if PyArrow needs no help.

    Args:
        data_type: The type.
        keeps_all: Whether it refuses what a result may have and its column has no place for: the
            zone of a time, or that it has none, and further members of a struct.
    """
    if is_variant(data_type):
        return Conversion(set(), _variant)
    for matches, make in _NESTED:
        if matches(data_type):
            return make(data_type, keeps_all=keeps_all)
    return _of_leaf(data_type, keeps_all=keeps_all)


def _list_conversion(data_type: pa.ListType, *, keeps_all: bool) -> Conversion:
    element = conversion_to(data_type.value_type, keeps_all=keeps_all)
    required = not data_type.value_field.nullable

    def one(value: Any) -> Any:
        user_defined = getattr(type(value), "__UDT__", None)
        if user_defined is not None:
            value = user_defined.serialize(value)
        if hasattr(value, "tolist") and hasattr(value, "dtype"):
            # Python's own values; times as they are, since their numbers have any unit.
            value = list(value) if value.dtype.kind in "mM" else value.tolist()
        if isinstance(value, (str, bytes, bytearray, memoryview)) or not isinstance(
            value, Sequence
        ):
            refuse(value)
        return _part(element, value, "element", required=required)

    def parts(values: Sequence[Sequence[Any] | None]) -> Iterable[_Part]:
        yield element, list(chain.from_iterable(it for it in values if it is not None)), required

    return Conversion({list, tuple}, one, are_plain=_looks_at(parts))


def _map_conversion(data_type: pa.MapType, *, keeps_all: bool) -> Conversion:
    key = conversion_to(data_type.key_type, keeps_all=keeps_all)
    item = conversion_to(data_type.item_type, keeps_all=keeps_all)
    identity = _identity_of(data_type.key_type)
    required = not data_type.item_field.nullable

    def one(value: Any) -> Any:
        is_mapping = True
        if isinstance(value, Mapping):
            pairs = list(value.items())
        elif isinstance(value, (list, tuple)):
            is_mapping, pairs = False, cast("list[tuple[Any, Any]]", _pairs(value))
        else:
            pairs = list((fields_of(value) or refuse(value)).items())
        keys = _part(key, [k for k, _ in pairs], "key", required=True)
        items = _part(item, [v for _, v in pairs], "value", required=required)
        found = _entries(keys, items, identity)
        return found if is_mapping or len(found) == len(pairs) else refuse(value, _TWICE)

    def parts(values: Sequence[dict[Any, Any] | None]) -> Iterable[_Part]:
        yield key, [k for value in values if value is not None for k in value], True
        yield item, [v for value in values if value is not None for v in value.values()], required

    def stored(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
        if identity is None:  # a dict tells them apart
            return list(value.items())
        return _entries(value.keys(), value.values(), identity)

    # Some versions of PyArrow do not take a dict for a map.
    return Conversion({dict}, one, are_plain=_looks_at(parts), stored=stored)


_TWICE = " with a key twice"
_Identity = Callable[[Any], Hashable]


def _entries(
    keys: Iterable[Any], items: Iterable[Any], identity: _Identity | None
) -> list[tuple[Any, Any]]:
    """Returns the entries of a map: of keys that are one in the column the last counts."""
    pairs = list(zip(keys, items, strict=True))
    return list(
        {(key if identity is None else identity(key)): (key, it) for key, it in pairs}.values()
    )


def _identity_of(data_type: Any) -> _Identity | None:
    """Returns what makes equal things of keys that are one in the column; ``None``: they are."""
    if pa.types.is_struct(data_type):
        parts = [(field.name, _identity_of(field.type)) for field in data_type]
        return lambda value: tuple(_identity(value.get(name), part) for name, part in parts)
    if is_any_list(data_type):
        element = _identity_of(data_type.value_type)
        return lambda values: tuple(_identity(value, element) for value in values)
    return identity_of_leaf(data_type)


def _identity(value: Any, identity: _Identity | None) -> Hashable:
    """Returns the identity of a value inside of a key, which may be null."""
    return value if value is None or identity is None else identity(value)


def _pairs(value: Sequence[Any]) -> Sequence[Any]:
    """Returns the pairs of a map that is written as such."""
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value):  # noqa: PLR2004
        refuse(value)
    return value


def _struct_conversion(data_type: pa.StructType, *, keeps_all: bool) -> Conversion:
    fields = list(data_type)
    names = [field.name for field in fields]
    known = frozenset(names)
    members = [
        (field.name, conversion_to(field.type, keeps_all=keeps_all), not field.nullable)
        for field in fields
    ]

    def one(value: Any) -> Any:
        found = fields_of(value)
        if found is None:
            # By position, as in Spark's own functions.
            if not isinstance(value, (list, tuple)) or len(value) != len(names):
                refuse(value)
            found = dict(zip(names, value, strict=True))
        elif not isinstance(value, Mapping) and not found.keys() >= set(names):
            missing = next(name for name in names if name not in found)
            refuse(value, f" without `{missing}`")
        if keeps_all and not known.issuperset(found):
            refuse(value, " with another member")
        return {
            name: _part(member, [found.get(name)], name, required=required)[0]
            for name, member, required in members
        }

    def parts(values: Sequence[dict[Any, Any] | None]) -> Iterable[_Part]:
        for name, member, required in members:
            yield member, [value.get(name) for value in values if value is not None], required

    are_known = _looks_at(parts)

    def are_plain(values: Sequence[Any]) -> bool:
        return all(known.issuperset(it) for it in values if it is not None) and are_known(values)

    return Conversion({dict}, one, are_plain=are_plain if keeps_all else are_known)


def _variant(value: Any) -> Any:
    """Returns the two parts of a variant of PySpark, as its own functions take one."""
    if type(value).__name__ != "VariantVal":
        refuse(value, "; return a pyspark.sql.types.VariantVal, such as VariantVal.parseJson(text)")
    return {"value": value.value, "metadata": value.metadata}


_Part = tuple[Conversion | None, list[Any], bool]
"""What converts the values of a part of many dicts, those values, and whether none may be null."""


def _looks_at(
    parts: Callable[[Sequence[Any]], Iterable[_Part]],
) -> Callable[[Sequence[Any]], bool]:
    """Returns what looks at each part of all dicts at once; mostly there is nothing to do."""

    def are_plain(values: Sequence[Any]) -> bool:
        for conversion, part, required in parts(values):
            if required and None in part:
                return False
            try:
                if conversion is not None and conversion.all(part) is not part:
                    return False
            except TypeError:
                return False
        return True

    return are_plain


def _part(
    conversion: Conversion | None, values: Sequence[Any], name: str, *, required: bool
) -> Sequence[Any]:
    """Prepares a part of a nested value."""
    try:
        values = values if conversion is None else conversion.all(values)
        if required and any(value is None for value in values):
            raise Misfit("None for a NOT NULL member")  # noqa: TRY301
    except Misfit as error:
        error.path = f".{name}{error.path}"
        raise
    return values


_NESTED: list[tuple[Callable[[pa.DataType], bool], Callable[..., Conversion]]] = [
    (pa.types.is_map, _map_conversion),
    (pa.types.is_struct, _struct_conversion),
    (is_any_list, _list_conversion),
]
