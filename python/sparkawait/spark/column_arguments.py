# SPDX-License-Identifier: Apache-2.0
"""What a column function is called with, as columns. To be used on the driver, from any thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Argument", "as_column", "members"]

Argument: TypeAlias = "Column | str | float | Decimal | date | timedelta | bytes"
"""A column, its name, or a value that stands for itself."""


def as_column(argument: Argument) -> Column:
    """Returns the column that `argument` stands for: a text is a name, as in Spark's functions."""
    if isinstance(argument, (bool, int, float, Decimal, date, timedelta, bytes)):
        return F.lit(argument)
    return F.col(argument) if isinstance(argument, str) else argument


def members(
    function: str, names: Sequence[str] | None, arguments: Sequence[Argument]
) -> list[Column]:
    """Returns the columns of the row of `function`, under the `names` that it has for them.

    Raises:
        ConfigurationError: If it has none, and a column is there twice.
    """
    found = [as_column(one) for one in arguments]
    if names is not None:
        return [one.alias(name) for one, name in zip(found, names, strict=True)]
    texts = [repr(one)[len("Column<'") : -len("'>")] for one in found]
    twice = next((one for one in texts if texts.count(one) > 1), None)
    if twice is not None:
        msg = (
            f"`{function}` takes a row, and got column `{twice}` twice; give it once, or name the"
            " columns with async_udf(.., columns=[..])"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    return found
