# SPDX-License-Identifier: Apache-2.0
"""A bare function as a column function, called with values as the function of Spark's `udf`.

Made on the driver; its calls are made in the executor, on the event loop thread, or in threads.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sparkawait._plan.callables import describe, is_async
from sparkawait.functions import AsyncFunction
from sparkawait.types import Row


class ValuesFunction(AsyncFunction):
    """Takes a row apart into arguments.

    Args:
        function: The ``async def``, or a plain function.
        column: The column that its value becomes; ``None`` if it returns rows.
        keywords: Names of the last arguments, if they are given by name.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        column: str | None,
        keywords: tuple[str, ...] = (),
    ) -> None:
        self.function = function
        self.column = column
        self.keywords = keywords

    @property
    def name(self) -> str:
        """The name of the function."""
        return describe(self.function)

    def with_keywords(self, keywords: tuple[str, ...]) -> ValuesFunction:
        """Returns the function whose last arguments have these names."""
        made = copy.copy(self)
        made.keywords = keywords
        return made

    async def async_invoke(self, row: Row) -> Any:
        """Calls the function with the cells of `row`."""
        return self._result(await self._call(self.function, row))

    @property
    def what_is_called(self) -> Callable[[Row], Any]:
        """What is called for a row."""
        return self.async_invoke if is_async(self.function) else self._invoke_blocking

    def _invoke_blocking(self, row: Row) -> Any:
        return self._result(self._call(self.function, row))

    def misfit(self, count: int) -> str | None:
        """Says why the function cannot be called with so many arguments; ``None`` if it can."""
        try:
            signature = inspect.signature(self.function)
        except ValueError:
            return None
        names = dict.fromkeys(self.keywords)
        try:
            signature.bind(*[None] * (count - len(self.keywords)), **names)
        except TypeError as error:
            return str(error)
        return None

    def _call(self, function: Callable[..., Any], row: Row) -> Any:
        values = list(row.values())
        if not self.keywords:
            return function(*values)
        first = len(values) - len(self.keywords)
        return function(*values[:first], **dict(zip(self.keywords, values[first:], strict=True)))

    def _result(self, result: Any) -> Any:
        if self.column is not None:
            return {self.column: result}
        return [] if result is None else result


class _WithFallback(ValuesFunction):
    """One whose arguments are given to another function when a row has timed out."""

    fallback: Callable[..., Any]

    def timeout(self, row: Row) -> Any:
        """Returns what stands in for the result."""
        return self._result(self._call(self.fallback, row))


def with_fallback(function: ValuesFunction, fallback: object) -> ValuesFunction:
    """Returns `function` with the function of ``on_timeout=``, if there is one."""
    if not callable(fallback) or isinstance(fallback, Mapping):
        return function
    made = _WithFallback(function.function, function.column, function.keywords)
    made.fallback = fallback
    return made
