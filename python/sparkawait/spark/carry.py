# SPDX-License-Identifier: Apache-2.0
"""A wait function over a stream whose rows outlive their micro-batch.

```text
  rows --mapInArrow--> bundles --groupBy(shard)--> one step of each shard --mapInArrow--> rows
          Pack         by hash     one key each,     Step, by the vehicle          Unpack
                                   none empty
```

A shard is a partition of the shuffle, and has one key: the smallest integers whose hash names each
of the partitions. How many there are is known where a micro-batch runs (`Shards`). Spark keeps one
value for each shard, whose meaning it does not know. To be called on the driver; what it makes is
called on the task thread of an executor.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast
from weakref import WeakSet, ref

import pyarrow as pa
import pyspark
from pyspark import SparkContext, TaskContext
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructField, StructType

from sparkawait._checks import Duration, optional_duration, refuse, refuse_column
from sparkawait._plan.plan import Plan
from sparkawait._values.results import unlike
from sparkawait._worker.forms import forms_of, viewed
from sparkawait._worker.step import pack, unpack
from sparkawait.exceptions import ErrorKind
from sparkawait.outcomes import CarryOver, Vehicle
from sparkawait.spark.schemas import to_arrow
from sparkawait.spark.session import is_connect
from sparkawait.spark.shipment import Shipment
from sparkawait.spark.step import (
    BATCH,
    NUMBERS,
    OBSERVED,
    Shards,
    Step,
    check_default_vehicle,
    observed_as,
    observed_in,
    shard_keys,
    stepped_by,
)
from sparkawait.spark.tasks import Carry, Made, renamed, with_types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["drain", "end_by_themselves"]

# -- how a query with `carry_over` ends with nothing in flight
#
# ```text
#   drain(query)        no input from now on    +-> micro-batches without rows, until one leaves
#   availableNow        all input was taken     |   nothing in the state -> the query is stopped
# ```
#
# Spark itself never ends a query whose operators wait for the clock, as those do that keep rows:
# after all input it runs one micro-batch without rows after the other (`shouldRunAnotherBatch`).
# What
# is in the state is known from what a micro-batch has observed.
#
# To be used on the driver, from any thread.


_LOOK_SECONDS = 0.1
"""How often it is looked whether a micro-batch has ended."""
_IN_STATE = ("carried", "held")
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_NO_EMPTY_BATCHES = (
    f"`drain` needs micro-batches without new rows, and {_EMPTY_BATCHES} is false; set it to true,"
    " as it is by default, before the query starts"
)
_NOTHING_OWN = "`drain` ends queries that have a call with `carry_over`, and this one has none"

_logger = logging.getLogger("sparkawait")


def drain(query: StreamingQuery, timeout: Duration | None = None) -> bool:
    """Ends a query with `CarryOver` when nothing of it is in flight any more.

    The query takes no further row from its source. Micro-batches without new rows emit what is in
    flight or completed, and then the query is stopped. No call is lost, and none is made again when
    the query is started the next time, in whichever form: it goes on with the rows behind.

    Over Spark Connect the source cannot be let go. The query ends behind the first micro-batch
    that brings no new row and leaves nothing in flight: a query that is never idle needs
    ``availableNow``.

    May be called in a signal handler.

    Args:
        query: A query that runs, or has ended.
        timeout: How long to wait: a str with unit, a timedelta or seconds. Then the query is
            stopped all the same: no row is lost, and what is in flight is called again when the
            query goes on in another application. ``None`` waits until nothing is in flight.

    Returns:
        Whether the state of the query has no row. It is not known to have none, and the query is
        stopped, if no micro-batch has run since the query was started.

    Raises:
        StreamingQueryException: If the query fails, or had failed.
        ConfigurationError: If the query has no call with `CarryOver`, or Spark does not tell what
            is in flight.

    Examples:
        >>> stop = lambda *_: sa.drain(query, timeout="25s")  # doctest: +SKIP
        >>> signal.signal(signal.SIGTERM, stop)  # doctest: +SKIP
    """
    if not hasattr(query, "processAllAvailable"):
        msg = f"`query` must be a StreamingQuery of Spark, got `{type(query).__name__}`"
        refuse(msg, ErrorKind.INPUT_INVALID)
    seconds = optional_duration(timeout, "timeout")
    deadline = None if seconds is None else time.monotonic() + seconds

    def wait() -> bool:
        watched = _OverConnect(query) if is_connect(query) else _InThisProcess(query, lets_go=True)
        watched.check()
        return _drained(query, watched, deadline)

    return _in_a_thread(wait)


def _in_a_thread(wait: Callable[[], bool]) -> bool:
    """Waits in a thread of its own: a signal handler runs where somebody else talks to Spark."""
    came: list[bool] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            came.append(wait())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, name="sparkawait-drain", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return came[0]


def _drained(query: StreamingQuery, watched: _Watched, deadline: float | None) -> bool:
    """Waits until nothing is in flight, and stops the query; returns whether nothing is."""
    end: _End | None = None
    # Fractions of a second are fine, whatever PySpark's types say.
    while not query.awaitTermination(cast("int", _LOOK_SECONDS)):
        watched.let_go()
        end = watched.last_end() or end
        is_idle = not watched.has_run() and _is_waiting_for_rows(query)
        is_late = deadline is not None and time.monotonic() >= deadline
        is_drained = end is not None and end.is_behind_all and end.is_empty
        if is_drained or is_idle or is_late:
            query.stop()
            return is_drained
    end = watched.last_end() or end
    return end is not None and end.is_behind_all and end.is_empty


@dataclass(frozen=True)
class _End:
    """How a micro-batch has ended.

    Attributes:
        is_empty: Whether nothing is in flight or held.
        is_behind_all: Whether no micro-batch behind it brings rows.
    """

    is_empty: bool
    is_behind_all: bool


class _Watched(Protocol):
    """A query, as the driver sees it."""

    def check(self) -> None:
        """Checks that the query can be drained, as far as that is known before."""

    def let_go(self) -> None:
        """Takes no further rows from the source, if that can be. Idempotent."""

    def last_end(self) -> _End | None:
        """Returns how the last micro-batch has ended, as far as that is known."""
        ...

    def has_run(self) -> bool:
        """Tells whether a micro-batch has begun since the query was started."""
        ...


def _is_waiting_for_rows(query: StreamingQuery) -> bool:
    return str(query.status["message"]).startswith("Waiting for data")


def _is_without_rows(progress: dict[str, Any]) -> bool:
    """Tells whether a micro-batch had no new rows."""
    return all(source["startOffset"] == source["endOffset"] for source in progress["sources"])


def _as_dict(progress: Any) -> dict[str, Any]:
    """Returns the progress of a micro-batch in the form that it has in JSON."""
    if isinstance(progress, dict):
        return cast("dict[str, Any]", progress)
    return cast("dict[str, Any]", json.loads(progress.json))


class _OverConnect:
    """What a server tells of a query."""

    def __init__(self, query: StreamingQuery) -> None:
        if pyspark.__version__.startswith("3."):
            refuse(
                "`drain` over Spark Connect needs Spark 4.0: before that a micro-batch without new"
                " rows does not tell what is in flight"
            )
        self._query = query

    def check(self) -> None:
        """Checks nothing: what the query calls is known when it tells numbers."""

    def let_go(self) -> None:
        """Does nothing: no request of Spark Connect does that."""

    def last_end(self) -> _End | None:
        progress = self._query.lastProgress
        if progress is None:
            return None
        told = _as_dict(progress)
        # Names come beside the numbers in some versions only, and their order is the same in all.
        observed = told.get("observedMetrics") or {}
        own = [row for name, row in observed.items() if _is_own(name)]
        if not own:
            refuse(_NOTHING_OWN)
        return _End(all(_is_empty(row) for row in own), _is_without_rows(told))

    def has_run(self) -> bool:
        return self._query.lastProgress is not None


def _is_empty(row: Any) -> bool:
    told: dict[str, Any] = row if isinstance(row, dict) else row.asDict()
    numbers = told.get("values") or list(told.values())
    return not any(numbers[NUMBERS.index(name)] for name in _IN_STATE)


def _is_own(name: str) -> bool:
    return name.partition("_")[0] == OBSERVED


class _InThisProcess:
    """A query of a classic session, whose JVM is asked.

    The plan of a micro-batch has the numbers, also before Spark 4.0, where the progress has none if
    there are no new rows. It is read when the micro-batch has ended.
    """

    def __init__(self, query: StreamingQuery, *, lets_go: bool) -> None:
        self._query = query
        self._run = cast("Any", query)._jsq.streamingQuery()  # noqa: SLF001 - nothing else tells
        self._lets_go = lets_go
        self._own = [it for it in observed_in(self._run.analyzedPlan()) if _is_own(it)]
        self._plan: Any = None
        self._before = -1
        """The last micro-batch that may be followed by one with rows."""

    @property
    def is_available_now(self) -> bool:
        """Whether the query is to end when it has read all that was there."""
        return bool(self._own) and self._run.trigger().toString().startswith("AvailableNow")

    def check(self) -> None:
        """Checks that the query can be drained.

        Raises:
            ConfigurationError: If it cannot.
        """
        if not self._own:
            refuse(_NOTHING_OWN)
        # What the session said when the query started.
        told = self._run.lastExecution() or self._run
        if told.sparkSession().conf().get(_EMPTY_BATCHES) == "false":
            refuse(_NO_EMPTY_BATCHES)

    def let_go(self) -> None:
        # What Spark asks for new rows in each micro-batch; it is made when the query starts.
        sources = self._run.uniqueSources()
        if not self._lets_go or sources.isEmpty():
            return
        getattr(self._run, "uniqueSources_$eq")(sources.empty())
        # One that is made at this moment may still have some.
        plan = self._run.lastExecution()
        self._before = -1 if plan is None else plan.currentBatchId()

    def last_end(self) -> _End | None:
        if self._plan is None:
            self._plan = self._run.lastExecution()
        progress = self._query.lastProgress
        if self._plan is None or progress is None:
            return None
        plan, number = self._plan, self._plan.currentBatchId()
        if _as_dict(progress)["batchId"] < number:
            return None
        # The next one is looked at from its beginning.
        self._plan = self._run.lastExecution()
        is_empty = self._is_empty(plan.observedMetrics())
        if self._lets_go or not is_empty:
            return _End(is_empty, number > self._before)
        told = (_as_dict(it) for it in self._query.recentProgress)
        return _End(is_empty, any(it["batchId"] == number and _is_without_rows(it) for it in told))

    def _is_empty(self, observed: Any) -> bool:
        rows = [observed.apply(name) for name in self._own if observed.contains(name)]
        places = [NUMBERS.index(name) for name in _IN_STATE]
        return not any(row.getLong(place) for row in rows for place in places)

    def has_run(self) -> bool:
        return self._run.lastExecution() is not None


# -- a query with ``availableNow`` ends when it has taken all rows and none is in flight.
#
# Spark tells of a query that starts, in the thread that starts it. A thread for each one that is
# meant waits from then on.

_listening: WeakSet[SparkSession] = WeakSet()


def end_by_themselves(spark: SparkSession) -> None:
    """Lets queries of a session end that read all that is there, once nothing of them is in flight.

    Over Spark Connect nobody tells how a query is triggered: `drain` ends it.
    """
    if is_connect(spark) or spark in _listening:
        return
    _listening.add(spark)
    listener = cast("Any", _Listener(_Starts(spark)))
    try:
        spark.streams.addListener(listener)
    except Exception as error:  # noqa: BLE001 - platforms that hide the JVM raise what they like
        _logger.info("queries with availableNow end by `sparkawait.drain` alone: %s", error)
        return
    # Spark would write that nobody listens any more when it tells how the last query has ended.
    atexit.register(_stop_listening, ref(spark), listener)


def _stop_listening(session: ref[SparkSession], listener: Any) -> None:
    spark = session()
    with contextlib.suppress(Exception):
        if spark is not None:
            spark.streams.removeListener(listener)


class _Starts:
    """Waits for the end of queries that start. PySpark's own class reads all that Spark tells."""

    class Java:
        """What Spark calls."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, spark: SparkSession) -> None:
        self._spark = ref(spark)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        spark = self._spark()
        query = None if spark is None else spark.streams.get(str(event.id()))
        if query is None:
            return
        watched = _InThisProcess(query, lets_go=False)
        if watched.is_available_now:
            name = "sparkawait-available-now"
            threading.Thread(target=_end, args=(query, watched), name=name, daemon=True).start()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


class _Listener:
    """What PySpark takes for a listener."""

    def __init__(self, told: _Starts) -> None:
        self._told = told

    @cached_property
    def _jlistener(self) -> Any:
        jvm: Any = vars(SparkContext)["_jvm"]  # as in PySpark's own
        return jvm.PythonStreamingQueryListenerWrapper(self._told)


def _end(query: StreamingQuery, watched: _Watched) -> None:
    try:
        _drained(query, watched, None)
    except Exception as error:  # noqa: BLE001 - who started the query is told, too
        _logger.debug("a query with availableNow is left to Spark: %s", error)


# -- the query


_HASH = "__sparkawait_hash"
"""How the column behind those of the rows begins. Their names may be any: see `unlike`."""
_BUNDLE_TYPES = "shard int, part int, seq bigint, rows bigint, payload binary"
_WATERMARK = "spark.watermarkDelayMs"


def check_carry_over(df: DataFrame, plan: Plan, carry_over: CarryOver) -> None:
    """Checks that rows of `df` can outlive their micro-batch.

    Raises:
        ConfigurationError: If `df` is not a stream, or the call does not go with it.
    """
    if not df.isStreaming:
        refuse(
            "`carry_over` is for streaming DataFrames; a batch query ends when all rows have left,"
            " so leave it out"
        )
    if plan.options.watermark is not None:
        refuse(
            "`watermark` orders rows within one task, and `carry_over` keeps rows beyond it; leave"
            " one of them out, or declare Spark's withWatermark behind the call"
        )
    if plan.mode == "ordered" and carry_over.order_by is None:
        refuse(
            "ordered_wait with `carry_over` needs to know whose rows keep their order:"
            " CarryOver(order_by='partition') for Kafka's, or another column; or use unordered_wait"
        )
    if plan.mode != "ordered" and carry_over.order_by is not None:
        instead = "its `key` says it" if plan.mode == "key_ordered" else "it keeps no order"
        refuse(f"`order_by` belongs to ordered_wait, got it for {plan.mode}_wait: {instead}")
    if carry_over.patience == 0:
        _logger.warning(
            "`linger` of CarryOver is zero, so nearly every row of `%s` leaves one trigger later"
            " than it could; leave it out, or set it to what most calls take",
            plan.function_name,
        )
    for option in ("order_by", "name_rows_by"):
        for column in getattr(carry_over, option) or ():
            if column not in df.columns:
                refuse_column(df.columns, column, option)


def check_same(carry: Carry | None, carry_over: CarryOver | None) -> None:
    """Checks what a further call of a chain says.

    Raises:
        ConfigurationError: If it says something else than the first one.
    """
    if carry_over is not None and (carry is None or carry.carry_over != carry_over):
        refuse("the first call of a chain sets `carry_over`; leave it out of the others")


def carry_of(plan: Plan, carry_over: CarryOver) -> Carry:
    """Returns what the first call of a task needs."""
    by = plan.key if plan.mode == "key_ordered" else carry_over.order_by
    return Carry(carry_over, tuple(by or ()))


def carried(
    carry: Carry,
    source: DataFrame,
    names: Sequence[str] | None,
    made: Made,
) -> DataFrame:
    """Returns the rows that calls bring for `source`, some of them in a later micro-batch.

    Args:
        carry: How they outlive theirs.
        source: The input.
        names: Names to give to its columns; ``None`` if they have the right ones.
        made: The calls.
    """
    end_by_themselves(source.sparkSession)
    known = source.columns if names is None else list(names)
    columns = forms_of(
        field.with_name(name)
        for field, name in zip(to_arrow(source.schema, made.zone), known, strict=False)
    )
    shards, is_keyed = Shards.of(source.sparkSession), bool(carry.by)
    if is_keyed:
        by = [f"`{source.columns[known.index(column)]}`" for column in carry.by]
        source = source.withColumn(unlike(_HASH, source.columns), F.hash(*map(F.col, by)))
    pack_rows = Pack(shards, names, carry.carry_over.vehicle, is_keyed=is_keyed)
    packed = source.mapInArrow(pack_rows, _BUNDLE_TYPES)
    of_key = shards if is_keyed else None
    name = observed_as(source, made.chain.plans[0].function_name, carry.carry_over.name)
    step = Step(
        made.chain,
        carry.carry_over,
        columns,
        made.reports,
        of_key,
        name=name,
        by=carry.by,
    )
    stepped = stepped_by(carry.carry_over.vehicle, packed.groupBy("shard"), step)
    observed = stepped.observe(
        name,
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in NUMBERS),
        F.max("oldest").alias("oldest"),
        _accounts().alias("accounts"),
    )
    unpacked = Unpack(made.result_types)
    return observed.select("payload").mapInArrow(unpacked, without_watermark(made.schema))


def _accounts() -> Column:
    """Tells whether each row that came to the steps has left or is kept, as far as is known.

    A step compares what came to it. Of what leaves it, Spark adds up the rows of the bundles, and
    compares them with what the tasks have told.
    """
    return F.expr(
        "coalesce(bool_and(accounts), true) and coalesce(sum(`rows`), 0) = coalesce(sum(told), 0)"
    )


class Pack(Shipment):
    """Makes bundles of rows; given to ``mapInArrow``."""

    def __init__(
        self,
        shards: Shards,
        names: Sequence[str] | None,
        vehicle: Vehicle | None,
        *,
        is_keyed: bool,
    ) -> None:
        """Starts nothing: this is the driver."""
        self.__name__ = "pack"
        self._shards = shards
        self._vehicle = vehicle
        self._names = None if names is None else list(names)
        self._is_keyed = is_keyed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the bundles of a partition."""
        if self._vehicle != "transform_with_state":
            # Workers may have other packages than the driver.
            check_default_vehicle(pyspark.__version__, pa.__version__)
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        turn = 0 if context is None else int(context.getLocalProperty(BATCH) or 0)
        if self._names is not None:
            names = [*self._names, *([_HASH] if self._is_keyed else [])]
            batches = (self._renamed(batch, names) for batch in batches)
        return pack(
            batches,
            shard_keys(self._shards.count()),
            partition=partition,
            turn=turn,
            is_keyed=self._is_keyed,
        )

    def _renamed(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        if self._is_keyed:
            columns = [*batch.columns[: len(names) - 1], batch.columns[-1]]
            return pa.RecordBatch.from_arrays(columns, names=list(names))
        return renamed(batch, names)


class Unpack(Shipment):
    """Makes rows of bundles; given to ``mapInArrow``."""

    def __init__(self, result_types: Mapping[str, pa.DataType]) -> None:
        """Starts nothing: this is the driver."""
        self.__name__ = "unpack"
        self._result_types = dict(result_types)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition."""
        schema: pa.Schema | None = None
        for batch in batches:
            # The row of numbers has none.
            payloads = [it.as_buffer() for it in batch.column(0) if it.is_valid]
            for rows in unpack(payloads):
                # Spark takes one schema, and rows of several shards may show several time zones.
                schema = rows.schema if schema is None else schema
                yield with_types(viewed(rows, schema), self._result_types)


def without_watermark(schema: StructType) -> StructType:
    """Returns `schema` without Spark's watermarks, which rows in flight would be behind."""
    fields: list[StructField] = []
    for field in schema.fields:
        metadata = {name: it for name, it in field.metadata.items() if name != _WATERMARK}
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields)
