# SPDX-License-Identifier: Apache-2.0
"""Destinations that do not hold one another: how calls and waiting rows are spread over channels.

A `Channel` is checked on the driver, where the wait function is called, and travels as plain
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from sparkawait._checks import MAX_COUNT, ColumnLike, ColumnsLike, ObjectOf, integer, refuse
from sparkawait._checks import columns as columns_of
from sparkawait._option import Option, with_known_names
from sparkawait.exceptions import ErrorKind

COUNT = 10
"""Channels that are expected when nothing is said: Flink's 2, 8 and 10 buffers for 100 calls."""
MIN_BACKLOG = 10_000
"""Default of `max_backlog` for a small capacity: a batch of Spark."""
_KIND = ErrorKind.CHANNELS_INVALID


class Credits(NamedTuple):
    """What a `Channel` comes to for one call, in the order of `_core.Task`."""

    exclusive: int
    floating: int
    max_per_channel: int
    max_backlog: int
    max_backlog_per_channel: int


@with_known_names
@dataclass(frozen=True)
class Channel:
    """The destination of a row, and how calls are spread over destinations, for ``channel=``.

    A channel is a destination: a host, a shard, a tenant. A call of a channel takes a *credit*.
    Some credits are the channel's own while it has rows (*exclusive*), the others *float*: they are
    lent to channels that have rows waiting, one at a time in turn. So a destination that stands
    still holds its own calls and no others. ``max_concurrency`` and `count` set the number of each
    kind. Rows that wait for a credit count towards `max_backlog` instead of ``capacity``, as long
    as not all calls are in flight; the input stops when either is used up.

    ``channel="tenant"`` is ``Channel("tenant")``.

    Defaults follow ``max_concurrency``, or what a native function can have on its way if that is
    less (``connections=``), and `count`: of 100 calls and 10 channels, 2 credits are each channel's
    own, 80 float, and a channel has at most 10 calls in flight.

    Args:
        columns: What tells one destination from another: a column, an expression of Spark, or
            several. Without it, the destination is the host for `sparkawait.http`, if there are
            columns in it, and the node for `sparkawait.redis` with ``cluster=True``; other
            functions need it.
        count: How many channels are expected to have rows at the same time; 10 by default. More
            than that work, too, and are isolated by their floating credits only.
        max_per_channel: Most calls in flight of one channel. By default its even share: raise it if
            one channel alone shall be able to use more.
        max_backlog: Rows that may wait for a credit, all channels together, beyond ``capacity``.
            By default ten times the capacity, and at least 10 000.
        max_backlog_per_channel: Rows of them that may be of one channel; its further rows take
            slots of ``capacity``. By default `max_backlog`.

    Raises:
        ConfigurationError: If a value is wrong. What depends on ``max_concurrency`` is checked when
            the wait function is called.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait as sa
        >>> @sa.async_function("greeting string")
        ... async def greet(row):
        ...     return {"greeting": f"hello {row['tenant']}"}
        >>> rows = [pa.record_batch({"tenant": ["a", "b", None]})]
        >>> out = sa.arrow.ordered_wait(rows, greet, channel=sa.Channel("tenant", count=3))
        >>> out.to_table()["greeting"].to_pylist()
        ['hello a', 'hello b', 'hello None']
    """

    columns: ColumnsLike | None = None
    count: int | None = None
    max_per_channel: int | None = None
    max_backlog: int | None = None
    max_backlog_per_channel: int | None = None

    def __post_init__(self) -> None:
        """Checks what can be checked without the other options."""
        if self.columns is not None:
            found = columns_of(self.columns, "columns", _KIND, " of Channel")
            object.__setattr__(self, "columns", found)
        for name in ("count", "max_per_channel", "max_backlog", "max_backlog_per_channel"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, 1, of=" of Channel", kind=_KIND)

    @property
    def by(self) -> tuple[ColumnLike, ...]:
        """The columns; none if the function has to know its destinations."""
        return cast("tuple[ColumnLike, ...]", self.columns or ())

    def with_columns(self, columns: Sequence[ColumnLike]) -> Channel:
        """Returns the same with the columns called otherwise."""
        return replace(self, columns=tuple(columns))

    def resolve(self, max_concurrency: int, capacity: int) -> Credits:
        """Returns the numbers for a call with these options.

        Raises:
            ConfigurationError: If bounds contradict each other.
        """
        count = self.count or COUNT
        # One credit floats at least: a channel that comes when all others are taken would wait for
        # ever. Channels that nobody has counted have the expected share.
        most = (max_concurrency - 1) // (self.count or 1)
        # Where calls are few all float: what a channel that does not come would have lies idle.
        least = 1 if max_concurrency >= 2 * count else 0
        exclusive = min(max(max_concurrency // (5 * count), least), most)
        share = max(-(-max_concurrency // count), exclusive, 1)
        max_per_channel = self.max_per_channel or min(share, max_concurrency)
        if max_per_channel > max_concurrency:
            refuse(
                "`max_per_channel` must not be above `max_concurrency`,"
                f" got {max_per_channel} and {max_concurrency}",
                _KIND,
            )
        exclusive = min(exclusive, max_per_channel)
        floating = max(max_concurrency - exclusive * count, 1)
        max_backlog = self.max_backlog or max(MIN_BACKLOG, 10 * capacity)
        max_backlog = min(max_backlog, MAX_COUNT - capacity)
        per_channel = self.max_backlog_per_channel or max_backlog
        if per_channel > max_backlog:
            refuse(
                f"`max_backlog_per_channel` must not be above `max_backlog`,"
                f" got {per_channel} and {max_backlog}",
                _KIND,
            )
        return Credits(exclusive, floating, max_per_channel, max_backlog, per_channel)


CHANNEL = Option(
    "the destination of a row, such as its host or tenant: a column, an expression, or"
    " several. A slow destination does not hold up the others. Each gets a tenth of the"
    ' calls, unless `sa.Channel("tenant", count=3)` gives the number of destinations'
    " (`max_per_channel=`, `max_backlog=`, `max_backlog_per_channel=`). Native functions that know"
    " their destinations need no column",
    ObjectOf(
        Channel,
        "a column, an expression, a list of them, or a sparkawait.Channel",
        _KIND,
        {object: Channel},
    ),
    type="Channel | ColumnsLike | None",
)
