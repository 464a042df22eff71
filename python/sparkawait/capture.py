# SPDX-License-Identifier: Apache-2.0
"""In which column failures are kept, for the option ``on_error=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from sparkawait._plan.checks import refuse, shown, text
from sparkawait._plan.option import Option

__all__ = ["ERROR_TYPE", "ON_ERROR", "Capture", "OnError", "of_failures"]

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


def of_failures(on_error: str | Capture) -> dict[str, str]:
    """Returns what becomes of rows that failed, as `_core.Task` takes it."""
    if isinstance(on_error, Capture):
        return {"on_error": "capture", "error_column": on_error.column}
    return {"on_error": on_error, "error_column": Capture().column}


OnError: TypeAlias = Literal["fail", "null", "drop", "capture"] | Capture
"""What happens to a row that failed for good."""


def _checked(value: object, name: str) -> Literal["fail", "null", "drop"] | Capture:
    """Returns what happens to a row that failed; ``"capture"`` is a `Capture`."""
    if isinstance(value, Capture):
        return value
    if not isinstance(value, str) or value not in ("fail", "null", "drop", "capture"):
        known = "'fail', 'null', 'drop', 'capture', or a sparkawait.Capture"
        refuse(f"`{name}` must be one of {known}, got {shown(value)}")
    return Capture() if value == "capture" else value


ON_ERROR = Option(
    "fail",
    _checked,
    'what happens to a row that failed for good: `"fail"` fails the task, `"null"` leaves its'
    ' returned columns null, `"drop"` drops it, `"capture"` adds a struct column `error` with'
    " kind, message, attempts and status. `sa.Capture(..)` gives the column another name,"
    " which a second call needs",
    type="OnError",
)
