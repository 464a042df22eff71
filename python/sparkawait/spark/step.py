# SPDX-License-Identifier: Apache-2.0
"""One micro-batch of one shard, whichever operator of Spark brings its rows and keeps its state.

Made on the driver, carried out on the task thread of an executor. `StateFunction` and
`StateProcessor` are what Spark calls; they say only where the state is and when to come again.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from sparkawait._checks import refuse
from sparkawait._plan.plan import Chain, Plan, numbered
from sparkawait._worker.forms import Columns
from sparkawait._worker.metrics import metrics_of_chain
from sparkawait._worker.replies import write_to_standard_error
from sparkawait._worker.step import Bundle, Shard, StepEnd, count_rows, run_step
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.outcomes import CarryOver, Vehicle
from sparkawait.spark.reports import Reports
from sparkawait.spark.session import is_connect
from sparkawait.spark.shipment import Shipment, by_value, in_micro_batch, told_to_spark
from sparkawait.spark.tasks import Connection

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

# -- over how many shards the rows of a stream are spread: as many as a shuffle of it has
# partitions.
#
# That is ``spark.sql.shuffle.partitions`` as it is when the query starts for the first time; later
# Spark takes it from the checkpoint, whatever the session says where the call is written. Spark
# tells each task what holds for its micro-batch, so nothing depends on the session of the driver.
#
# Made on the driver, asked on the task thread of an executor.

_PARTITIONS = "spark.sql.shuffle.partitions"
_OF_STATE = "spark.sql.streaming.internal.stateStore.partitions"
"""Where Spark has it since SPARK-53942, and the other name is of shuffles without state."""
_CORES_FACTOR = 2

_logger = logging.getLogger("sparkawait")


@dataclass(frozen=True)
class Shards:
    """The shards of a query.

    Attributes:
        said: What the session says where the call is written; holds if Spark tells a task nothing,
            as in an action on the RDD of a micro-batch, from a thread of the user.
    """

    said: int

    @classmethod
    def of(cls, spark: SparkSession) -> Shards:
        """Returns those of a query that is written now, and warns if they are many.

        Raises:
            ConfigurationError: If the session has no number of them.
        """
        text = str(spark.conf.get(_PARTITIONS) or "")
        if not text.isdecimal() or int(text) == 0:
            refuse(
                f"`carry_over` runs a task for each partition of a shuffle, and {_PARTITIONS} is"
                f" {text!r}; set it to the number of cores before the first start of the query"
            )
        said = int(text)
        cores = said if is_connect(spark) else spark.sparkContext.defaultParallelism
        if said > _CORES_FACTOR * cores:
            # What the checkpoint of a query says is not known where its call is written.
            _logger.warning(
                "%s is %d on %d cores, and `carry_over` runs a task for each of them in every"
                " micro-batch; set it to %d before a query starts for the first time. A query that"
                " has a checkpoint keeps the number of its first start",
                _PARTITIONS,
                said,
                cores,
                cores,
            )
        return cls(said)

    def count(self) -> int:
        """Returns how many there are, on the task thread of an executor."""
        context = TaskContext.get()
        for name in (_OF_STATE, _PARTITIONS):
            told = None if context is None else context.getLocalProperty(name)
            if told is not None and told.isdecimal():
                return int(told)
        return self.said


@functools.cache
def shard_keys(shards: int) -> tuple[int, ...]:
    """Returns an integer for each partition of a shuffle, which Spark sends to it.

    They are the smallest ones, beginning with 0.
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < shards:
        found.setdefault(_hash_of(number) % shards, number)
        number += 1
    return tuple(found[index] for index in range(shards))


def _hash_of(number: int) -> int:
    """Returns what Spark's ``hash`` makes of an integer: Murmur3 with the seed 42."""
    mask = 0xFFFFFFFF

    def rotated(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & mask

    mixed = rotated((number & mask) * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    mixed = (rotated(42 ^ mixed, 13) * 5 + 0xE6546B64) & mask
    mixed ^= 4
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B & mask
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35 & mask
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


BATCH = "streaming.sql.batchId"
"""What Spark calls the number of the micro-batch of a task."""

STATE_VERSION = 1
STATE_TYPES = StructType(
    [StructField("version", IntegerType()), StructField("payload", BinaryType())]
)
"""What Spark keeps of a shard."""

NUMBERS = ("carried", "held", "adopted", "redone", "redone_total")
PROGRESS = (*NUMBERS, "oldest", "accounts")
"""What the progress of a query tells of a call, in this order."""
STEP_TYPES = StructType(
    [
        StructField("payload", BinaryType()),
        StructField("rows", LongType()),
        *(StructField(name, LongType()) for name in NUMBERS),
        StructField("oldest", DoubleType()),
        StructField("told", LongType()),
        StructField("accounts", BooleanType()),
    ]
)
"""What a step puts out: bundles of rows and how many are in each; and one row of numbers."""

_RUN = "spark.jobGroup.id"
_QUERY = "sql.streaming.queryId"


class Step(Shipment):
    """Carries out a micro-batch of a shard."""

    def __init__(
        self,
        chain: Chain,
        carry_over: CarryOver,
        columns: Columns,
        reports: Reports,
        shards: Shards | None,
        *,
        name: str,
        by: Sequence[str],
    ) -> None:
        """Starts nothing: this is the driver.

        Args:
            chain: The calls.
            carry_over: How rows outlive a step.
            columns: The columns of the rows.
            reports: How the driver learns of the calls.
            shards: Where rows of a key go; ``None``: to any.
            name: Tells it apart from other steps of a query, which has the same one in all runs.
            by: The columns of the key.
        """
        self.name = chain.name
        # A query may have several, of the same run, micro-batches and shards.
        self._own_name = name
        self._id = uuid.uuid4().hex
        # A restart goes on with the calls of the run before if it would call as that did. What is
        # pickled alike calls alike; what is not may do so, and is called for again.
        sealed = cloudpickle.dumps((chain, columns))
        self._calls = hashlib.sha256(sealed).hexdigest()
        self._chain = chain
        self._carry_over = carry_over
        self._columns = columns
        self._is_ordered = any(plan.mode != "unordered" for plan in chain.plans)
        self._reports = reports
        self._shards = shards
        self._by = ", ".join(f"`{name}`" for name in by)

    def run(
        self, key: Sequence[Any], state: Sequence[Any] | None, frames: Iterable[pd.DataFrame]
    ) -> StepEnd | None:
        """Returns what the rows of this micro-batch come to; ``None``: there is nothing to keep.

        Args:
            key: The key of the shard.
            state: What Spark has kept, of `STATE_TYPES`; ``None`` for a shard that is new.
            frames: The bundles that came.

        Raises:
            AsyncIOError: If a row fails the task, or the state cannot be read.
        """
        write_to_standard_error()
        before: bytes | None = None
        if state is not None:
            version, before = state
            _check_version(int(version))
        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty(BATCH)
        shard = Shard(
            key=int(key[0]),
            count=0 if self._shards is None else self._shards.count(),
            by=self._by,
            step=self._own_name,
            partition=0 if context is None else context.partitionId(),
            query=self._told(_QUERY) or self._id,
            calls=self._calls,
            run=self._told(_RUN),
            batch=None if batch is None else int(batch),
        )
        connection = Connection.of_this_worker()
        connection.end_behind_tasks()
        with connection.interrupted_by_hang_up(), told_to_spark(), in_micro_batch(shard.batch):
            return run_step(
                self._chain,
                self._carry_over,
                None if before is None else bytes(before),
                self._bundles(frames),
                columns=self._columns,
                shard=shard,
                is_broken_off=connection.has_hung_up,
            )

    @staticmethod
    def _told(name: str) -> str:
        context = TaskContext.get()
        return "" if context is None else context.getLocalProperty(name) or ""

    def rows(self, end: StepEnd) -> pd.DataFrame:
        """Returns what leaves in this micro-batch, and a row of numbers, which are reported."""
        import pandas as pd

        self._report(end)
        names = STEP_TYPES.names[2:]
        nothing = [None] * len(names)
        rows = [(payload, count_rows(payload), *nothing) for payload in end.outputs]
        numbers = (None, None, *(getattr(end, name) for name in names))
        # PySpark puts an empty frame of objects behind; with other types pandas 2 warns of it.
        return pd.DataFrame([*rows, numbers], columns=STEP_TYPES.names, dtype=object)

    def _bundles(self, frames: Iterable[pd.DataFrame]) -> Iterator[Bundle]:
        names = ("rows", "payload", "part", "seq")
        bundles = (
            bundle
            for frame in frames
            for bundle in zip(*(frame[name] for name in names), strict=True)
        )
        if self._is_ordered:
            # As they stood in each partition of the source, whatever the shuffle has made of it.
            bundles = iter(sorted(bundles, key=lambda bundle: bundle[2:]))
        return (Bundle(int(rows), payload) for rows, payload, _, _ in bundles)

    def _report(self, end: StepEnd) -> None:
        if not end.counts:
            return
        names = [plan.function_name for plan in self._chain.plans]
        for name, counts in zip(names, end.counts, strict=True):
            _logger.info("%s: %s", name, counts)
        report = self._reports.of_task(self._chain)
        if len(names) == 1:
            report.totals = dict(end.counts[0])
        else:
            operators = dict(zip(names, end.counts, strict=True))
            report.totals = {**metrics_of_chain(end.counts), "operators": operators}
        report.end("succeeded")


def _check_version(version: int) -> None:
    if version != STATE_VERSION:
        msg = (
            f"the state of the query has version {version}, this sparkawait reads {STATE_VERSION};"
            " go on with the version that wrote it"
        )
        raise ConfigurationError(msg, ErrorKind.SNAPSHOT_VERSION_UNKNOWN)


# -- which operator of Spark carries out steps, and what it needs of a session
#
# To be called on the driver, from any thread.


# -- what a query keeps state for and observes, as its plan says on the driver
#
# A classic session has the plan in the JVM; the client of Spark Connect has its own, which it sends
# as a whole. What is behind a name there, such as a view's, is known to the server only.

OBSERVED = "sparkawait"
"""What a query's progress calls the numbers of its rows in flight."""

_CLASSIC = "FlatMapGroupsInPandasWithState"
_CONNECT = "ApplyInPandasWithState"
_OBSERVING = "CollectMetrics"


def check_only(df: DataFrame, plan: Plan, carry_over: CarryOver) -> None:
    """Checks that nothing before a call with `carry_over` keeps state as it does.

    Raises:
        ConfigurationError: If `df` was made by ``applyInPandasWithState``, of another call or not,
            and the call would use it, too.
    """
    if carry_over.vehicle == "transform_with_state":
        return
    for name in functions_with_state(df):
        refuse(
            f"`carry_over` of `{plan.function_name}` comes behind `{name}`, and Spark admits one"
            " applyInPandasWithState in a query, which `carry_over` uses, too. Give the second"
            " of two calls chain=True, on what the first one returned, so that they share it; or"
            f" {way_to_a_second(df.sparkSession)}leave `carry_over` out; state of your own goes"
            " into transformWithState, or another query"
        )


def functions_with_state(df: DataFrame) -> list[str]:
    """Returns the names of the functions that `df` gives to ``applyInPandasWithState``, if any."""
    if is_connect(df.sparkSession):
        return [_function_here(node) for node in _nodes_here(df) if _is(node, _CONNECT)]
    nodes = _nodes_of_jvm(_analyzed(df))
    return [str(node.functionExpr().name()) for node in nodes if node.nodeName() == _CLASSIC]


def observed_as(df: DataFrame, function_name: str, name: str | None) -> str:
    """Returns what the progress calls the numbers of a call on `df`.

    Args:
        df: What comes before it.
        function_name: The function's.
        name: What the user has called it.

    Raises:
        ConfigurationError: If something before it is called as the user has said.
    """
    taken = set(_observed(df))
    if name is None:
        own = OBSERVED if OBSERVED not in taken else f"{OBSERVED}_{function_name}"
        return numbered(own, taken)
    own = f"{OBSERVED}_{name}"
    if own in taken:
        refuse(
            f"`name` of CarryOver is {name!r}, as that of a call before `{function_name}`, and the"
            " progress of a query has one of a name; give it another"
        )
    return own


def _observed(df: DataFrame) -> Iterator[str]:
    if is_connect(df.sparkSession):
        for node in _nodes_here(df):
            if _is(node, _OBSERVING):
                yield str(getattr(node, "_observation", None) or getattr(node, "_name", ""))
        return
    yield from observed_in(_analyzed(df))


def observed_in(plan: Any) -> Iterator[str]:
    """Yields what a plan of the JVM calls the numbers that it observes."""
    for node in _nodes_of_jvm(plan):
        if node.nodeName() == _OBSERVING:
            yield str(node.name())


def _is(node: Any, kind: str) -> bool:
    return type(node).__name__ == kind


def _function_here(node: Any) -> str:
    # Spark 3.5 calls it `_func`.
    function = getattr(node, "_function", None) or getattr(node, "_func", None)
    return str(getattr(function, "_function_name", _CONNECT))


def _analyzed(df: DataFrame) -> Any:
    jdf: Any = vars(df)["_jdf"]
    return jdf.queryExecution().analyzed()


def _nodes_of_jvm(plan: Any) -> Iterator[Any]:
    rest = [plan]
    while rest:
        node = rest.pop()
        yield node
        children = node.children()
        rest.extend(children.apply(index) for index in range(children.size()))


def _nodes_here(df: DataFrame) -> Iterator[Any]:
    """Yields the plan of the client and all below it, whichever attributes they are in."""
    from pyspark.sql.connect.plan import LogicalPlan

    plan: Any = vars(df).get("_plan")
    rest = [plan]
    while rest:
        node = rest.pop()
        if isinstance(node, LogicalPlan):
            yield node
            rest.extend(vars(node).values())
        elif isinstance(node, Sequence) and not isinstance(node, (str, bytes)):
            rest.extend(node)


_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""Where each Spark since 3.2 has it. Others have stores of their own with this word in them."""
_WORD = "RocksDB"
_SINCE = (4, 0)
_SINCE_CONNECT = (4, 1)


def stepped_by(vehicle: Vehicle | None, shards: GroupedData, step: Step) -> DataFrame:
    """Returns what a step puts out for the bundles of each shard."""
    if vehicle == "transform_with_state":
        # Which Spark 3.5 has not, and PySpark's types want a processor that is one already.
        transform: Any = shards.transformWithStateInPandas
        return transform(StateProcessor(step), STEP_TYPES, "Append", "ProcessingTime")
    return shards.applyInPandasWithState(
        StateFunction(step), STEP_TYPES, STATE_TYPES, "append", "ProcessingTimeTimeout"
    )


def check_vehicle(spark: SparkSession, vehicle: Vehicle | None) -> None:
    """Checks that the session and the driver have what a vehicle needs.

    Raises:
        ConfigurationError: If they have not.
    """
    if vehicle != "transform_with_state":
        # The Python of a server checks it when it runs the query.
        if not is_connect(spark):
            check_default_vehicle(pyspark.__version__, pa.__version__)
        return
    what = '`vehicle="transform_with_state"`'
    found = _too_old(spark)
    if found is not None:
        refuse(
            f"{what} needs Spark 4.0, over Spark Connect 4.1 on both sides; {found}. Leave"
            " `vehicle` out: a query then has one call with `carry_over`, or one chain of calls,"
            " and no applyInPandasWithState of its own"
        )
    store = str(spark.conf.get(_STORE))
    if _WORD not in store:
        refuse(
            f"{what} keeps rows in RocksDB, and {_STORE} is {store}; set it before the first start"
            f' of the query, since its checkpoint keeps the store: spark.conf.set("{_STORE}",'
            f' "{_ROCKS}")'
        )
    # The Python of a server finds out when it runs the query.
    problem = None if is_connect(spark) else _problem_of_protobuf()
    if problem is not None:
        msg = (
            f"{what} needs protobuf, of a version that this PySpark reads its messages with:"
            f" {problem}; run `pip install --upgrade protobuf`, on the executors too"
        )
        refuse(msg, ErrorKind.MODULE_MISSING)


_STRICT_PYARROW = 26
"""The first pyarrow whose ``RecordBatch.slice`` takes no float."""
_CURED = {(3, 5): None, (4, 0): 5, (4, 1): 4}
"""Of each line of Spark that gave floats to it: its first patch release that does not, if any."""


def problem_of_pyarrow(spark: str, pyarrow: str) -> str | None:
    """Returns why ``applyInPandasWithState`` fails with a pyarrow, and what to do, if it fails.

    Args:
        spark: The version of PySpark of the Python that runs it.
        pyarrow: The version of pyarrow there.
    """
    line, patch = _numbers(spark)
    if line not in _CURED or int(pyarrow.partition(".")[0]) < _STRICT_PYARROW:
        return None
    cured = _CURED[line]
    if cured is not None and patch >= cured:
        return None
    newer = "PySpark 4.1.4 or newer" if cured is None else f"PySpark {line[0]}.{line[1]}.{cured}"
    return (
        f"applyInPandasWithState of PySpark {spark} fails with pyarrow {pyarrow} when a shard gets"
        f" two batches of rows. Install {newer}, or 'pyarrow<{_STRICT_PYARROW}', on the driver and"
        " on the executors"
    )


def check_default_vehicle(spark: str, pyarrow: str) -> None:
    """Checks that the default vehicle runs on a PySpark with a pyarrow.

    Raises:
        ConfigurationError: If it does not.
    """
    problem = problem_of_pyarrow(spark, pyarrow)
    if problem is not None:
        refuse(f"`carry_over` cannot keep rows: {problem}", ErrorKind.VERSION_MISMATCH)


def _numbers(version: str) -> tuple[tuple[int, int], int]:
    """Returns the line of a version of Spark, and its patch release."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None:
        return (0, 0), 0
    major, minor, patch = (int(number or 0) for number in found.groups())
    return (major, minor), patch


def way_to_a_second(spark: SparkSession) -> str:
    """Returns what to do for a second operator with state in a query; empty on an old Spark."""
    if _too_old(spark) is not None:
        return ""
    store = "" if _WORD in str(spark.conf.get(_STORE)) else f" and set {_STORE} to {_ROCKS}"
    return (
        f'give this one CarryOver(vehicle="transform_with_state"){store}; a query may have several'
        "; or "
    )


def _too_old(spark: SparkSession) -> str | None:
    """Returns which version cannot run it, if one of them cannot."""
    since = _SINCE_CONNECT if is_connect(spark) else _SINCE
    for whose, version in (
        ("session is of Spark", spark.version),
        ("PySpark is", pyspark.__version__),
    ):
        line, _ = _numbers(version)
        if (0, 0) < line < since:
            return f"this {whose} {version}"
    return None


@functools.cache
def _problem_of_protobuf() -> str | None:
    """Returns what Spark would say of the protobuf of the driver."""
    try:
        import pyspark.sql.streaming.proto.StateMessage_pb2  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except Exception as error:  # noqa: BLE001 - protobuf has classes of its own
        return str(error)
    return None


# -- a step as ``applyInPandasWithState`` carries it out: on every Spark, once in a query.
#
# Made on the driver, called on the task thread of an executor.


class StateFunction(Shipment):
    """Carries out a step; given to ``applyInPandasWithState``."""

    def __init__(self, step: Step) -> None:
        """Starts nothing: this is the driver."""
        self.__name__ = step.name
        self._step = step

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        """Yields what leaves in this micro-batch, and a row of numbers."""
        before = state.get if state.exists else None
        end = self._step.run(key, before, () if state.hasTimedOut else frames)
        if end is None:
            return
        state.update((STATE_VERSION, end.state))
        if end.waits:
            # In the next micro-batch, whether rows come for this shard or not.
            state.setTimeoutDuration(1)
        yield self._step.rows(end)


# -- a step as ``transformWithStateInPandas`` carries it out: often in a query, since Spark 4.0.
#
# ```text
#   micro-batch of time t:  init   handleInputRows        handleExpiredTimer
#                                  if rows came:          if a timer has expired, and no rows
#                                  the step,              came: the step,
#                                  timer at t + 1         timer at t + 1
# ```
#
# A timer that expires in a micro-batch with rows is handled behind them: by then the step is done.
# Spark deletes it afterwards. No timer is registered for the time of an earlier micro-batch: since
# Spark 4.2 it never expires.
#
# Made on the driver. Spark carries out ``init`` on the driver once, in a Python of the workers,
# which needs no sparkawait for it; all else is called on the task thread of an executor.


class StateProcessor:
    """Carries out a step; given to ``transformWithStateInPandas``.

    Becomes a ``StatefulProcessor`` where it is unpickled.
    """

    def __init__(self, step: Step) -> None:
        """Starts nothing: this is the driver."""
        self._step = step

    def __reduce__(self) -> tuple[Any, ...]:
        """Seals the step, which is opened when its first micro-batch comes."""
        return _OPENER, (STATE_TYPES, STATE_VERSION, cloudpickle.dumps(self._step))


def _open(types: StructType, version: int, sealed: bytes) -> StatefulProcessor:
    """Returns what Spark calls, where there may be no sparkawait."""
    import pickle
    import sys

    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    try:
        import pyspark.sql.streaming.proto.StateMessage_pb2  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except Exception as error:
        message = (
            f"Spark's Python workers run {sys.executable}, whose protobuf is missing or too old for"
            f" transformWithStateInPandas ({error}). Install protobuf there, or leave"
            ' vehicle="transform_with_state" out'
        )
        raise ImportError(message) from error

    class Processor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.state = handle.getValueState("shard", types)
            self.have_run: set[Any] = set()

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's signature
            yield from self.run(key, rows, timerValues)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: ARG002, N802, N803 - Spark's signature
            # A partition may have several shards.
            if key not in self.have_run:
                yield from self.run(key, (), timerValues)

        def run(self, key: Any, rows: Any, now: Any) -> Any:
            self.have_run.add(key)
            step = pickle.loads(sealed)  # noqa: S301 - Spark itself sends pickles
            end = step.run(key, self.state.get(), rows)
            if end is None:
                return
            self.state.update((version, end.state))
            if end.waits:
                # In the next micro-batch, whether rows come for this shard or not.
                self.handle.registerTimer(now.getCurrentProcessingTimeInMs() + 1)
            yield step.rows(end)

    return Processor()


_OPENER = by_value(_open)
