# SPDX-License-Identifier: Apache-2.0
"""Cells of a row that Python has no type for, as a function sees them; and the rules of time zones.

For any thread. What a plan says of time zones is remembered for the process; all else are pure
functions.
"""

from __future__ import annotations

import functools
import math
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta, timezone, tzinfo
from io import BytesIO
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from sparkawait._core import learn_zone
from sparkawait.functions import Struct, no_column

__all__ = [
    "DAY",
    "END",
    "EPOCH",
    "SAMPLES",
    "Change",
    "Struct",
    "moments",
    "no_column",
    "tzif",
]

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DAY = 86_400
END = 2116
"""Until this year each change of a clock is written down; later ones follow the last rules."""
SAMPLES = (-5_400_000_000, -1_704_153_600, 140 * DAY), (-1_704_153_600, 4_607_366_400, 6 * DAY)
"""From when to when, and how often, one has to look: each change of a clock is seen then.

It is 1798, before any zone had one time, to 1915, before there were summer times. From then on the
shortest time between two changes that any zone has is a week without an hour.
"""
_CYCLE = 28
"""Years after which a date has its day of the week again, while each fourth one is a leap year."""
_SUMMER_DAYS = 300
"""A time of more than that is the standard one."""


class Change(NamedTuple):
    """A change of the clocks.

    Attributes:
        at: When, in seconds since 1970.
        before: How many seconds clocks were ahead of UTC.
        after: How many they are from then on.
    """

    at: int
    before: int
    after: int


def tzif(first: int, changes: Sequence[Change]) -> bytes:
    """Returns a TZif file (RFC 8536) of a zone.

    Args:
        first: How many seconds clocks were ahead of UTC before all changes.
        changes: All changes until `END`, in their order.

    Raises:
        ValueError: If the clocks of the last years follow no rules that the file can have.
    """
    last = [it for it in changes if _local(it).year >= END - _CYCLE]
    ever = changes[-1].after if changes else first
    ends_in_summer = False
    if _is_over(changes):
        footer = _posix(ever)
    else:
        spring, autumn = sorted(last[-2:], key=lambda it: it.before)
        ends_in_summer = last[-1] == spring
        rules = (_rule([it for it in last if it[1:] == kind[1:]]) for kind in (spring, autumn))
        footer = f"{_posix(spring.before)}{_posix(spring.after)},{','.join(rules)}"
    kinds = [(first, False)]
    kinds += [
        (it.after, is_summer) for it, is_summer in zip(changes, _summers(changes), strict=True)
    ]
    if changes:
        kinds[-1] = (ever, ends_in_summer)
    types = list(dict.fromkeys(kinds))
    names = [_name(offset) for offset, _ in types]
    starts = [sum(len(name) + 1 for name in names[:at]) for at in range(len(names))]
    letters = "".join(f"{name}\0" for name in names).encode()
    body = struct.pack(f">{len(changes)}q", *(it.at for it in changes))
    body += bytes(types.index(kind) for kind in kinds[1:])
    for (offset, is_summer), start in zip(types, starts, strict=True):
        body += struct.pack(">iBB", offset, is_summer, start)
    # Readers of version 1 find a zone that is UTC.
    old = _header(0, 1, 1) + struct.pack(">iBB", 0, 0, 0) + b"\0"
    new = _header(len(changes), len(types), len(letters)) + body + letters
    return old + new + f"\n{footer}\n".encode()


def moments(tzif: bytes) -> Iterable[int]:
    """Yields the seconds around each change that a file has, and a sample of all others.

    Two zones that show the same times at all of them are alike.
    """
    start = tzif.index(b"TZif", 4)
    (count,) = struct.unpack_from(">i", tzif, start + 32)
    for change in struct.unpack_from(f">{count}q", tzif, start + 44):
        yield from (change - 1, change)
    for start, end, step in SAMPLES:
        yield from range(start, end, step)


def _header(changes: int, types: int, letters: int) -> bytes:
    return b"TZif3" + bytes(15) + struct.pack(">6i", 0, 0, 0, changes, types, letters)


def _is_over(changes: Sequence[Change]) -> bool:
    """Whether clocks do not change any more when the written changes end."""
    return not changes or _local(changes[-1]).year < END - 1


def _summers(changes: Sequence[Change]) -> Iterator[bool]:
    """Yields of each time whether it is a summer time, which no change says."""
    for change, following in zip(changes, [*changes[1:], None], strict=False):
        days = math.inf if following is None else (following.at - change.at) / DAY
        yield change.after > change.before and days < _SUMMER_DAYS


def _local(change: Change, seconds: int = 0) -> datetime:
    """Returns the moment so many seconds from a change, as the clocks before it go on."""
    return EPOCH + timedelta(seconds=change.at + change.before + seconds)


def _rule(changes: Sequence[Change]) -> str:
    """Returns the rule of changes of many years that are one a year: ``M3.2.0/2``.

    Raises:
        ValueError: If they follow no such rule.
    """
    # Midnight may be the end of a day: that of the last Thursday may lie in the next month.
    for early in (0, 1):
        local = [_local(it, -early) for it in changes]
        alike = {(it.month, it.isoweekday() % 7, it.time()) for it in local}
        days = [it.day for it in local]
        if len(local) == _CYCLE and len(alike) == 1 and max(days) - min(days) == 6:  # noqa: PLR2004
            break
    else:
        msg = "the changes of the last years follow no rule of a week"
        raise ValueError(msg)
    ((month, weekday, moment),) = alike
    first = min(days)
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second + early
    is_last = first + 6 == (date(2001, month % 12 + 1, 1) - timedelta(days=1)).day
    # A week that does not begin with one of the month's weeks is told by its first day and hours.
    shift = 0 if is_last else (first - 1) % 7
    week = 5 if is_last else (first - 1 - shift) // 7 + 1
    return f"M{month}.{week}.{(weekday - shift) % 7}/{_clock(seconds + shift * DAY)}"


def _clock(seconds: int) -> str:
    minutes, rest = divmod(abs(seconds), 60)
    text = f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
    return text if seconds >= 0 else f"-{text}"


def _name(offset: int) -> str:
    """Returns how a time is called: by its offset, since Java has no names that others know."""
    minutes, seconds = divmod(abs(offset), 60)
    text = f"{'-' if offset < 0 else '+'}{minutes // 60:02}"
    text += f"{minutes % 60:02}" if minutes % 60 or seconds else ""
    return text + (f"{seconds:02}" if seconds else "")


def _posix(offset: int) -> str:
    return f"<{_name(offset)}>{_clock(-offset)}"


# -- cells of a row that Python has no type for, as a function sees them; called by `_core.Row`
#
# For any thread. What a plan says of time zones is remembered for the process; all else are pure
# functions.


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ALIKE = 400
_YEAR = timedelta(days=146_097) / _ALIKE
"""The mean one, of the calendar that repeats after `_ALIKE` years."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def instant(micros: int, where: tzinfo) -> datetime:
    """Returns the time that was `micros` microseconds after 1970 began in UTC, as of `where`.

    Raises:
        ValueError: If it is not within the years 1 to 9999 there.
    """
    since = timedelta(microseconds=micros)
    try:
        return (_EPOCH + since).astimezone(where)
    except OverflowError:
        # It may be in another year in UTC. 400 years away clocks and calendars are alike.
        away = _ALIKE if micros < 0 else -_ALIKE
    try:
        there = (_EPOCH + (since + away * _YEAR)).astimezone(where)
        return there.replace(year=there.year - away)
    except (OverflowError, ValueError) as error:
        msg = f"a time is not within the years 1 to 9999 in `{where}`, and Python has no others"
        raise ValueError(msg) from error


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


@functools.lru_cache(maxsize=64)
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
