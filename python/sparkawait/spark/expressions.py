# SPDX-License-Identifier: Apache-2.0
"""Expressions in options, each of which becomes a column with a name.

To be called on the driver.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, cast

from sparkawait.cache import Cache
from sparkawait.columns import ColumnExpression, is_expression
from sparkawait.exceptions import ErrorKind
from sparkawait.function_with_options import FunctionWithOptions
from sparkawait.rate_limit import RateLimit
from sparkawait.wait_options import WaitOptions
from sparkawait.watermark import WatermarkStrategy

__all__ = ["Expressions"]

_CACHE, _CHANNELS = ErrorKind.CACHE_INVALID, ErrorKind.CHANNELS_INVALID
_WATERMARK = ErrorKind.WATERMARK_INVALID


class Expressions(ABC):
    """Finds the expressions in options, and puts the names of their columns there.

    Attributes:
        names: What the columns are called.
    """

    def __init__(self) -> None:
        """Knows no expression yet."""
        self.names: tuple[str, ...] = ()

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns options that name a column where `given` had an expression.

        Raises:
            ConfigurationError: If Spark cannot compute one, or it cannot be used as it is to be.
        """
        named = dict(given)
        cache, watermark = given.get("cache"), given.get("watermark")
        if isinstance(cache, Cache):
            named["cache"] = cache.with_key(self.columns(cache.columns, "cache", _CACHE))
        if isinstance(watermark, WatermarkStrategy):
            column = self.columns(watermark.column, "watermark", _WATERMARK)
            named["watermark"] = dataclasses.replace(watermark, column=column)
        if "rate_limit" in given:
            named["rate_limit"] = self._limits(given["rate_limit"])
        if "channel" in given:
            named["channel"] = self.columns(given["channel"], "channel", _CHANNELS)
        return named

    def function(self, function: Any) -> Any:
        """Returns `function`, or each of several, with options that name columns.

        Raises:
            ConfigurationError: As `options`.
        """
        if isinstance(function, (list, tuple)):
            return [self.function(it) for it in cast("list[Any]", function)]
        if isinstance(function, FunctionWithOptions):
            options = WaitOptions(**self.options(function.options.given))
            return FunctionWithOptions(function.function, options)
        return function

    def columns(self, value: Any, option: str, kind: ErrorKind = ErrorKind.OPTION_INVALID) -> Any:
        """Returns `value` with names for its expressions; what is no column is left as it is.

        Raises:
            ConfigurationError: As `options`.
        """
        if isinstance(value, (list, tuple)):
            return [self.columns(it, option, kind) for it in cast("list[Any]", value)]
        return self._add(value, option, kind) if is_expression(value) else value

    def _limits(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._limits(it) for it in cast("list[Any]", value)]
        if isinstance(value, RateLimit) and is_expression(value.cost):
            return value.with_cost(self._add(value.cost, "cost", ErrorKind.RATE_LIMIT_INVALID))
        return value

    @abstractmethod
    def _add(self, expression: ColumnExpression, option: str, kind: ErrorKind) -> str:
        """Returns the name of the column that `expression` becomes."""
