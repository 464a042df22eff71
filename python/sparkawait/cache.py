# SPDX-License-Identifier: Apache-2.0
"""Results that are kept, so that one key is looked up once.

A `Cache` is a description. The cache itself lives in each Python worker process of the executors,
where all tasks that get the same description share it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import cast

from sparkawait._checks import (
    MAX_BYTES,
    ColumnLike,
    ColumnsLike,
    Duration,
    ObjectOf,
    Size,
    columns,
    flag,
    integer,
    or_none,
    parse_size,
    positive_duration,
    refuse,
)
from sparkawait._option import Option, with_known_names
from sparkawait.exceptions import ErrorKind


@with_known_names
@dataclass(frozen=True)
class Cache:
    """A cache in front of an async function, for the option ``cache=``.

    Rows with equal values in the key columns share one result. Concurrent misses on one key make
    one call; the others wait for what it brings. Failures are never kept. A full cache drops keys
    by recency and frequency of use.

    Every Python worker process has its own cache, one per core of an executor, that lives as long
    as the process. Tasks, queries and micro-batches share it when they are given this very object.
    A process keeps the last 16 caches. A short form, ``cache="10min"`` or ``cache=True``, makes a
    new cache for each call; calls with one `WaitOptions` share that of the set.

    Functions share the results of a cache only if they are the same: native ones if they were made
    with equal arguments, Python ones if Spark sends the same bytes for them. Two closures of one
    factory, two instances of a class with other attributes, and a function before and after it was
    edited are different. A function whose bytes differ for less counts as another one, too: a
    global of the notebook that it uses or an attribute of its instance has changed, or its class
    was defined again. Then it is called again. Without Spark, a Python function is the same if it
    is the same object.

    Keys are equal where Spark's ``GROUP BY`` takes them for equal: ``-0.0`` is ``0.0``, NaN is NaN,
    and null is a key like any other. Maps cannot be keys.

    Args:
        max_rows: Most keys; ``None`` for no bound, and then `max_bytes` must be given.
        max_bytes: Most bytes of keys and results in a process, an int or a text such as
            ``"64 MB"``; ``None`` for no bound.
        expire_after_write: How long a result is used after its call: a str with unit, a timedelta
            or seconds.
        expire_after_access: How long a result is used after it was used last.
        cache_missing: Whether it is kept that a key has no result.
        key: The columns that the result depends on, by name or as expressions, such as
            ``F.lower("city")``. By default those that a native function names; a Python function
            must be told, because it sees all of them.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait as sa
        >>> @sa.async_function("length bigint")
        ... async def measure(row):
        ...     print("called for", row["word"])
        ...     return {"length": len(row["word"])}
        >>> words = [pa.record_batch({"word": ["one", "three", "one"]})]
        >>> cache = sa.Cache(max_rows=1000, expire_after_write="10min", key="word")
        >>> out = sa.arrow.ordered_wait(words, measure, cache=cache).to_table()
        called for one
        called for three
        >>> out["length"].to_pylist()
        [3, 5, 3]
    """

    max_rows: int | None = 100_000
    max_bytes: Size | None = None
    expire_after_write: Duration | None = None
    expire_after_access: Duration | None = None
    cache_missing: bool = True
    key: ColumnsLike | None = field(default=None, compare=False)
    id: str = field(default_factory=lambda: uuid.uuid4().hex, init=False, repr=False)

    def __post_init__(self) -> None:
        """Checks the values."""
        kind = ErrorKind.CACHE_INVALID
        if self.max_rows is None and self.max_bytes is None:
            refuse("`Cache` needs `max_rows` or `max_bytes`, got None for both", kind)
        if self.max_rows is not None:
            integer(self.max_rows, "max_rows", 1, MAX_BYTES, kind=kind)
        if self.max_bytes is not None:
            size = parse_size(self.max_bytes, "max_bytes", most=MAX_BYTES, kind=kind)
            object.__setattr__(self, "max_bytes", size)
        for name in ("expire_after_write", "expire_after_access"):
            value = getattr(self, name)
            if value is not None:
                seconds = positive_duration(value, name, hint="None keeps results")
                object.__setattr__(self, name, seconds)
        flag(self.cache_missing, "cache_missing", kind=kind)
        if self.key is not None:
            key = columns(self.key, "key", ErrorKind.CACHE_INVALID, " of a Cache")
            object.__setattr__(self, "key", key)

    @property
    def columns(self) -> tuple[ColumnLike, ...]:
        """The columns of the key; none if the function has to name them."""
        return cast("tuple[ColumnLike, ...]", self.key or ())

    def with_key(self, key: Sequence[ColumnLike]) -> Cache:
        """Returns this very cache with the columns of its key called otherwise."""
        renamed = copy(self)
        object.__setattr__(renamed, "key", tuple(key))
        return renamed


CACHE = Option(
    "rows with equal keys share one call, and the worker process keeps the results:"
    " `sa.Cache(max_rows=, max_bytes=, expire_after_write=, expire_after_access=,"
    ' cache_missing=, key=)`; `"10min"` sets its `expire_after_write`, `True` means'
    " `sa.Cache()`",
    ObjectOf(
        Cache,
        "a sparkawait.Cache, True, or a text such as '10min' for its `expire_after_write`",
        ErrorKind.CACHE_INVALID,
        {bool: or_none(Cache), str: lambda time: Cache(expire_after_write=time)},
    ),
    type="Cache | str | bool | None",
)
