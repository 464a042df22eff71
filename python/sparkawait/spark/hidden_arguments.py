# SPDX-License-Identifier: Apache-2.0
"""Expressions in the options of a column function: ``channel=`` and a cache's key.

An expression becomes an argument behind those of the call, over the same rows, and is taken off
again in the executor, so that the function does not see it. To be called on the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkawait._plan.checks import refuse
from sparkawait.spark.expressions import Expressions

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkawait.columns import ColumnExpression
    from sparkawait.exceptions import ErrorKind

__all__ = ["HiddenArguments"]


class HiddenArguments(Expressions):
    """The arguments that the expressions of one column function become."""

    def __init__(self) -> None:
        """Knows no expression yet."""
        super().__init__()
        self._expressions: list[Any] = []
        self._options: list[str] = []

    def _add(self, expression: ColumnExpression, option: str, kind: ErrorKind) -> str:  # noqa: ARG002
        name = f"__sparkawait_{option}_{len(self.names)}"
        self.names = (*self.names, name)
        self._expressions.append(expression)
        self._options.append(option)
        return name

    @property
    def arguments(self) -> list[Column]:
        """The expressions. They have no alias, since Spark groups by no function of one."""
        return list(self._expressions)

    def within(self, row: Column) -> Column:
        """Returns a struct with the expressions as its last members, by their names."""
        for expression, name in zip(self._expressions, self.names, strict=True):
            row = row.withField(name, expression)
        return row

    def check_none(self, function_name: str) -> None:
        """Checks that there are none, for calls in SQL.

        Raises:
            ConfigurationError: If there is one, which a call in SQL has no place for.
        """
        if self.names:
            refuse(
                f"`{self._options[0]}` of `{function_name}` is an expression, for which a call in"
                " SQL has no place; make it an argument and name that, or call it on columns"
            )
