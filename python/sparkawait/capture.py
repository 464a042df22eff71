# SPDX-License-Identifier: Apache-2.0
"""Where failures are kept, and when they are too many, for the option ``on_error=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from sparkawait._plan.checks import MAX_COUNT, integer, number, refuse, shown, text
from sparkawait._plan.option import Option

__all__ = [
    "ERROR_TYPE",
    "ON_ERROR",
    "Capture",
    "FailAfter",
    "OnError",
    "kept_of",
    "of_failures",
]

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


@dataclass(frozen=True)
class Capture:
    """Keeps the failure of a row that failed for good in a column, beside null returned columns.

    The column is a struct of kind, message, attempts and status (of HTTP, null where there is
    none), and null for other rows. ``"capture"`` is ``Capture()``. In a chain, and with several
    functions in one call, give each a name.

    Args:
        column: The name of the column.

    Raises:
        ConfigurationError: If it is not a name.

    Examples:
        >>> import sparkawait as sa
        >>> sa.ordered_wait(df, lookup, on_error=sa.Capture("why"))  # doctest: +SKIP
    """

    column: str = "error"

    def __post_init__(self) -> None:
        """Checks the name."""
        text(self.column, "Capture.column", "a name that is not empty")


@dataclass(frozen=True)
class FailAfter:
    """Keeps failures as `on_error` says, until there are too many: then the task fails.

    A wrong key or a service that is down so ends a job early, and some bad rows do not. Counted are
    the rows of a task that failed for good; the task fails with the failure of the last of them,
    and Spark runs it again as it does with each task that fails.

    Args:
        rows: Fails when so many rows have failed ..
        ratio: .. and they are at least this share of the rows of the task that have ended, from 0
            to 1; ``0.0`` leaves it at `rows`.
        on_error: What happens to rows that failed before: ``"capture"``, ``"null"``, ``"drop"``, or
            a `Capture` with a name.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> bad = sa.FailAfter(rows=1000)  # a thousand failed rows in a task
        >>> bad = sa.FailAfter(ratio=0.1)  # a tenth of its rows, from 100 failed ones on
        >>> sa.unordered_wait(df, lookup, on_error=bad)  # doctest: +SKIP
    """

    rows: int = 100
    ratio: float = 0.0
    on_error: Literal["null", "drop", "capture"] | Capture = "capture"

    def __post_init__(self) -> None:
        """Checks the values."""
        integer(self.rows, "rows", 1, MAX_COUNT, of=" of FailAfter")
        number(self.ratio, "FailAfter.ratio", 0, 1)
        kept: object = self.on_error
        if kept == "capture":
            object.__setattr__(self, "on_error", Capture())
        elif not isinstance(kept, Capture) and kept not in ("null", "drop"):
            refuse(
                "`on_error` of FailAfter must be 'capture', 'null', 'drop' or a"
                f" sparkawait.Capture, got {shown(kept)}"
            )

    @property
    def terms(self) -> tuple[int, int]:
        """The rows, and the ratio in parts of a million."""
        return self.rows, round(self.ratio * _PARTS)

    def __str__(self) -> str:
        """Shows when a task fails."""
        ratio = f", ratio={self.ratio:g}" if self.ratio else ""
        return f"FailAfter(rows={self.rows}{ratio})"


def kept_of(on_error: str | Capture | FailAfter) -> str | Capture:
    """Returns what happens to a row that failed, as long as the task does not."""
    return on_error.on_error if isinstance(on_error, FailAfter) else on_error


def of_failures(on_error: str | Capture | FailAfter) -> dict[str, Any]:
    """Returns what happens to rows that failed, as `_core.Task` takes it."""
    kept = kept_of(on_error)
    captures = isinstance(kept, Capture)
    return {
        "on_error": "capture" if captures else kept,
        "error_column": (kept if captures else Capture()).column,
        "fail_after": on_error.terms if isinstance(on_error, FailAfter) else None,
    }


OnError: TypeAlias = Literal["fail", "null", "drop", "capture"] | Capture | FailAfter
"""What happens to a row that failed for good."""


def _checked(value: object, name: str) -> Literal["fail", "null", "drop"] | Capture | FailAfter:
    """Returns what happens to a row that failed; ``"capture"`` is a `Capture`."""
    if isinstance(value, (Capture, FailAfter)):
        return value
    if not isinstance(value, str) or value not in ("fail", "null", "drop", "capture"):
        known = "'fail', 'null', 'drop', 'capture', a sparkawait.Capture or FailAfter"
        refuse(f"`{name}` must be one of {known}, got {shown(value)}")
    return Capture() if value == "capture" else value


ON_ERROR = Option(
    'what happens to a row that failed for good: `"fail"` fails the task, `"null"` leaves its'
    ' returned columns null, `"drop"` drops it, `"capture"` adds a struct column `error` with'
    " kind, message, attempts and status. `sa.Capture(..)` gives the column another name,"
    " which a second call needs. `sa.FailAfter(rows=, ratio=, on_error=)` does this until too many"
    " rows of a task have failed, and fails the task then",
    _checked,
    default="fail",
    type="OnError",
)
