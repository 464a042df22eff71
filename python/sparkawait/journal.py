# SPDX-License-Identifier: Apache-2.0
"""A journal of results, so that what was called for once is not called for again.

A `Journal` is a description, made on the driver from any thread, and has its option behind it. The
folder is opened by `sparkawait._plan.journal`, read and written by `sparkawait._worker.journal`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from sparkawait._checks import (
    Duration,
    ObjectOf,
    choice,
    columns,
    flag,
    integer,
    is_expression,
    positive_duration,
    refuse,
    shown,
    text,
)
from sparkawait._option import Option, with_known_names
from sparkawait.exceptions import ErrorKind

__all__ = ["JOURNAL", "Journal", "JournalLike"]

_OF = " of Journal"
_KIND = ErrorKind.JOURNAL_INVALID
_MOST = 2**31 - 1


@with_known_names
@dataclass(frozen=True)
class Journal:
    """A folder that keeps the results of calls, for the option ``journal=``.

    A row whose result is in the folder is not called for: not by a task that Spark runs again, not
    by the next action, and not by the next job. A result is written as soon as its call is
    completed, and its row leaves the task when that is done. A crash so costs the calls in flight,
    and those of the last commit: of 0.2 s on a local disk, and of 2 s in an object store.

    A row is known by its content: the columns that a native function names, or all columns of a
    Python function, and by what is asked. See ``docs/journal.md``.

    Args:
        path: A folder that all executors have: a path, or a URL such as ``"s3://bucket/answers"``
            (also ``gs``, ``abfs``, ``hdfs``). One folder is for one function.
        key: The columns that the result of a Python function depends on; all by default. A native
            function knows.
        version: Tells versions of a Python function apart, which needs it: give another one when
            its results change. A text or an int.
        max_age: How old a result may be: a str with unit, a timedelta or seconds. Of several the
            newest is taken then, else the oldest.
        again: ``"failed"``: a row that failed in an earlier run is called for again. ``"none"``:
            it has the failure that it had, if it was called.
        keep_input: Whether the folder has the input of each row, too.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> journal = sa.Journal("answers", key="question", version=2, max_age="30d")
        >>> journal.max_age
        2592000.0
        >>> sa.unordered_wait(df, ask, journal=journal)  # doctest: +SKIP
    """

    path: str | os.PathLike[str] = field(repr=False)  # which may have a password in it
    key: str | Sequence[str] | None = None
    version: str | int | None = None
    max_age: Duration | None = None
    again: Literal["failed", "none"] = "failed"
    keep_input: bool = False

    def __post_init__(self) -> None:
        """Checks the values."""
        if not isinstance(self.path, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
            refuse(f"`path`{_OF} must be a path or a URL, got {shown(self.path)}", _KIND)
        path = cast("object", os.fspath(self.path))
        object.__setattr__(self, "path", text(path, "path", "a folder", of=_OF, kind=_KIND))
        if self.key is not None:
            key = columns(self.key, "key", _KIND, _OF)
            if any(map(is_expression, key)):
                refuse(
                    f"`key`{_OF} names columns, got an expression; add it to the input as a column",
                    _KIND,
                )
            object.__setattr__(self, "key", key)
        if isinstance(self.version, str):
            text(self.version, "version", "a text that is not empty", of=_OF, kind=_KIND)
        elif self.version is not None:
            integer(self.version, "version", 0, _MOST, of=_OF, other=" or a text", kind=_KIND)
        if self.max_age is not None:
            seconds = positive_duration(self.max_age, "max_age", hint="None keeps results")
            object.__setattr__(self, "max_age", seconds)
        choice(self.again, "again", "failed", "none", of=_OF, kind=_KIND)
        flag(self.keep_input, "keep_input", of=_OF, kind=_KIND)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the key; none if it has all of them, or the function knows."""
        return cast("tuple[str, ...]", self.key or ())


JournalLike: TypeAlias = Journal | str | os.PathLike[str]
"""Where results are kept: a path, a URL, or a `Journal`."""


def _of_path(path: str | os.PathLike[str]) -> Journal:
    return Journal(path)


JOURNAL = Option(
    "a folder that keeps the results of calls, so that a task that runs again and the next job do"
    " not call for what is known: a path or a URL, or `sa.Journal(path, key=, version=, max_age=,"
    " again=, keep_input=)`. A Python function needs its `version=`. Not for streams",
    ObjectOf(
        Journal,
        "a path, a URL or a sparkawait.Journal",
        _KIND,
        {str: _of_path, os.PathLike: _of_path},
    ),
    type="JournalLike | None",
)
