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

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructField, StructType

from sparkawait._checks import refuse, refuse_column
from sparkawait._plan.plan import Plan
from sparkawait._worker.step import kinds_of, pack, unpack
from sparkawait.outcomes import CarryOver, Vehicle
from sparkawait.spark.draining import end_by_themselves
from sparkawait.spark.partition import Carry, Made, renamed, with_types
from sparkawait.spark.schemas import to_arrow
from sparkawait.spark.shipment import Shipment
from sparkawait.spark.step import BATCH, NUMBERS, Shards, Step, shard_keys
from sparkawait.spark.vehicle import check_default_vehicle, observed_as, stepped_by

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_logger = logging.getLogger("sparkawait")
_HASH = "__sparkawait_hash"
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
    columns = kinds_of(
        field.with_name(name)
        for field, name in zip(to_arrow(source.schema, made.zone), known, strict=False)
    )
    shards, is_keyed = Shards.of(source.sparkSession), bool(carry.by)
    if is_keyed:
        by = [f"`{source.columns[known.index(column)]}`" for column in carry.by]
        source = source.withColumn(_HASH, F.hash(*map(F.col, by)))
    pack_rows = Pack(shards, names, carry.carry_over.vehicle, is_keyed=is_keyed)
    packed = source.mapInArrow(pack_rows, _BUNDLE_TYPES)
    of_key = shards if is_keyed else None
    name = observed_as(source, made.chain.plans[0].function_name, carry.carry_over.name)
    step = Step(
        made.chain,
        carry.carry_over,
        columns,
        made.accumulators,
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
        for batch in batches:
            # The row of numbers has none.
            payloads = [it.as_buffer() for it in batch.column(0) if it.is_valid]
            for rows in unpack(payloads):
                yield with_types(rows, self._result_types)


def without_watermark(schema: StructType) -> StructType:
    """Returns `schema` without Spark's watermarks, which rows in flight would be behind."""
    fields: list[StructField] = []
    for field in schema.fields:
        metadata = {name: it for name, it in field.metadata.items() if name != _WATERMARK}
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields)
