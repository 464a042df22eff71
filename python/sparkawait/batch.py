# SPDX-License-Identifier: Apache-2.0
"""How rows are put together into one call, for ``batch=`` of functions.

Made and checked on the driver; immutable.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkawait._checks import (
    MAX_BYTES,
    Duration,
    ObjectOf,
    Size,
    flag,
    integer,
    parse_duration,
    parse_size,
    refuse,
)
from sparkawait._option import with_known_names
from sparkawait.exceptions import ErrorKind


@with_known_names
@dataclass(frozen=True)
class Batch:
    """How rows are collected for `AsyncFunction.async_invoke_batch`.

    A call is made when `max_rows` or `max_bytes` is reached, and at the latest `linger` after its
    first row.

    Args:
        max_rows: Most rows in one call; no more than `capacity` rows are ever collected.
        max_bytes: Sends a batch once its cells hold this many bytes, an int or a text such as
            ``"64 KB"``; a larger single row is sent alone. ``None`` does not look at bytes, which
            is faster.
        linger: Longest time that a row waits for company: str with unit, timedelta or seconds.
        split_on_error: Whether a call that raises is made again for each half of its rows, until
            the rows at fault are alone: they fail, the others have their results. Before that, up
            to log2(n) of n rows are called for alone, unless the exception has status 400, 413 or
            422: if none is answered, the service is down and all rows fail. Each half is a call
            like any: an attempt of its rows, which takes permits of rate limits but no retry. One
            row at fault of n costs 3 log2(n) more calls at most. False fails all rows of the call.
            Not split is a call whose exception asks to come again later, as `sparkawait.RetryAfter`
            does, and one that does not return a list with one result per row.
        arrow: Calls the function with a `pyarrow.RecordBatch` of the rows, instead of a list.
            It returns one of as many rows, in their order, with the declared columns by name; what
            has ``__arrow_c_stream__``, such as a data frame of polars, will do. For clients and
            libraries that work on columns; no row becomes an object of Python. A row whose text is
            not UTF-8 fails, in any column. Not with `max_bytes`.
    """

    max_rows: int = 100
    max_bytes: Size | None = None
    linger: Duration = "10ms"
    split_on_error: bool = False
    arrow: bool = False

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ConfigurationError: If one of them is wrong.
        """
        kind = ErrorKind.BATCH_INVALID
        integer(self.max_rows, "max_rows", 1, MAX_BYTES, kind=kind)
        if self.max_bytes is not None:
            size = parse_size(self.max_bytes, "max_bytes", most=MAX_BYTES, kind=kind)
            object.__setattr__(self, "max_bytes", size)
        object.__setattr__(self, "linger", parse_duration(self.linger, "linger"))
        for name in ("split_on_error", "arrow"):
            flag(getattr(self, name), name, kind=kind)
        if self.arrow and self.max_bytes is not None:
            refuse("`max_bytes` counts the cells of rows; leave it out with `arrow=True`", kind)

    @property
    def linger_seconds(self) -> float:
        """The linger in seconds."""
        return parse_duration(self.linger, "linger")


the_batch = ObjectOf(
    Batch,
    "a sparkawait.Batch, or an int for its `max_rows`",
    ErrorKind.BATCH_INVALID,
    {int: lambda rows: Batch(max_rows=rows)},
)
