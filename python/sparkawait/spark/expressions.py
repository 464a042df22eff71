# SPDX-License-Identifier: Apache-2.0
"""Expressions in options; each becomes a column with a name.

To be called on the driver.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import DataType, NullType, NumericType, StructType

from sparkawait._checks import ColumnExpression, is_expression, refuse
from sparkawait._plan.plan import Chain
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.limits import Channel
from sparkawait.options import FunctionWithOptions, WaitOptions
from sparkawait.outcomes import Cache, WatermarkStrategy
from sparkawait.rate_limit import Budget, RateLimit
from sparkawait.spark.schemas import why_no_key

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

    def options(self, options: WaitOptions) -> WaitOptions:
        """Returns options that name a column where `options` had an expression.

        Raises:
            ConfigurationError: If Spark cannot compute one, or it does not fit its option.
        """
        named: dict[str, Any] = {}
        given = options.given
        cache, watermark, channel = (given.get(it) for it in ("cache", "watermark", "channel"))
        if isinstance(cache, Cache):
            named["cache"] = cache.with_key(self.columns(cache.columns, "cache", _CACHE))
        if isinstance(watermark, WatermarkStrategy):
            column = self.columns(watermark.column, "watermark", _WATERMARK)
            named["watermark"] = dataclasses.replace(watermark, column=column)
        if "rate_limit" in given:
            named["rate_limit"] = self._limits(given["rate_limit"])
        if isinstance(channel, Channel) and channel.by:
            by = self.columns(channel.by, "channel", _CHANNELS)
            named["channel"] = channel.with_columns(by)
        return WaitOptions(**named).over(options) if named else options

    def function(self, function: Any) -> Any:
        """Returns `function`, or each of several, with options that name columns.

        Raises:
            ConfigurationError: As `options`.
        """
        if isinstance(function, (list, tuple)):
            return [self.function(it) for it in cast("list[Any]", function)]
        if isinstance(function, FunctionWithOptions):
            return FunctionWithOptions(function.function, self.options(function.options))
        return function

    def columns(self, value: Any, option: str, kind: ErrorKind = ErrorKind.OPTION_INVALID) -> Any:
        """Returns `value` with names for its expressions; other values stay as they are.

        Raises:
            ConfigurationError: As `options`.
        """
        if isinstance(value, (list, tuple)):
            return [self.columns(it, option, kind) for it in cast("list[Any]", value)]
        return self._add(value, option, kind) if is_expression(value) else value

    def _limits(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._limits(it) for it in cast("list[Any]", value)]
        if isinstance(value, (RateLimit, Budget)) and is_expression(value.cost):
            return value.with_cost(self._add(value.cost, "cost", ErrorKind.RATE_LIMIT_INVALID))
        return value

    @abstractmethod
    def _add(self, expression: ColumnExpression, option: str, kind: ErrorKind) -> str:
        """Returns the name of the column that `expression` becomes."""


# -- expressions in options over DataFrames: ``key=``, ``channel=``, a cache's key, and the like.
#
# An expression becomes a column that is sent along and taken off again in the executor, so that
# neither the function nor the output sees it. That of a later call of a chain comes with the input
# of the first one, is passed on by the operators before its own, and may so be over columns that
# these leave as they are. To be called on the driver.

_TIMESTAMPS = ("timestamp", "timestamp_ntz")


class HiddenColumns(Expressions):
    """The columns that the expressions of one call become.

    Attributes:
        df: The input of the first call of the chain, with these columns behind all others.

    Args:
        df: That input.
        rows: What this call gets: its hidden columns have other names.
        before: The calls before this one in its chain.
    """

    def __init__(self, df: DataFrame, rows: StructType, before: Chain | None) -> None:
        """Computes nothing yet."""
        super().__init__()
        self.df = df
        self._before = before
        self._taken = {name.lower() for name in (*df.columns, *rows.names)}

    @property
    def schema(self) -> StructType:
        """Their types."""
        return StructType(self.df.schema.fields[-len(self.names) :] if self.names else [])

    def _add(self, expression: ColumnExpression, option: str, kind: ErrorKind) -> str:
        name = f"__sparkawait_{option}"
        while name in self._taken:
            name += "_"
        try:
            # Within a struct Spark refuses what makes several rows of one, such as `explode`.
            _ = self.df.select(F.struct(cast("Any", expression))).schema
            df = self.df.withColumn(name, cast("Any", expression))
            found = df.schema[name].dataType
        except PySparkException as error:
            first = str(error).splitlines()[0]
            where = "" if self._before is None else _BEFORE
            msg = f"`{option}` cannot be computed{where}: {first}"
            raise ConfigurationError(msg, kind) from error
        why = _why_unfit(found, option)
        if why is not None:
            refuse(f"`{option}` is a {found.simpleString()}, {why}", kind)
        self.df = df
        self.names = (*self.names, name)
        self._taken.add(name)
        return name


_BEFORE = (
    " before the first call of the chain, whose input has the only columns that an expression may"
    " be over; name the columns that a call returns, or leave `chain` out"
)


def _why_unfit(found: DataType, option: str) -> str | None:
    if option == "watermark":
        return None if found.simpleString() in _TIMESTAMPS else "not a timestamp"
    if option == "cost":
        return None if isinstance(found, NumericType) else "not a number"
    if isinstance(found, NullType):
        return "whose values are all null"
    return why_no_key(found)


# -- expressions in the options of a column function: ``channel=`` and a cache's key.
#
# An expression becomes an argument behind those of the call, over the same rows, and is taken off
# again in the executor, so that the function does not see it. To be called on the driver.


class HiddenArguments(Expressions):
    """The arguments that the expressions of one column function become.

    Attributes:
        arguments: The expressions. They have no alias, since Spark groups by no function of one.
    """

    def __init__(self) -> None:
        """Knows no expression yet."""
        super().__init__()
        self.arguments: list[Any] = []
        self._options: list[str] = []

    def _add(self, expression: ColumnExpression, option: str, kind: ErrorKind) -> str:  # noqa: ARG002
        name = f"__sparkawait_{option}_{len(self.names)}"
        self.names = (*self.names, name)
        self.arguments.append(expression)
        self._options.append(option)
        return name

    def within(self, row: Column) -> Column:
        """Returns a struct with the expressions as its last members, by their names."""
        for expression, name in zip(self.arguments, self.names, strict=True):
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
