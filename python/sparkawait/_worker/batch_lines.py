# SPDX-License-Identifier: Apache-2.0
"""Rows that wait for a call of `async_invoke_batch`, channel by channel and part by part.

Runs on the event loop thread only.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from sparkawait._core import Debloater, Row

__all__ = ["CallSize", "Divided", "Doubt", "Line", "Timers", "asked_alone"]

_CELL_BYTES = 8
"""Counted for a cell without a length, such as a number."""


class Doubt(NamedTuple):
    """Whom it is laid to if a call for many rows fails: its rows, or the state of its service.

    Attributes:
        is_proven: Its rows: a part of the same call was answered.
        error: What the call raised. Some rows are called for alone, which will tell.
        rows: How many rows the call had.
        asked: How many of them were called for alone so far, and were not answered.
    """

    is_proven: bool = False
    error: BaseException | None = None
    rows: int = 0
    asked: int = 0

    def place(self, left: int) -> int:
        """Returns the place of the row to call for alone, among those that are left."""
        return min(asked_alone(self.rows)[self.asked] - self.asked, left - 1)

    def of_next(self) -> Doubt | None:
        """Returns what is in doubt once that row failed, too; ``None``: the service is to blame."""
        asked = self.asked + 1
        return self._replace(asked=asked) if asked < len(asked_alone(self.rows)) else None


def asked_alone(rows: int) -> range:
    """Returns which rows of so many are called for alone before the service is blamed.

    Where there are more rows, more may be at fault.
    """
    most = min(max(rows.bit_length() - 1, 2), rows)
    return range(0, rows, rows // most)[:most]


class Line:
    """Rows of one channel that are in no call yet, oldest first: those of a part have their own.

    Attributes:
        waiting: Each row with its bytes and the time at which it is due.
        calls: Calls of the channel that are in flight; those of parts count in its own line.
        held: Lines of parts that wait for one of these calls to end.
        missing: Rows of the part that have not come back yet; ``None`` where any row may come.
        doubt: Whom it is laid to if a call for them fails.
        is_ready: Whether it stands in line for a call.
    """

    __slots__ = ("_bytes", "calls", "doubt", "held", "is_ready", "key", "missing", "waiting")

    def __init__(
        self, key: int | None, missing: int | None = None, doubt: Doubt | None = None
    ) -> None:
        """Holds no rows."""
        self.key = key
        self.doubt = doubt or Doubt()
        self.waiting: deque[tuple[Row, int, float]] = deque()
        self._bytes = 0
        self.calls = 0
        self.held: dict[Line, None] = {}
        self.missing = missing
        self.is_ready = False

    @property
    def due(self) -> float:
        """When the oldest row is due; there must be one."""
        return self.waiting[0][2]

    def append(self, row: Row, due: float, *, counts_bytes: bool) -> None:
        """Adds a row."""
        size = _row_bytes(row) if counts_bytes else 0
        self.waiting.append((row, size, due))
        self._bytes += size

    def is_full(self, max_rows: int, max_bytes: int | None) -> bool:
        """Tells whether there are enough rows for a call."""
        full = max_bytes is not None and self._bytes >= max_bytes
        return len(self.waiting) >= max_rows or full

    def take(self, max_rows: int, max_bytes: int | None) -> Any:
        """Removes the rows of the next call."""
        rows: list[Row] = []
        total = 0
        while self.waiting and len(rows) < max_rows:
            row, size, _ = self.waiting[0]
            if rows and max_bytes is not None and total + size > max_bytes:
                break
            self.waiting.popleft()
            total += size
            rows.append(row)
        self._bytes -= total
        return rows

    def is_whole(self) -> bool:
        """Tells whether all rows of a part are back that may be expected."""
        return self.missing == 0

    def hurry(self, now: float) -> None:
        """Makes the oldest row due."""
        row, size, _ = self.waiting[0]
        self.waiting[0] = (row, size, now)

    def drop(self, ids: set[int]) -> bool:
        """Forgets these rows; returns whether another row is the oldest now."""
        first = self.waiting[0] if self.waiting else None
        kept = [entry for entry in self.waiting if entry[0].__sparkawait_attempt__ not in ids]
        self.waiting = deque(kept)
        self._bytes = sum(size for _, size, _ in kept)
        return bool(kept) and kept[0] is not first


_MOST_DIVIDED = 65_536
"""Rows that may be expected back; the oldest are forgotten, and go with any others if they come."""


class Divided:
    """Rows of calls that have failed, which the operator calls for again in parts.

    Nobody tells of a row that does not come back, since it has timed out, say: what waits for it
    goes out when it is due.
    """

    def __init__(self) -> None:
        """Expects nothing."""
        self._lines: dict[int, Line] = {}

    def __bool__(self) -> bool:
        """Tells whether any row may come back."""
        return bool(self._lines)

    def add(self, attempts: Iterable[int], line: Line) -> None:
        """Expects the rows of `attempts`, which have ended, for the line of their part."""
        for attempt in attempts:
            self._leave(_row_of(attempt))
            self._lines[_row_of(attempt)] = line
        while len(self._lines) > _MOST_DIVIDED:
            self._leave(next(iter(self._lines)))

    def take(self, attempt: int) -> Line | None:
        """Returns the line that a row has come back to; ``None`` for any other row."""
        return self._leave(_row_of(attempt))

    def clear(self) -> None:
        """Expects nothing any more."""
        self._lines.clear()

    def _leave(self, row: int) -> Line | None:
        line = self._lines.pop(row, None)
        if line is not None and line.missing:
            line.missing -= 1
        return line


def _row_of(attempt: int) -> int:
    """Returns what the numbers of all attempts of a row have in common, see `number_of` in Rust."""
    return attempt >> 8


class Timers:
    """Tells which lines have a row that is due. A line may be there more than once."""

    def __init__(self) -> None:
        """Holds nothing."""
        self._heap: list[tuple[float, int, Line]] = []
        self._count = 0

    def add(self, line: Line) -> None:
        """Notes when the oldest row of `line` is due."""
        self._count += 1
        heapq.heappush(self._heap, (line.due, self._count, line))

    def next(self) -> float | None:
        """Returns when to look at the next line."""
        while self._heap and not self._heap[0][2].waiting:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Line | None:
        """Removes a line whose time has come."""
        due = self.next()
        return None if due is None or due > now else heapq.heappop(self._heap)[2]

    def pop(self) -> Line | None:
        """Removes the line that is the next one, due or not."""
        return None if self.next() is None else heapq.heappop(self._heap)[2]


class CallSize:
    """How many rows a call gets: as many as given, or fewer to meet a target latency.

    Args:
        max_rows: Most rows of a call.
        target: Seconds that a row should take through the calls in flight; ``None``: always
            `max_rows`.
    """

    def __init__(self, max_rows: int, target: float | None) -> None:
        """Begins with the most rows."""
        self.rows = max_rows
        self._debloater = None
        if target is not None:
            self._debloater = Debloater(max_rows, target)
        self._answered = 0
        self._since: float | None = None

    def answered(self, rows: int, calls: int, now: float) -> None:
        """Counts rows that a call answered, with `calls` in flight; now and then, measures."""
        debloater = self._debloater
        if debloater is None:
            return
        if self._since is None:
            self._since = now
        self._answered += rows
        elapsed = now - self._since
        if elapsed >= debloater.period:
            self.rows = debloater.measure(self._answered, elapsed, calls)
            self._answered, self._since = 0, now


def _row_bytes(row: Row) -> int:
    try:
        values = row.values()
    except Exception:  # noqa: BLE001 - of a cell that cannot be read: not all functions read it
        values = [_cell(row, name) for name in row]
    return sum(len(value) if isinstance(value, (str, bytes)) else _CELL_BYTES for value in values)


def _cell(row: Row, name: str) -> object:
    try:
        return row[name]
    except Exception:  # noqa: BLE001 - it fails the row if its function reads it
        return None
