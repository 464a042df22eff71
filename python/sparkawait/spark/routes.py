# SPDX-License-Identifier: Apache-2.0
"""The option ``channel=`` over DataFrames: a column's name, several, or an expression.

An expression becomes a column that is sent along and taken off again in the executor, so that
neither the function nor the output sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import PySparkException

from sparkawait.channels import Route
from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["with_route"]

_NAME = "__sparkawait_channel"


def with_route(df: DataFrame, given: Mapping[str, Any]) -> tuple[DataFrame, dict[str, Any]]:
    """Returns `df` with the column that an expression makes, and the options with its route.

    Raises:
        ConfigurationError: If Spark cannot compute the expression over `df`.
    """
    channel = given.get("channel")
    if not _is_column(channel):
        return df, dict(given)
    name = _NAME
    while name in df.columns:
        name += "_"
    try:
        routed = df.withColumn(name, cast("Any", channel))
        _ = routed.schema
    except PySparkException as error:
        msg = f"`channel` cannot be computed: {str(error).splitlines()[0]}"
        raise ConfigurationError(msg, ErrorKind.CHANNELS_INVALID) from error
    return routed, {**given, "channel": Route((name,), hidden=True)}


def _is_column(channel: object) -> bool:
    """Tells whether it is a column of a classic session or of Spark Connect."""
    return type(channel).__name__ == "Column" and hasattr(channel, "alias")
