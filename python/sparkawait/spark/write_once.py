# SPDX-License-Identifier: Apache-2.0
"""Rows that are called for and written once, over any number of runs that broke off.

```text
  rows whose key is not at `path` --> kept, by bucket --> a chunk: called for, written --> the next
             (keys are unique)         hash of the key           (one append)
```

A bucket has the same rows however often Spark computes it: what a chunk is does not depend on the
order of rows. A key is in one file, whose rows appear all at once, so a run that finds half of a
chunk goes on with the other half. To be called on the driver, from any thread.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its customary name  # noqa: N812 - its customary name

from sparkawait._plan.checks import choice, integer, refuse, refuse_column, text
from sparkawait._quantities import columns, named
from sparkawait.exceptions import ErrorKind
from sparkawait.functions import AsyncFunctionsLike
from sparkawait.metrics import Metrics
from sparkawait.spark.wait import check_ends, unordered_wait
from sparkawait.wait_options import WaitArguments, WaitOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType
    from typing_extensions import Unpack


__all__ = ["write_once"]

_BUCKETS = 1 << 16
"""Parts of the rows. A chunk has some of them; the driver gets a count of each."""
_BUCKET = "_sparkawait_bucket"


def write_once(
    df: DataFrame,
    function: AsyncFunctionsLike,
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str],
    chunk: int = 10_000,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> DataFrame:
    """Calls `function` for the rows of `df` whose key is not at `path` yet, and writes them there.

    The rows are called for in chunks, one after the other, and each is written before the next one
    begins. After a crash, run the same again: it goes on with what is missing, and has paid for one
    chunk at most twice. When all rows are there, a run calls nothing. Let one run at a time write
    to a path.

    The rows that are missing are persisted while it runs, so `df` is computed once a run, in as
    many tasks as it has partitions.

    Args:
        df: The rows. Their keys must be the same in each run: no ``uuid()``, no
            ``monotonically_increasing_id()``. Not a stream.
        function: As for `sparkawait.unordered_wait`.
        path: A folder of Parquet files, which this function makes and adds to.
        key: The columns that tell rows apart. A null is a value as any other. A row whose key is
            there is done, whatever else has changed in it.
        chunk: How many rows are called for before they are written, at most. A chunk is as slow as
            its slowest call, so small ones cost time.
        metrics: As for `sparkawait.unordered_wait`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`. With ``on_error="capture"`` rows that
            failed are written and done; with ``"drop"`` they are not, and the next run calls for
            them again. So it does for rows without a result that the function leaves out.

    Returns:
        A reader of all rows at `path`.

    Raises:
        ConfigurationError: If an argument is wrong, if `path` has rows with other columns, or if
            two of the missing rows have the same key. Raised before anything is called.

    Examples:
        >>> done = sa.write_once(df, lookup, "/data/customers", key="id")  # doctest: +SKIP
    """
    where = text(os.fspath(path), "path")
    integer(chunk, "chunk", 1)
    names = named(columns(key, "key"), "key")

    def called(rows: DataFrame) -> DataFrame:
        return unordered_wait(rows, function, metrics=metrics, options=options, **given)

    # Whatever is wrong with the function or the options is found here.
    schema = called(df).schema
    _check(df, schema, names)
    is_there = _check_path(df, where, schema)
    if is_there:
        _write_none(df, where, schema)
    rest = _without(df, where, schema, names) if is_there else df
    bucket = F.pmod(F.xxhash64(*map(_column, names)), F.lit(_BUCKETS)).cast("int")
    # Sorted, so that a chunk reads few of the batches that are kept.
    kept = rest.withColumn(_BUCKET, bucket).sortWithinPartitions(_BUCKET).persist()
    try:
        _check_keys(kept, names)
        counts = kept.groupBy(_BUCKET).count().sort(_BUCKET).collect()
        for first, last in _chunks([(row[0], row[1]) for row in counts], chunk):
            rows = kept.where(F.col(_BUCKET).between(first, last)).drop(_BUCKET)
            # A key with several results stays in one file.
            written = called(rows).write.mode("append").option("maxRecordsPerFile", 0)
            written.parquet(where)
    finally:
        kept.unpersist()
    if not counts and not is_there:
        _write_none(df, where, schema)
    return df.sparkSession.read.schema(schema).parquet(where)


def _check(df: DataFrame, schema: StructType, names: Sequence[str]) -> None:
    """Checks that the rows end, and that their keys are written with them."""
    way_out = "a stream has a checkpoint: write it with trigger(availableNow=True)"
    check_ends(df, "df", "write_once", way_out)
    for name in names:
        if name not in df.columns:
            refuse_column(df.columns, name, "key")
        if name not in schema.names:
            refuse(
                f"`key` names column `{name}`, which is not written; leave output='replace' out",
                ErrorKind.COLUMN_MISSING,
            )
        found = df.schema[name].dataType.simpleString()
        if found in ("interval", "variant", "void") or "map<" in found:
            refuse(
                f"`key` names column `{name}`, which has type {found}, and cannot be compared or"
                " kept in Parquet; cast it to a string"
            )


def _check_path(df: DataFrame, path: str, schema: StructType) -> bool:
    """Tells whether there is something at `path`; rows must have the columns of `schema`."""
    try:
        found = df.sparkSession.read.parquet(path).schema
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            return False
        if "UNABLE_TO_INFER_SCHEMA" in str(error):  # no file yet
            return True
        raise
    there, new = (
        [f"{it.name} {it.dataType.simpleString()}" for it in of] for of in (found, schema)
    )
    if there != new:
        refuse(
            f"`path` has rows with other columns than this call writes: {', '.join(there)} and not"
            f" {', '.join(new)}; give another path",
            ErrorKind.INPUT_INVALID,
        )
    return True


def _write_none(df: DataFrame, path: str, schema: StructType) -> None:
    """Writes no rows to `path`, which ends what a run has left that was killed.

    Tasks that it had committed lie below ``_temporary``, and the next job that writes there puts
    them beside its own files. That must not be the one that calls for the same rows.
    """
    df.sparkSession.createDataFrame([], schema).write.mode("append").parquet(path)


def _without(df: DataFrame, path: str, schema: StructType, names: Sequence[str]) -> DataFrame:
    """Returns the rows whose key is not at `path`, in as many partitions as they had."""
    keys = [_column(name).alias(f"_{i}") for i, name in enumerate(names)]
    done = df.sparkSession.read.schema(schema).parquet(path).select(*keys).distinct()
    same = [_column(name).eqNullSafe(F.col(f"_{i}")) for i, name in enumerate(names)]
    rest = df.join(done, functools.reduce(operator.and_, same), "left_anti")
    # A join that shuffles has partitions of its own, and more tasks make more calls at a time.
    partitions = df.select(F.spark_partition_id().alias("_0"))
    last = partitions.agg(F.max("_0")).collect()[0][0]
    return rest.repartition((last or 0) + 1)


def _check_keys(rows: DataFrame, names: Sequence[str]) -> None:
    """Checks that no key is there twice: a run that finds it written would skip both rows."""
    counts = rows.groupBy(*map(_column, names)).count().where("count > 1")
    twice = counts.agg(F.count(F.lit(1)), F.sum("count")).collect()[0]
    if twice[0]:
        refuse(
            f"`key` must tell rows apart, and {twice[0]} of its values are in {twice[1]} rows of"
            f" the input; name more columns than {', '.join(names)}, or drop duplicates",
            ErrorKind.INPUT_INVALID,
        )


def _chunks(counts: Sequence[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Yields the first and the last bucket of each chunk of at most `most` rows.

    A bucket is not divided: of a few thousand rows it has one, of a billion 15 000.
    """
    first = last = held = 0
    for bucket, rows in counts:
        if held and held + rows > most:
            yield first, last
            held = 0
        if not held:
            first = bucket
        last, held = bucket, held + rows
    if held:
        yield first, last


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


# -- the good rows and the failed ones of a call that captured failures, paid for once.
#
# To be called on the driver, from any thread.

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
    way_out = "call it for each micro-batch in a `foreachBatch`, with a path of its own"
    check_ends(out, "out", "split", f"of a stream, {way_out}")
    if path is None:
        refuse(
            "`split` needs a `path`: it writes the rows there once, because each of two filters of"
            " a DataFrame that calls something makes all of its calls again"
        )
    where = text(os.fspath(path), "path")
    text(column, "column")
    text(format, "format")
    choice(mode, "mode", *_MODES)
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
