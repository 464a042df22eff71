# SPDX-License-Identifier: Apache-2.0
"""The good rows and the failed ones of a call that captured failures, paid for once.

To be called on the driver, from any thread.
"""

from __future__ import annotations

import os
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from sparkawait._plan.checks import choice, refuse, text
from sparkawait.exceptions import ErrorKind

_MODES = ("errorifexists", "overwrite", "append")


def split(
    out: DataFrame,
    path: str | os.PathLike[str] | None = None,
    *,
    column: str = "error",
    mode: Literal["errorifexists", "overwrite", "append"] = "errorifexists",
    format: str = "parquet",  # noqa: A002 - as Spark calls it
) -> tuple[DataFrame, DataFrame]:
    """Writes `out` to `path`, and returns readers of its good and of its failed rows.

    The calls are made here, once a row. Two filters of `out` itself, ``where("error is null")`` and
    ``where("error is not null")``, would call for each row twice.

    Args:
        out: What a wait function returned with ``on_error="capture"``; not a stream.
        path: Where the rows are written, and read from by both DataFrames.
        column: The column with the failures, as `sparkawait.Capture` names it.
        mode: What to do if there is something at `path`. With ``"append"`` the readers have what
            was there before, too.
        format: The format of the files, of those that keep a struct, such as ``"parquet"``.

    Returns:
        The good rows, without the column, and the failed ones.

    Raises:
        ConfigurationError: Without a path, for a stream, or if there is no such column. Raised
            before anything is called.

    Examples:
        >>> out = sa.unordered_wait(df, lookup, on_error="capture")  # doctest: +SKIP
        >>> good, failed = sa.split(out, "/data/customers")  # doctest: +SKIP
        >>> failed.groupBy("error.kind").count().show()  # doctest: +SKIP
    """
    if not hasattr(out, "mapInArrow"):
        refuse(
            f"`out` must be a DataFrame of Spark, got `{type(out).__name__}`",
            ErrorKind.INPUT_INVALID,
        )
    if path is None:
        refuse(
            "`split` needs a `path`: it writes the rows there once, because each of two filters of"
            " a DataFrame that calls something makes all of its calls again"
        )
    where = text(os.fspath(path), "path")
    text(column, "column")
    text(format, "format")
    choice(mode, "mode", *_MODES)
    if out.isStreaming:
        refuse(
            "`split` is for DataFrames that end; of a stream, call it for each micro-batch in a"
            " `foreachBatch`, with a path of its own",
            ErrorKind.INPUT_INVALID,
        )
    if column not in out.columns:
        refuse(
            f"`out` has no column `{column}`; call with on_error='capture', or name the column of"
            " your sparkawait.Capture by `column`",
            ErrorKind.COLUMN_MISSING,
        )
    out.write.format(format).mode(mode).save(where)
    written = out.sparkSession.read.format(format).schema(out.schema).load(where)
    has_failed = F.col(f"`{column}`").isNotNull()
    return written.where(~has_failed).drop(column), written.where(has_failed)
