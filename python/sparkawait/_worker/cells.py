# SPDX-License-Identifier: Apache-2.0
"""Cells of a row that Python has no type for, as a function sees them; called by `_core.Row`.

Pure functions, for any thread.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, NoReturn, cast
from zoneinfo import ZoneInfo

from sparkawait._plan.checks import suggestion

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
    if name in ("UTC", "Z", "GMT", "UT"):
        return timezone.utc
    match = _OFFSET.fullmatch(name)
    if match is not None:
        sign, *parts = match.groups(default="0")
        hours, minutes, seconds = map(int, parts)
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        msg = f"the time zone `{name}` is not known here; install the package `tzdata`"
        raise ValueError(msg) from error


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
