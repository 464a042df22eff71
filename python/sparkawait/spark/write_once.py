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
import logging
import operator
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from sparkawait._checks import choice, columns, integer, named, refuse, refuse_column, shown, text
from sparkawait._option import refuse_unknown
from sparkawait.exceptions import ErrorKind
from sparkawait.functions import AsyncFunctionsLike
from sparkawait.metrics import Metrics
from sparkawait.options import WaitArguments, WaitOptions
from sparkawait.spark.interrupts import ending_jobs
from sparkawait.spark.partition import step_of
from sparkawait.spark.send import observation_of
from sparkawait.spark.session import Session
from sparkawait.spark.wait import check_ends, unordered_wait

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType
    from typing_extensions import Unpack

    from sparkawait._plan.plan import Plan


__all__ = ["write_once"]

_logger = logging.getLogger("sparkawait")
_BUCKETS = 1 << 16
"""Parts of the rows. A chunk has some of them; the driver gets a count of each."""
_OWN = "_sparkawait"
"""A column beside those of the rows, whose names may be any."""


def write_once(
    df: DataFrame,
    function: AsyncFunctionsLike,
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str],
    chunk: int = 10_000,
    again: Literal["failed"] | None = None,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> DataFrame:
    """Calls `function` for the rows of `df` whose key is not at `path` yet, and writes them there.

    The rows are called for in chunks, one after the other, and each is written before the next one
    begins; the log says so (level INFO), or standard error where no logging is set up. After a
    crash, run the same again: it goes on with what is missing, and has paid for one chunk at most
    twice. When all rows are there, a run calls nothing. Let one run at a time write to a path.

    The rows of `df` are persisted while it runs, so it is computed once a run. The calls are made
    in as many tasks as it has partitions.

    Args:
        df: The rows. Their keys must be the same in each run: no ``uuid()``, no
            ``monotonically_increasing_id()``. Not a stream.
        function: As for `sparkawait.unordered_wait`.
        path: A folder of Parquet files, which this function makes and adds to.
        key: The columns of `df` that tell rows apart. A null is a value as any other. A row whose
            key is there is done, whatever else has changed in it.
        chunk: How many rows are called for before they are written, at most. A chunk is as slow as
            its slowest call, so small ones cost time.
        again: ``"failed"`` calls again for rows that an earlier run has captured as failed. What
            they come to is added to the files, which keep the failures from before; the reader
            that is returned leaves those out. A row that has no result then, and is left out,
            keeps its failure. Needs an `on_error` that captures.
        metrics: As for `sparkawait.unordered_wait`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`. With ``on_error="capture"`` rows that
            failed are written and done; with ``"drop"`` they are not, and the next run calls for
            them again. So it does for rows without a result that the function leaves out.

    Returns:
        A reader of all rows at `path`. Of a row that failed in several runs it has the last
        failure, and none if another run has a result for it.

    Raises:
        ConfigurationError: If an argument is wrong, if `path` has rows with other columns, or if
            two of the missing rows have the same key. Raised before anything is called.

    Examples:
        >>> done = sa.write_once(df, lookup, "/data/customers", key="id")  # doctest: +SKIP
    """
    where = text(os.fspath(path), "path")
    integer(chunk, "chunk", 1)
    names = named(columns(key, "key"), "key")
    if again is not None:
        choice(again, "again", "failed")
    if "chain" in given:
        refuse_unknown("chain", (), "it belongs to the wait functions")

    def called(rows: DataFrame) -> DataFrame:
        return unordered_wait(rows, function, metrics=metrics, options=options, **given)

    # Whatever is wrong with the function or the options is found here.
    out = called(df)
    plan = _plan_of(out)
    _check(df, plan, names, again)
    error = None if plan.error_field is None else plan.error_field.name
    folder = _Folder(df.sparkSession, where, out.schema, tuple(names), error)
    is_there = folder.check()
    if is_there:
        folder.write_none()
    bucket = F.pmod(F.xxhash64(*map(_column, names)), F.lit(_BUCKETS)).cast("int")
    # Sorted, so that a chunk reads few of the batches that are kept. All rows, because whatever
    # reads `path` is computed again when a chunk has been written there: Spark sees to that.
    kept = df.withColumn(_OWN, bucket).sortWithinPartitions(_OWN).persist()
    try:
        with ending_jobs(df.sparkSession):
            rest = kept
            if is_there:
                rest = _in_partitions_of(kept, _without(kept, folder.keys_done(again), names))
            _check_keys(rest, names)
            counts = [(it[0], it[1]) for it in rest.groupBy(_OWN).count().sort(_OWN).collect()]
            chunks = list(_chunks(counts, chunk))
            for number, (first, last, held) in enumerate(chunks, 1):
                rows = rest.where(F.col(_OWN).between(first, last)).drop(_OWN)
                failed = folder.add(called(rows))
                _tell(f"chunk {number} of {len(chunks)} is written: {_rows(held, failed)}")
    finally:
        kept.unpersist()
    if not counts and not is_there:
        folder.write_none()
    return folder.latest()


def _rows(count: int, failed: int | None) -> str:
    told = f"{count} row{'s' * (count != 1)}"
    return told if failed is None else f"{told}, {failed} of them failed"


def _tell(line: str) -> None:
    """Logs a line; where no logging is set up, people look at the bar of Spark meanwhile."""
    if _logger.hasHandlers():
        _logger.info("write_once: %s", line)
    else:
        print(f"sparkawait.write_once: {line}", file=sys.stderr)  # noqa: T201 - as the bar


def _plan_of(out: DataFrame) -> Plan:
    """Returns the call whose output is `out`."""
    (plan,) = step_of(out, Session(out.sparkSession).times.zone).chain.plans
    return plan


def _check(df: DataFrame, plan: Plan, names: Sequence[str], again: str | None) -> None:
    """Checks that the rows end, and that what the next run asks for is written with them."""
    way_out = "a stream has a checkpoint: write it with trigger(availableNow=True)"
    check_ends(df, "df", "write_once", way_out)
    if again is not None and plan.error_field is None:
        refuse(
            "`again` needs failed rows that are written as such, got"
            f" on_error={shown(plan.options.on_error.action)}; set on_error='capture'"
        )
    for name in names:
        if name not in df.columns:
            refuse_column(df.columns, name, "key")
        found = df.schema[name].dataType.simpleString()
        if found in ("interval", "variant", "void") or "map<" in found:
            refuse(
                f"`key` names column `{name}`, which has type {found}, and cannot be compared or"
                " kept in Parquet; cast it to a string"
            )


@dataclass(frozen=True)
class _Folder:
    """What runs have written, as files that are only added to.

    Attributes:
        spark: The session.
        path: The folder.
        schema: The columns of the rows.
        names: The columns of the key.
        error: The column of failures, if rows that failed are written.
    """

    spark: SparkSession
    path: str
    schema: StructType
    names: tuple[str, ...]
    error: str | None

    def rows(self) -> DataFrame:
        """Returns a reader of all rows of all files."""
        return self.spark.read.schema(self.schema).parquet(self.path)

    def check(self) -> bool:
        """Tells whether there is something; rows must have the columns of `schema`."""
        try:
            # Twice, because Spark looks in a single folder for what a stream has left there, and
            # logs a stack trace if there is no such folder.
            found = self.spark.read.parquet(self.path, self.path).schema
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return False
            if "UNABLE_TO_INFER_SCHEMA" in str(error):  # no file yet
                return True
            raise
        there, new = (
            [f"{it.name} {it.dataType.simpleString()}" for it in of] for of in (found, self.schema)
        )
        if there != new:
            refuse(
                "`path` has rows with other columns than this call writes:"
                f" {', '.join(there)} and not {', '.join(new)}; give another path",
                ErrorKind.INPUT_INVALID,
            )
        return True

    def keys_done(self, again: str | None) -> DataFrame:
        """Returns the keys of the rows that are not called for."""
        rows = self.rows()
        return rows if again is None else rows.where(~self._has_failed())

    def add(self, rows: DataFrame) -> int | None:
        """Writes `rows`, and returns how many of them have failed, if that can be told."""
        observation = None if self.error is None else observation_of(rows)
        if observation is not None:
            failed = F.coalesce(F.sum(self._has_failed().cast("long")), F.lit(0))
            rows = rows.observe(observation, failed.alias("failed"))
        # A key with several results stays in one file.
        rows.write.mode("append").option("maxRecordsPerFile", 0).parquet(self.path)
        return None if observation is None else observation.get["failed"]

    def write_none(self) -> None:
        """Writes no rows, which ends what a run has left that was killed.

        Tasks that it had committed lie below ``_temporary``, and the next job that writes there
        puts them beside its own files. That must not be the one that calls for the same rows.
        """
        none = self.spark.createDataFrame([], self.schema)
        none.write.mode("append").parquet(self.path)

    def latest(self) -> DataFrame:
        """Returns a reader of all rows, without failures that a later run has called for again."""
        rows = self.rows()
        if self.error is None or rows.where(self._has_failed()).isEmpty():
            return rows
        keys = [_column(name) for name in self.names]
        failures = F.sum(self._has_failed().cast("long"))
        is_replaced = (failures > 0) & (F.count(F.lit(1)) > 1)
        if rows.groupBy(*keys).agg(is_replaced.alias(_OWN)).where(F.col(_OWN)).isEmpty():
            return rows
        newest = Window.partitionBy(*keys).orderBy(F.col("_metadata.file_modification_time").desc())
        failed = rows.where(self._has_failed()).withColumn(_OWN, F.row_number().over(newest))
        good = rows.where(~self._has_failed())
        last = failed.where(F.col(_OWN) == 1).drop(_OWN)
        return good.union(_without(last, good, self.names))

    def _has_failed(self) -> Column:
        assert self.error is not None  # noqa: S101 - asked where failures are captured
        return _column(self.error).isNotNull()


def _without(df: DataFrame, done: DataFrame, names: Sequence[str]) -> DataFrame:
    """Returns the rows of `df` whose key is not in `done`."""
    keys = [_column(name).alias(f"{_OWN}_{i}") for i, name in enumerate(names)]
    same = [_column(name).eqNullSafe(F.col(f"{_OWN}_{i}")) for i, name in enumerate(names)]
    return df.join(
        done.select(*keys).distinct(), functools.reduce(operator.and_, same), "left_anti"
    )


def _in_partitions_of(df: DataFrame, rows: DataFrame) -> DataFrame:
    """Returns `rows` in as many partitions as `df` has.

    A join that shuffles has partitions of its own, and more tasks make more calls at a time.
    """
    partitions = df.select(F.spark_partition_id().alias("_0"))
    last = partitions.agg(F.max("_0")).collect()[0][0]
    return rows.repartition((last or 0) + 1)


def _check_keys(rows: DataFrame, names: Sequence[str]) -> None:
    """Checks that no key is there twice: a run that finds it written would skip both rows."""
    counts = rows.groupBy(*map(_column, names)).agg(F.count(F.lit(1)).alias(_OWN))
    twice = counts.where(F.col(_OWN) > 1).agg(F.count(F.lit(1)), F.sum(_OWN)).collect()[0]
    if twice[0]:
        refuse(
            f"`key` must tell rows apart, and {twice[0]} of its values are in {twice[1]} rows of"
            f" the input; name more columns than {', '.join(names)}, or drop duplicates",
            ErrorKind.INPUT_INVALID,
        )


def _chunks(counts: Sequence[tuple[int, int]], most: int) -> Iterator[tuple[int, int, int]]:
    """Yields the first and the last bucket of each chunk, and its rows, `most` of them at most.

    A bucket is not divided: of a few thousand rows it has one, of a billion 15 000.
    """
    first = last = held = 0
    for bucket, rows in counts:
        if held and held + rows > most:
            yield first, last, held
            held = 0
        if not held:
            first = bucket
        last, held = bucket, held + rows
    if held:
        yield first, last, held


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
        column: The column with the failures, as `sparkawait.OnError` names it.
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
            " your sparkawait.OnError by `column`",
            ErrorKind.COLUMN_MISSING,
        )
    with ending_jobs(out.sparkSession):
        out.write.format(format).mode(mode).save(where)
    written = out.sparkSession.read.format(format).schema(out.schema).load(where)
    has_failed = F.col(f"`{column}`").isNotNull()
    return written.where(~has_failed).drop(column), written.where(has_failed)
