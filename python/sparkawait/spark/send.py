# SPDX-License-Identifier: Apache-2.0
"""An action: a call for each row, counted once.

```text
  task: rows --> calls --> the rows that failed, and at the end one row of counts
                                |
                                +--> failed=path: written; the counts are observed
                                +--> without:     one task keeps the first 1 000, for the driver
```

Counts travel with the rows: of a task that Spark ran again they are there once. To be called on the
driver, from any thread.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Observation, Row
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import LongType, StructField, StructType

from sparkawait._checks import refuse, shown, text
from sparkawait._plan.called import facts_of, to_function
from sparkawait._plan.plan import Chain, Results
from sparkawait._plan.resolve import what_is_called
from sparkawait.exceptions import ErrorKind
from sparkawait.functions import AsyncFunction, AsyncFunctionLike, NativeFunction
from sparkawait.metrics import Metrics
from sparkawait.options import WaitArguments, WaitOptions, of_call
from sparkawait.spark.interrupts import ending_jobs
from sparkawait.spark.partition import PartitionTask, renamed
from sparkawait.spark.schemas import to_arrow
from sparkawait.spark.session import is_connect
from sparkawait.spark.shipment import Shipment
from sparkawait.spark.wait import check_ends, made, with_safe_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import Unpack

__all__ = ["Sent", "send"]

_MOST_FAILURES = 1000
_COUNTS = "_sparkawait_counts"
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
    metrics = None if is_connect(df) else Metrics(df.sparkSession)
    rows = _sent(df, found, metrics, called, _MOST_FAILURES if path is None else None)
    with ending_jobs(df.sparkSession):
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
        accumulators=step.accumulators,
        kept=to_arrow(kept, step.zone),
        inputs=len(df.columns),
        most=most,
    )
    counts = StructType([StructField(name, LongType()) for name in _COUNTED])
    return source.mapInArrow(task, StructType([*kept.fields, StructField(_COUNTS, counts)]))


def _collected(rows: DataFrame) -> tuple[dict[str, int], list[Row]]:
    """Returns the sums, and the rows that failed."""
    one, _ = with_safe_names(rows.repartition(1))
    kept = one.mapInArrow(_FirstFailures(rows.columns), rows.schema).collect()
    counts = [row[-1] for row in kept if row[-1] is not None]
    of_row = Row(*rows.columns[:-1])
    failures = [of_row(*row[:-1]) for row in kept if row[-1] is None]
    return {name: sum(it[name] for it in counts) for name in _COUNTED}, failures


def _written(rows: DataFrame, path: str, observation: Observation) -> dict[str, int]:
    """Writes the rows that failed, and returns the sums."""
    counts = [F.sum(f"{_COUNTS}.{name}").alias(name) for name in _COUNTED]
    failed = rows.observe(observation, *counts).where(F.col(_COUNTS).isNull()).drop(_COUNTS)
    failed.write.parquet(path)
    return {name: count or 0 for name, count in observation.get.items()}


def _observation(df: DataFrame) -> Observation:
    observation = observation_of(df)
    if observation is None:
        refuse(
            "`failed` needs Spark 4.0 on Spark Connect, where older clients get no counts of what"
            " is written; leave it out, for 1 000 failed rows at most, or use a classic session"
        )
    return observation


def observation_of(df: DataFrame) -> Observation | None:
    """Returns what counts while rows are written; clients of Connect have none before Spark 4.0."""
    if not is_connect(df):
        return Observation()
    try:
        module = importlib.import_module("pyspark.sql.connect.observation")
    except ModuleNotFoundError:
        return None
    return module.Observation()


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
    return pa.RecordBatch.from_arrays([*rows.columns, added], names=[*rows.schema.names, _COUNTS])


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
