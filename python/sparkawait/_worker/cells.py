# SPDX-License-Identifier: Apache-2.0
"""Cells of a row that Python has no type for, as a function sees them; called by `_core.Row`.

For any thread. What a plan says of time zones is remembered for the process; all else are pure
functions.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone, tzinfo
from io import BytesIO
from typing import Any, NoReturn, cast
from zoneinfo import ZoneInfo

from sparkawait._checks import suggestion
from sparkawait._core import learn_zone
from sparkawait._plan.zone_rules import moments

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


class Struct(dict[str, Any]):
    """A struct cell: a dict by field name, whose fields are attributes too.

    A field that is named like a method of ``dict`` is reached by key only. It is also what a copy
    of a row is, and a row that was pickled.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Returns the field `name`.

        Raises:
            AttributeError: If there is none; the message names fields like it.
        """
        try:
            return self[name]
        except KeyError:
            no_column(name, self, "struct")

    def __dir__(self) -> list[str]:
        """Lists the fields too."""
        return sorted({*super().__dir__(), *self})

    def __hash__(self) -> int:  # type: ignore[override]
        """Hashes the fields: Spark's maps may have structs as keys."""
        return hash(frozenset(self.items()))

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002, N802
        """Returns the fields as a plain dict, as ``pyspark.sql.Row`` does.

        Args:
            recursive: Whether structs inside, also in arrays and maps, become plain dicts too.
        """
        return {name: _plain(value) for name, value in self.items()} if recursive else dict(self)


def instant(micros: int, where: tzinfo) -> datetime:
    """Returns the time that was `micros` microseconds after 1970 began in UTC, as of `where`."""
    return (_EPOCH + timedelta(microseconds=micros)).astimezone(where)


def zone(name: str) -> tzinfo:
    """Returns the time zone that Spark calls `name`.

    Raises:
        ValueError: If it is not known here.
    """
    fixed = fixed_zone(name)
    if fixed is not None:
        return fixed
    if name in _LEARNT:
        return _zone_with(name, _LEARNT[name])
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        msg = f"the time zone `{name}` is not known here; install the package `tzdata`"
        raise ValueError(msg) from error


def fixed_zone(name: str) -> timezone | None:
    """Returns the time zone that is always so much ahead of UTC, if `name` says one."""
    if name in ("UTC", "Z", "GMT", "UT"):
        return timezone.utc
    match = _OFFSET.fullmatch(name)
    if match is None:
        return None
    sign, *parts = match.groups(default="0")
    hours, minutes, seconds = map(int, parts)
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-offset if sign == "-" else offset)


_LEARNT: dict[str, bytes] = {}


def learn_zones(rules: Iterable[tuple[str, bytes]]) -> None:
    """Has zones follow the rules of TZif files from now on, here and in the extension module.

    The tasks of a process are of one application, which has one database of zones.
    """
    for name, tzif in rules:
        learn_zone(name, tzif)
        _LEARNT[name] = tzif


@functools.lru_cache(maxsize=16)
def _zone_with(name: str, tzif: bytes) -> tzinfo:
    """Returns the zone as it is known here, or one of its own if that follows other rules.

    The first one is equal to what functions make by themselves, and has names such as CEST.
    """
    try:
        here = ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        here = None
    told = _ToldZone.from_file(BytesIO(tzif), key=name)
    told.tzif, told.here = tzif, here
    if here is None:
        return told
    looks = (_EPOCH + timedelta(seconds=it) for it in moments(tzif))
    offsets = ((it.astimezone(here).utcoffset(), it.astimezone(told).utcoffset()) for it in looks)
    return here if all(of_here == of_told for of_here, of_told in offsets) else told


class _ToldZone(ZoneInfo):
    """A zone with rules that were told; another process may have it, too."""

    tzif: bytes
    here: ZoneInfo | None
    """The one that is known by this name, with other rules."""

    def tzname(self, when: datetime | None, /) -> str | None:
        """Returns what the time is called where it is known, such as CET; else its offset."""
        if self.here is not None and self.here.utcoffset(when) == self.utcoffset(when):
            return self.here.tzname(when)
        return super().tzname(when)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the rules: a zone of a file refuses that."""
        return _zone_with, (self.key, self.tzif)


def variant(value: bytes, metadata: bytes) -> Any:
    """Returns a variant as PySpark's own functions get it; without PySpark, its two parts."""
    types = sys.modules.get("pyspark.sql.types")
    if types is not None and hasattr(types, "VariantVal"):
        return types.VariantVal(value, metadata)
    return Struct(value=value, metadata=metadata)


def no_column(name: str, names: Iterable[str], what: str = "row") -> NoReturn:
    """Raises the `AttributeError` of a `what` that has `names`, but not `name`."""
    part = "column" if what == "row" else "field"
    msg = f"the {what} has no {part} `{name}`"
    if not name.startswith("__"):
        msg += f"; {suggestion(name, names)}"
    raise AttributeError(msg)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_plain(key): _plain(one) for key, one in items}
    return [_plain(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value
