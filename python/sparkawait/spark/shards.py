# SPDX-License-Identifier: Apache-2.0
"""Over how many shards the rows of a stream are spread: as many as a shuffle of it has partitions.

That is ``spark.sql.shuffle.partitions`` as it is when the query starts for the first time; later
Spark takes it from the checkpoint, whatever the session says where the call is written. Spark tells
each task what holds for its micro-batch, so nothing depends on the session of the driver.

Made on the driver, asked on the task thread of an executor.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext

from sparkawait._plan.checks import refuse
from sparkawait.exceptions import ErrorKind
from sparkawait.spark.metrics import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Shards", "shard_keys"]

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
            msg = (
                f"`carry_over` runs a task for each partition of a shuffle, and {_PARTITIONS} is"
                f" {text!r}; set it to the number of cores before the first start of the query"
            )
            refuse(msg, ErrorKind.OPTION_INVALID)
        said = int(text)
        cores = said if is_connect(spark) else spark.sparkContext.defaultParallelism
        if said > _CORES_FACTOR * cores:
            _logger.warning(
                "`carry_over` runs a task for each of the %d partitions of %s in every"
                " micro-batch, on %d cores; set it to %d before the first start of the query, whose"
                " checkpoint keeps the number",
                said,
                _PARTITIONS,
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
