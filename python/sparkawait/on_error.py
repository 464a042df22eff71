# SPDX-License-Identifier: Apache-2.0
"""What happens to rows that failed for good, and when they are too many: the option ``on_error=``.

Made on the driver, from any thread; immutable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from sparkawait._checks import MAX_COUNT, choice, integer, number, refuse, shown, text
from sparkawait._option import Option, with_known_names

__all__ = ["ERROR_TYPE", "ON_ERROR", "OnError", "OnErrorLike", "action_of"]

Action: TypeAlias = Literal["fail", "null", "drop", "capture"]

ACTIONS = ("fail", "null", "drop", "capture")
COLUMN = "error"
"""The column of failures, unless it has another name."""
FAILED_ROWS = 100
"""Failed rows from which on a share of them says something while a task runs."""
ENDED_ROWS = 20
"""Rows of a task from which on a share of them says something when it has ended."""
_PARTS = 1_000_000

ERROR_TYPE = pa.struct(
    [
        ("kind", pa.string()),
        ("message", pa.string()),
        ("attempts", pa.int32()),
        ("status", pa.int32()),
    ]
)
"""The type of the column, as the extension module makes it."""


@with_known_names
@dataclass(frozen=True)
class OnError:
    """What happens to a row that failed for good, and when there are too many of them.

    A wrong key or a service that is down so ends a job early, and some bad rows do not. Counted are
    the rows of a task that failed for good. Where they are too many, the task fails, and Spark runs
    it again as it does with each task that fails. ``on_error="null"`` is ``OnError("null")``.

    Args:
        action: ``"capture"`` keeps the failure in a column, beside null returned columns: a struct
            of kind, message, attempts and status, which is null for other rows. ``"null"`` leaves
            the returned columns null, ``"drop"`` drops the row, ``"fail"`` fails the task.
        column: The name of the column with ``"capture"``; ``"error"`` by default. In a chain, and
            with several functions in one call, give each another name.
        stop_after: The task fails when so many rows have failed. With `stop_ratio`, from so many on
            that share is looked at while the task runs; 100 by default.
        stop_ratio: The task fails when this share of the rows that have ended has failed, above 0
            and up to 1. When all rows of a task have ended, it is looked at once more, however few
            of them have failed, if there are at least 20 rows.

    Raises:
        ConfigurationError: If a value is wrong, or of no use with this action.

    Examples:
        >>> import sparkawait as sa
        >>> named = sa.OnError("capture", column="why")
        >>> some = sa.OnError("capture", stop_after=1000)  # a thousand failed rows in a task
        >>> few = sa.OnError("null", stop_ratio=0.1)  # a tenth of its rows
        >>> sa.unordered_wait(df, lookup, on_error=some)  # doctest: +SKIP
    """

    action: Action = "capture"
    column: str | None = None
    stop_after: int | None = None
    stop_ratio: float | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        choice(self.action, "action", *ACTIONS, of=" of OnError")
        if self.action == "capture":
            column = COLUMN if self.column is None else self.column
            object.__setattr__(self, "column", column)
            text(column, "column", "a name that is not empty", of=" of OnError")
        elif self.column is not None:
            refuse(f"`column` of OnError names what 'capture' adds, got it with {self.action!r}")
        if self.stop_after is not None:
            integer(self.stop_after, "stop_after", 1, MAX_COUNT, of=" of OnError")
        if self.stop_ratio is not None:
            number(self.stop_ratio, "stop_ratio", 1 / _PARTS, 1, of=" of OnError")
        if self.action == "fail" and self.is_bounded:
            refuse(
                "`stop_after` and `stop_ratio` of OnError are for failures that are kept, got them"
                " with 'fail', which ends the task with the first one"
            )

    @property
    def is_bounded(self) -> bool:
        """Whether a task may have too many failures."""
        return self.stop_after is not None or self.stop_ratio is not None

    @property
    def terms(self) -> tuple[int, int] | None:
        """The failed rows and the share in parts of a million that are too many in a running task.

        ``None`` if nothing is.
        """
        if not self.is_bounded:
            return None
        return self.stop_after or FAILED_ROWS, round((self.stop_ratio or 0) * _PARTS)

    def is_reached(self, failed: int, ended: int) -> bool:
        """Whether `failed` of the `ended` rows of a running task are too many."""
        if self.terms is None:
            return False
        rows, parts = self.terms
        return failed >= rows and failed * _PARTS >= ended * parts

    def is_reached_at_end(self, failed: int, ended: int) -> bool:
        """Whether `failed` of all rows of a task are too many."""
        if self.stop_ratio is None or ended < ENDED_ROWS or not failed:
            return False
        return failed * _PARTS >= ended * round(self.stop_ratio * _PARTS)

    def of_task(self) -> dict[str, Any]:
        """Returns what `_core.Task` takes."""
        return {
            "on_error": self.action,
            "error_column": self.column or COLUMN,
            "fail_after": self.terms,
        }

    def __str__(self) -> str:
        """Shows when a task fails."""
        bounds = {"stop_after": self.stop_after, "stop_ratio": self.stop_ratio}
        given = "".join(f", {name}={it:g}" for name, it in bounds.items() if it is not None)
        return f"OnError({self.action!r}{given})"


OnErrorLike: TypeAlias = Action | OnError
"""What happens to a row that failed for good: a word, or an `OnError`."""


def action_of(on_error: object) -> object:
    """Returns what happens to a row that failed, of a value that may not have been checked."""
    return on_error.action if isinstance(on_error, OnError) else on_error


def _checked(value: object, name: str) -> OnError:
    if isinstance(value, OnError):
        return value
    if not isinstance(value, str) or value not in ACTIONS:
        known = ", ".join(map(repr, ACTIONS))
        refuse(f"`{name}` must be one of {known} or a sparkawait.OnError, got {shown(value)}")
    return OnError(value)


ON_ERROR = Option(
    'what happens to a row that failed for good: `"fail"` fails the task, `"null"` leaves its'
    ' returned columns null, `"drop"` drops it, `"capture"` adds a struct column `error` with'
    ' kind, message, attempts and status. `sa.OnError("capture", column="why")` gives the column'
    " another name, which a second call needs. Its `stop_after=1000` fails a task with a thousand"
    " failed rows, and `stop_ratio=0.1` one in which a tenth of the rows has failed",
    _checked,
    default="fail",
    type="OnErrorLike",
)
