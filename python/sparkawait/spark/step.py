# SPDX-License-Identifier: Apache-2.0
"""One micro-batch of one shard, whichever operator of Spark brings its rows and keeps its state.

Made on the driver, carried out on the task thread of an executor. `StateFunction` and
`StateProcessor` are what Spark calls; they say only where the state is and when to come again.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext, cloudpickle
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
from sparkawait._plan.plan import Chain
from sparkawait._worker.metrics import TaskMetrics, of_one_task
from sparkawait._worker.replies import write_to_standard_error
from sparkawait._worker.step import Bundle, Columns, Shard, StepEnd, count_rows, run_step
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.outcomes import CarryOver
from sparkawait.spark.connection import Connection
from sparkawait.spark.failures import in_micro_batch, told_to_spark
from sparkawait.spark.session import is_connect
from sparkawait.spark.shipment import Shipment

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession


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
        accumulators: Sequence[Accumulator[TaskMetrics] | None],
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
            accumulators: Where the metrics of each operator go.
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
        self._accumulators = tuple(accumulators)
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
        is_chain = len(self._chain.plans) > 1
        for plan, accumulator, counts in zip(
            self._chain.plans, self._accumulators, end.counts, strict=False
        ):
            _logger.info("%s: %s", plan.function_name, counts)
            if accumulator is not None:
                own = of_one_task(counts)
                shown = {"operators": {plan.function_name: own}} if is_chain else {}
                accumulator.add({**own, **shown})


def _check_version(version: int) -> None:
    if version != STATE_VERSION:
        msg = (
            f"the state of the query has version {version}, this sparkawait reads {STATE_VERSION};"
            " go on with the version that wrote it"
        )
        raise ConfigurationError(msg, ErrorKind.SNAPSHOT_VERSION_UNKNOWN)
