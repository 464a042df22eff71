# SPDX-License-Identifier: Apache-2.0
"""What a column function is called with: columns, and the names that they have in its row.

To be used on the driver, from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias, cast

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from sparkawait._checks import shown
from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Argument", "argument_names", "as_column", "members"]

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


def argument_names(columns: object) -> tuple[str, ...] | None:
    """Returns the names of the arguments, if there are any.

    Raises:
        ConfigurationError: If they are not names, or not distinct.
    """
    if columns is None:
        return None
    names = cast("Sequence[object]", columns)
    if (
        not isinstance(columns, (list, tuple))
        or not names
        or not all(isinstance(name, str) for name in names)
        or len(set(names)) < len(names)
    ):
        msg = f"`columns` must be a list of distinct names, got {shown(columns)}"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    return tuple(cast("Sequence[str]", names))
