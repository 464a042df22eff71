# SPDX-License-Identifier: Apache-2.0
"""Columns of the input, as options name them: by a name or by an expression.

Pure functions, for any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

from sparkawait._plan.checks import refuse, shown
from sparkawait.exceptions import ErrorKind

__all__ = ["ColumnExpression", "ColumnLike", "ColumnsLike", "columns", "is_expression", "named"]


class ColumnExpression(Protocol):
    """A ``Column`` of PySpark, of a classic session or of Spark Connect."""

    def alias(self, *alias: str, **kwargs: Any) -> Any: ...  # noqa: D102 - Spark's own
    def isNotNull(self) -> Any: ...  # noqa: N802, D102 - Spark's own


ColumnLike: TypeAlias = str | ColumnExpression
"""A column: its name, or an expression of PySpark such as ``F.lower("name")``."""

ColumnsLike: TypeAlias = ColumnLike | Sequence[ColumnLike]
"""A column, or several."""


def is_expression(value: object) -> TypeGuard[ColumnExpression]:
    """Tells whether it is a ``Column``, which only Spark can compute."""
    return type(value).__name__ == "Column" and hasattr(value, "alias")


def columns(
    value: object,
    name: str,
    kind: ErrorKind = ErrorKind.OPTION_INVALID,
    whose: str = "",
) -> tuple[ColumnLike, ...]:
    """Returns columns, given as one or as a list.

    Args:
        value: What was given.
        name: The argument it was given for.
        kind: Of the error.
        whose: What the argument belongs to, for the message.

    Raises:
        ConfigurationError: If it is something else, or an empty list.
    """
    several = isinstance(value, (list, tuple))
    given = cast("Sequence[object]", value if several else [value])
    if not given or not all(isinstance(it, str) or is_expression(it) for it in given):
        refuse(f"`{name}`{whose} must be a column name or a list of them, got {shown(value)}", kind)
    return tuple(cast("Sequence[ColumnLike]", given))


def named(
    value: Sequence[ColumnLike], name: str, kind: ErrorKind = ErrorKind.OPTION_INVALID
) -> tuple[str, ...]:
    """Returns columns that are all named, where nobody computes expressions.

    Raises:
        ConfigurationError: If one of them is an expression.
    """
    for column in value:
        if not isinstance(column, str):
            who = "which only calls over DataFrames compute"
            refuse(f"`{name}` is an expression, {who}; name columns", kind)
    return tuple(cast("Sequence[str]", value))
