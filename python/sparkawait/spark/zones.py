# SPDX-License-Identifier: Apache-2.0
"""The rules of a time zone as Spark has them, as what Rust and Python read alike: a TZif file.

Java, the system and the wheel have databases of different years, in which a zone may differ by an
hour. Those who write a text of an instant, or read one, have to have the rules of the session that
runs the query. So its driver asks Spark for those of the one zone that the session has, and they
travel with the plan.

Used on the driver, from any thread.
"""

from __future__ import annotations

import functools
import logging
import struct
from datetime import date, timedelta
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from sparkawait._values.cells import DAY, END, EPOCH, SAMPLES, Change, fixed_zone, tzif
from sparkawait.spark.session import is_connect

__all__ = ["rules_of"]

_logger = logging.getLogger("sparkawait")


@functools.lru_cache(maxsize=64)
def _rules_here(zone: str) -> bytes | None:
    """Returns the rules of the JVM of this driver, which has one."""
    spark: Any = SparkSession.active()
    try:
        return rules_of_jvm(spark.sparkContext._jvm, zone)  # noqa: SLF001
    except Exception:  # noqa: BLE001 - some platforms let Python ask for few classes
        return _rules_there(spark, zone)


_THERE: WeakKeyDictionary[Any, dict[str, bytes | None]] = WeakKeyDictionary()


def rules_of(spark: Any, zone: str) -> bytes | None:
    """Returns the rules of a zone where a session runs, as a TZif file.

    They are asked for once in a JVM, or in a session of Spark Connect. ``None`` where the name says
    all, as ``+02:00`` does, there is no session, or nobody can say.
    """
    if spark is None or fixed_zone(zone) is not None:
        return None
    if not is_connect(spark):
        return _rules_here(zone)
    known = _THERE.setdefault(spark, {})
    if zone not in known:
        known[zone] = _rules_there(spark, zone)
    return known[zone]


def _rules_there(spark: Any, zone: str) -> bytes | None:
    try:
        return rules_of_server(spark, zone)
    except Exception:
        _logger.debug("Spark does not say the rules of %s", zone, exc_info=True)
        return None


def rules_of_jvm(jvm: Any, zone: str) -> bytes:
    """Returns the rules that the JVM of the driver has for `zone`.

    Java writes them in the form that its documentation calls the serialized form of
    ``java.time.zone``. To ask for each change would take a thousand round
    trips.
    """
    rules = jvm.java.time.ZoneId.of(zone, jvm.java.time.ZoneId.SHORT_IDS).getRules()
    out = jvm.java.io.ByteArrayOutputStream()
    stream = jvm.java.io.ObjectOutputStream(out)
    stream.writeObject(rules)
    stream.flush()
    return tzif(*_of_java(bytes(out.toByteArray())))


def rules_of_server(spark: Any, zone: str) -> bytes:
    """Returns the rules that the server of Spark Connect has for `zone`, by one query.

    It looks at the clocks now and then. Where they have changed, it halves the time until it has
    found the second.
    """
    ((first, changes),) = spark.sql(_query(zone)).collect()
    return tzif(first, [Change(*map(int, change)) for change in changes])


def _query(zone: str) -> str:
    quoted = zone.replace("\\", "\\\\").replace("'", "\\'")

    def ahead(at: str) -> str:
        return f"(unix_seconds(from_utc_timestamp(timestamp_seconds({at}), '{quoted}')) - ({at}))"

    def found(start: int, end: int, step: int) -> str:
        count = (end - start) // step
        looks = f"transform(sequence(0L, {count}L), i -> {start}L + i * {step}L)"
        middle = "((it.low + it.high) div 2)"
        half = (
            f"if({ahead(middle)} = {ahead('it.low')},"
            f" named_struct('low', {middle}, 'high', it.high),"
            f" named_struct('low', it.low, 'high', {middle}))"
        )
        return (
            f"transform(filter({looks}, at -> {ahead('at')} <> {ahead(f'(at + {step}L)')}),"
            f" at -> aggregate(sequence(1, {step.bit_length()}),"
            f" named_struct('low', at, 'high', at + {step}L), (it, i) -> {half},"
            f" it -> array(it.high, {ahead('it.low')}, {ahead('it.high')})))"
        )

    first, changes = SAMPLES[0][0], ", ".join(found(*it) for it in SAMPLES)
    columns = f"{ahead(f'{first}L')}, concat({changes})"
    return f"select {columns} from values (1)"  # noqa: S608 - the name of the zone is quoted


# -- what Java writes


class _Reader:
    """Reads numbers as Java's data streams write them."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self._data, self._at)
        self._at += struct.calcsize(">" + form)
        return value

    def offset(self) -> int:
        quarters = self.take("b")
        return self.take("i") if quarters == 127 else quarters * 900  # noqa: PLR2004

    def instant(self) -> int:
        high = self.take("B")
        if high == 255:  # noqa: PLR2004
            return self.take("q")
        return ((high << 16) + self.take("H")) * 900 - 4_575_744_000

    def instants(self) -> tuple[list[int], list[int]]:
        """Reads changes, and the times that hold before, between and behind them."""
        at = [self.instant() for _ in range(self.take("i"))]
        return at, [self.offset() for _ in range(len(at) + 1)]


class _LastRule(NamedTuple):
    """A change of each year behind those that are written out.

    Attributes:
        month: Its month.
        day: The first day of the month that it may be on; before the first, counted from the end.
        weekday: Its day of the week, Monday is 1; 0 is any.
        seconds: The time of the day.
        of: The offset from UTC in which that time is meant.
        before: How many seconds clocks were ahead of UTC.
        after: How many they are from then on.
    """

    month: int
    day: int
    weekday: int
    seconds: int
    of: int
    before: int
    after: int

    def in_year(self, year: int) -> Change:
        if self.day > 0:
            day = date(year, self.month, self.day)
            ahead = (self.weekday - day.isoweekday()) % 7
        else:
            following = date(year + self.month // 12, self.month % 12 + 1, 1)
            day = following + timedelta(days=self.day)
            ahead = -((day.isoweekday() - self.weekday) % 7)
        days = (day - EPOCH.date()).days + (ahead if self.weekday else 0)
        return Change(days * DAY + self.seconds - self.of, self.before, self.after)


def _of_java(data: bytes) -> tuple[int, list[Change]]:
    """Returns the first time of a zone and its changes, of rules that Java has serialized."""
    reader = _Reader(_block_data(data))
    reader.take("b")  # says that these are rules
    reader.instants()  # of the standard time
    instants, offsets = reader.instants()
    changes = [Change(*it) for it in zip(instants, offsets, offsets[1:], strict=False)]
    rules = [_last_rule(reader) for _ in range(reader.take("b"))]
    start = (EPOCH + timedelta(seconds=instants[-1])).year if instants else 1970
    for year in range(start, END):
        further = sorted(rule.in_year(year) for rule in rules)
        changes += [it for it in further if it.at > instants[-1]]
    return offsets[0], [it for it in changes if it.before != it.after]


def _block_data(data: bytes) -> bytes:
    """Returns what an object has written by itself, without the description of its class."""
    short, long, found = b"w"[0], b"z"[0], b""
    at = data.index(b"xp") + 2
    while data[at] in (short, long):
        form = ">B" if data[at] == short else ">i"
        (length,) = struct.unpack_from(form, data, at + 1)
        at += 1 + struct.calcsize(form)
        found += data[at : at + length]
        at += length
    return found


def _last_rule(reader: _Reader) -> _LastRule:
    packed = reader.take("I")

    def bits(at: int, count: int) -> int:
        return (packed >> at) & ((1 << count) - 1)

    hours, quarters = bits(14, 5), bits(4, 8)
    seconds = reader.take("i") if hours == 31 else hours * 3600  # noqa: PLR2004
    standard = reader.take("i") if quarters == 255 else (quarters - 128) * 900  # noqa: PLR2004
    before, after = (
        reader.take("i") if halves == 3 else standard + halves * 1800  # noqa: PLR2004
        for halves in (bits(2, 2), bits(0, 2))
    )
    of = (0, before, standard)[bits(12, 2)]
    return _LastRule(bits(28, 4), bits(22, 6) - 32, bits(19, 3), seconds, of, before, after)
