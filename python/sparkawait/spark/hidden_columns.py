# SPDX-License-Identifier: Apache-2.0
"""Expressions in options over DataFrames: ``key=``, ``channel=``, a cache's key, and the like.

An expression becomes a column that is sent along and taken off again in the executor, so that
neither the function nor the output sees it. That of a later call of a chain comes with the input
of the first one, is passed on by the operators before its own, and may so be over columns that
these leave as they are. To be called on the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import DataType, NullType, NumericType, StructType

from sparkawait._plan.checks import refuse
from sparkawait.columns import ColumnExpression
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.spark.expressions import Expressions
from sparkawait.spark.keys import why_no_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkawait._plan.chain import Chain

__all__ = ["HiddenColumns"]

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
        if self._before is not None:
            self._check_passed_on(self._before, option, kind)
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

    def _check_passed_on(self, before: Chain, option: str, kind: ErrorKind) -> None:
        """Checks that columns are the same before the chain and where this call gets them."""
        for plan in before.plans:
            if plan.options.output == "replace":
                refuse(
                    f"`{option}` is an expression, which is computed before the first call of a"
                    f" chain, but the call of `{plan.function_name}` does not pass columns on"
                    " (output='replace'); name columns that it returns, or leave `chain` out",
                    kind,
                )


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
