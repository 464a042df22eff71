# SPDX-License-Identifier: Apache-2.0
"""Actions, which call at once: rows that are sent, and rows that are written once.

Rows are called for and written once, over any number of runs that broke off:

```text
  rows whose key is not at `path` --> kept, by bucket --> a chunk: called for, written --> the next
             (keys are unique)         hash of the key           (one append)
```

A bucket has the same rows however often Spark computes it: what a chunk is does not depend on the
order of rows. A key is in one file, whose rows appear all at once, so a run that finds half of a
chunk goes on with the other half. To be called on the driver, from any thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation, Row
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import LongType, StructField, StructType

from sparkawait._checks import choice, columns, integer, named, refuse, refuse_column, shown, text
from sparkawait._option import refuse_unknown
from sparkawait._plan.called import facts_of, to_function
from sparkawait._plan.plan import Chain, Results
from sparkawait._plan.resolve import what_is_called
from sparkawait._values.results import unlike
from sparkawait.exceptions import AsyncFunctionError, ErrorKind
from sparkawait.functions import (
    AsyncFunction,
    AsyncFunctionLike,
    AsyncFunctionsLike,
    NativeFunction,
)
from sparkawait.metrics import Metrics
from sparkawait.options import WaitArguments, WaitOptions, of_call
from sparkawait.outcomes import ENDED_ROWS
from sparkawait.spark.folder import (
    OWN,
    Failures,
    Folder,
    column_of,
    observation_of,
    tell,
    times_of,
    without,
    write,
    written_at,
)
from sparkawait.spark.interrupts import wait_for
from sparkawait.spark.schemas import to_arrow
from sparkawait.spark.session import Session, is_connect
from sparkawait.spark.shipment import Shipment
from sparkawait.spark.tasks import PartitionTask, renamed, step_of
from sparkawait.spark.wait import check_ends, made, unordered_wait, with_safe_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sparkawait._plan.plan import Plan

__all__ = ["Sent", "send", "write_once"]

# -- an action: a call for each row, counted once
#
# ```text
#   task: rows --> calls --> the rows that failed, and at the end one row of counts
#                                 |
#                                 +--> failed=path: written; the counts are observed
#                                 +--> without:     one task keeps the first 1 000, for the driver
# ```
#
# Counts travel with the rows: of a task that Spark ran again they are there once. To be called on
# the
# driver, from any thread.


_MOST_FAILURES = 1000
_COUNTS = "_sparkawait_counts"
"""The last column, of the counts; see `unlike`."""
_COUNTED = ("rows", "failed", "calls", "tasks", "repeated_tasks")
_NO_USE = {
    "carry_over": "it is for streams",
    "on_timeout": "a row that timed out has failed",
    "schema": "what the function returns is not looked at",
    "watermark": "no rows come back, in any order",
}


@dataclass(frozen=True)
class Sent:
    """How many rows `send` has called for, and how many of them failed.

    Attributes:
        rows: Rows that were called for, each counted once.
        failed: Those of them that failed for good.
        calls: Calls that were made for these rows, retries included.
        tasks: Tasks that made them.
        repeated_tasks: Those of them that Spark had to run more than once.
        repeated_calls: Calls of runs that Spark threw away, beside `calls`, as far as these runs
            could tell: one whose process was killed could not. ``None`` on Spark Connect.
        failures: The rows that failed, with their errors, 1 000 at most; none with ``failed=``.
    """

    rows: int
    failed: int
    calls: int
    tasks: int
    repeated_tasks: int
    repeated_calls: int | None
    failures: list[Row]

    def __repr__(self) -> str:
        """Shows the counts, and nothing of the rows."""
        shown = (f"{it.name}={getattr(self, it.name)}" for it in fields(self)[:-1])
        return f"Sent({', '.join(shown)})"


def send(
    df: DataFrame,
    function: AsyncFunctionLike,
    *,
    failed: str | os.PathLike[str] | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Sent:
    """Calls `function` for each row of `df`, now, and returns how many failed.

    For functions that are called for what they do. What a Python function returns is not looked at,
    so it needs no schema. A row that fails for good does not end the action: ``on_error`` is
    ``"capture"``, unless you say ``"fail"``, or how many are too many with `sparkawait.OnError`.

    Args:
        df: The rows. Not a stream: call it in a ``foreachBatch``.
        function: One function, as for `sparkawait.unordered_wait`.
        failed: Where the rows that failed are written, as Parquet files with the columns of `df`
            and those of `on_error` and `info`. Nothing must be there. Without it at most 1 000 of
            them come to the driver.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.

    Raises:
        ConfigurationError: If an argument is wrong, or on Spark Connect before Spark 4.0 with
            `failed`. Raised before anything is called.

    Examples:
        >>> sent = sa.send(df, post, failed="/data/not-sent")  # doctest: +SKIP
        >>> sent.rows, sent.failed  # doctest: +SKIP
        (50000, 13)
    """
    path = None if failed is None else text(os.fspath(failed), "failed")
    found, called = _checked(df, function, of_call(options, given))
    observation = None if path is None else _observation(df)
    metrics = None if is_connect(df) else Metrics()
    rows = _sent(df, found, metrics, called, _MOST_FAILURES if path is None else None)
    if path is None or observation is None:
        sums, failures = _collected(rows)
    else:
        sums, failures = _written(rows, path, observation), []
    repeated = None
    if metrics is not None:
        found = metrics.snapshot()
        all_calls = found["attempts"] + found["failed_tasks"]["attempts"]
        repeated = all_calls - sums["calls"]
    return Sent(**sums, repeated_calls=repeated, failures=failures)


def _checked(
    df: DataFrame, function: AsyncFunctionLike, options: WaitOptions
) -> tuple[AsyncFunction | NativeFunction, WaitOptions]:
    """Returns the function and its options, checked as far as `unordered_wait` does not."""
    way_out = "of a stream, call it for each micro-batch in a `foreachBatch`"
    check_ends(df, "df", "send", way_out)
    if isinstance(function, (list, tuple)):
        refuse("`send` takes one function; call it once for each", ErrorKind.FUNCTION_INVALID)
    bare, options = what_is_called(function, options)
    for name in options.given:
        if name in _NO_USE:
            refuse(f"`{name}` is of no use to `send`: {_NO_USE[name]}; leave it out")
    options = options.over(WaitOptions(on_error="capture"))
    action = options.on_error.action
    if action in ("null", "drop"):
        refuse(
            f"`on_error` of `send` must keep what failed, got {shown(action)}; leave it out, or"
            " give 'fail', or a sparkawait.OnError that captures"
        )
    called, _ = to_function(bare)
    return called, options


def _sent(
    df: DataFrame,
    function: AsyncFunction | NativeFunction,
    metrics: Metrics | None,
    options: WaitOptions,
    most: int | None,
) -> DataFrame:
    """Returns the rows that failed, `most` of each task, and counts of each task."""
    batch = facts_of(function).batch
    # What a function returns for record batches, and a native one reads, has its columns.
    ignores = isinstance(function, AsyncFunction) and not (batch is not None and batch.arrow)
    results: Results = "none" if ignores else "rows"
    step = made(df, "unordered", function, options, metrics=metrics, results=results)
    (plan,) = step.chain.plans
    told = [] if plan.error_field is None else step.schema.fields[-len(plan.told_fields) :]
    kept = StructType([StructField(it.name, it.dataType) for it in (*df.schema.fields, *told)])
    source, names = with_safe_names(step.source)
    task = _SendTask(
        step.chain,
        names=names,
        reports=step.reports,
        kept=to_arrow(kept, step.zone),
        inputs=len(df.columns),
        most=most,
    )
    counts = StructType([StructField(name, LongType()) for name in _COUNTED])
    last = StructField(unlike(_COUNTS, kept.names), counts)
    return source.mapInArrow(task, StructType([*kept.fields, last]))


def _collected(rows: DataFrame) -> tuple[dict[str, int], list[Row]]:
    """Returns the sums, and the rows that failed."""
    one, _ = with_safe_names(rows.repartition(1))
    first = one.mapInArrow(_FirstFailures(rows.columns), rows.schema)
    kept = wait_for(rows.sparkSession, first.collect)
    counts = [row[-1] for row in kept if row[-1] is not None]
    of_row = Row(*rows.columns[:-1])
    failures = [of_row(*row[:-1]) for row in kept if row[-1] is None]
    return {name: sum(it[name] for it in counts) for name in _COUNTED}, failures


def _written(rows: DataFrame, path: str, observation: Observation) -> dict[str, int]:
    """Writes the rows that failed, and returns the sums."""
    told = rows.columns[-1]
    counts = [F.sum(f"{told}.{name}").alias(name) for name in _COUNTED]
    failed = rows.observe(observation, *counts).where(F.col(told).isNull()).drop(told)
    write(rows.sparkSession, lambda: failed.write.parquet(path))
    return {name: count or 0 for name, count in observation.get.items()}


def _observation(df: DataFrame) -> Observation:
    observation = observation_of(df)
    if observation is None:
        refuse(
            "`failed` needs Spark 4.0 on Spark Connect, where older clients get no counts of what"
            " is written; leave it out, for 1 000 failed rows at most, or use a classic session"
        )
    return observation


class _SendTask(PartitionTask):
    """Puts out the rows that failed, and at the end a row of counts.

    Args:
        chain: The call.
        kept: The columns that are kept of a row that failed.
        inputs: How many of them are the input's, which come first; the error comes next.
        most: How many of these rows are put out at most.
        **given: As for `PartitionTask`.
    """

    def __init__(
        self, chain: Chain, *, kept: pa.Schema, inputs: int, most: int | None, **given: Any
    ) -> None:
        super().__init__(chain, **given)
        self._kept = kept
        self._inputs = inputs
        self._most = most

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields them of a partition whose rows `batches` are."""
        totals: dict[str, Any] = {}
        schema, failed = self._kept, 0
        error = self._inputs
        columns = [*range(error), *range(error - len(self._kept), 0)]
        for batch in self.output(batches, totals):
            arrays = [batch.column(at) for at in columns]
            kept = pa.RecordBatch.from_arrays(arrays, names=self._kept.names)
            # Batches without rows are sent, too: they tell Spark that the task lives.
            fits = kept.slice(0, 0)
            if len(columns) > error and kept.column(error).null_count < kept.num_rows:
                fits = kept.filter(pc.is_valid(kept.column(error)))
            room = fits.num_rows if self._most is None else max(self._most - failed, 0)
            failed += fits.num_rows
            schema = kept.schema
            yield _with_counts(fits.slice(0, room), None)
        run = TaskContext.get()
        told = {
            "rows": totals.get("admitted", 0),
            "failed": failed,
            "calls": totals.get("attempts", 0),
            "tasks": 1,
            "repeated_tasks": int(run is not None and run.attemptNumber() > 0),
        }
        nothing = [pa.nulls(1, field.type) for field in schema]
        yield _with_counts(pa.RecordBatch.from_arrays(nothing, names=schema.names), told)


def _with_counts(rows: pa.RecordBatch, counts: Mapping[str, int] | None) -> pa.RecordBatch:
    """Returns `rows` with the last column, which is null for rows that failed."""
    added = pa.array([counts] * rows.num_rows, pa.struct([(it, pa.int64()) for it in _COUNTED]))
    names = [*rows.schema.names, unlike(_COUNTS, rows.schema.names)]
    return pa.RecordBatch.from_arrays([*rows.columns, added], names=names)


class _FirstFailures(Shipment):
    """Keeps all counts, and the first rows that failed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.__name__ = "first_failures"
        self._names = names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields them of `batches`, whose columns have other names."""
        room = _MOST_FAILURES
        for found in batches:
            batch = renamed(found, self._names)
            counted = batch.filter(pc.is_valid(batch.column(-1)))
            failed = batch.filter(pc.is_null(batch.column(-1))).slice(0, room)
            room -= failed.num_rows
            yield counted
            yield failed


_INSTANT = re.compile(r"(^|[:<])timestamp($|[,>])")
"""A timestamp with a zone in what Spark writes of a type; a field may be named so."""
_BUCKETS = 1 << 16
"""Parts of the rows. A chunk has some of them; the driver gets a count of each."""


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
            them again. So it does for rows without a result that the function leaves out. A run
            ends, before the next chunk, when all rows of one (20 at least) have failed, as they do
            with a wrong key; an `on_error` with a bound of its own judges in place of that.

    Returns:
        A reader of all rows at `path`. Of a row that failed in several runs it has the last
        failure, and none if another run has a result for it.

    Raises:
        ConfigurationError: If an argument is wrong, if `path` has rows with other columns, or if
            two of the missing rows have the same key. Raised before anything is called.
        AsyncFunctionError: If all rows of a chunk have failed, and there is a next one.

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
    folder = Folder(df.sparkSession, where, out.schema, tuple(names), error)
    is_there = folder.check()
    if folder.was_left():
        folder.write_none()
        is_there = True
    if is_there and again is None:
        folder.tell_of_failures()
    bucket = F.pmod(F.xxhash64(*map(column_of, names)), F.lit(_BUCKETS)).cast("int")
    # Sorted, so that a chunk reads few of the batches that are kept. All rows, because whatever
    # reads `path` is computed again when a chunk has been written there: Spark sees to that.
    own = unlike(OWN, df.columns)
    # Where two runs have equal plans, Spark keeps one set of rows, which the first to end lets go.
    alone = df.withColumn(own, bucket).where(F.lit(uuid4().hex).isNotNull())
    kept = alone.sortWithinPartitions(own).persist()
    try:
        rest = kept
        if is_there:
            rest = _in_partitions_of(kept, without(kept, folder.keys_done(again), names))
        _check_keys(rest, names)
        counted = rest.groupBy(own).agg(F.count(F.lit(1))).sort(own)
        counts = [(it[0], it[1]) for it in wait_for(df.sparkSession, counted.collect)]
        chunks = list(_chunks(counts, chunk))
        for number, (first, last, held) in enumerate(chunks, 1):
            rows = rest.where(F.col(own).between(first, last)).drop(own)
            failed = folder.add(called(rows))
            written = f"chunk {number} of {len(chunks)}"
            tell(f"{written} is written: {_rows(held, failed)}")
            is_judged = number < len(chunks) and not plan.options.on_error.is_bounded
            if is_judged and failed is not None and failed.rows == held >= ENDED_ROWS:
                _end(f"all {held} rows of {written} have failed", failed)
    finally:
        kept.unpersist()
    if not counts and not is_there:
        folder.write_none()
    return folder.latest()


def _rows(count: int, failed: Failures | None) -> str:
    told = f"{count} row{'s' * (count != 1)}"
    return told if failed is None else f"{told}, {failed.rows} of them failed"


def _end(what: str, failed: Failures) -> NoReturn:
    """Ends a run whose further calls would fail, too.

    Raises:
        AsyncFunctionError: Always.
    """
    one = failed.one
    msg = (
        f"{what}, and no further one is called for; one of them: {one.get('message')}. They"
        " are written, and done: run again with again='failed' once the cause is mended, or as"
        " it was for the rows behind them. An `on_error` with `stop_after` or `stop_ratio`"
        " judges in place of this"
    )
    kind = one.get("kind") or ErrorKind.USER_FUNCTION_FAILED
    raise AsyncFunctionError(msg, kind, status=one.get("status"))


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
        setting = "spark.sql.parquet.outputTimestampType"
        if _INSTANT.search(found) and df.sparkSession.conf.get(setting) == "TIMESTAMP_MILLIS":
            refuse(
                f"`key` names column `{name}`, which has type {found}, and {setting} ="
                " TIMESTAMP_MILLIS keeps no microseconds, so the next run might not find a key that"
                " is there; set it to TIMESTAMP_MICROS"
            )


def _in_partitions_of(df: DataFrame, rows: DataFrame) -> DataFrame:
    """Returns `rows` in as many partitions as `df` has.

    A join that shuffles has partitions of its own, and more tasks make more calls at a time.
    """
    partitions = df.select(F.spark_partition_id().alias("_0"))
    last = wait_for(df.sparkSession, partitions.agg(F.max("_0")).collect)[0][0]
    return rows.repartition((last or 0) + 1)


def _check_keys(rows: DataFrame, names: Sequence[str]) -> None:
    """Checks that no key is there twice: a run that finds it written would skip both rows."""
    own = unlike(OWN, names)
    counts = rows.groupBy(*map(column_of, names)).agg(F.count(F.lit(1)).alias(own))
    counted = counts.where(F.col(own) > 1).agg(F.count(F.lit(1)), F.sum(own))
    # Where `df` is what another call puts out, all of its calls are made here.
    twice = wait_for(rows.sparkSession, counted.collect)[0]
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
    # A client of Spark Connect knows this mode by its short name alone.
    spark_mode = "error" if mode == "errorifexists" else mode
    writer = out.write.format(format).options(**times_of(format)).mode(spark_mode)
    write(out.sparkSession, lambda: writer.save(where))
    written = written_at(out.sparkSession, where, out.schema, format)
    has_failed = column_of(column).isNotNull()
    return written.where(~has_failed).drop(column), written.where(has_failed)
