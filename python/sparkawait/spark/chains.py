# SPDX-License-Identifier: Apache-2.0
"""What a wait function returned, as the next one of a chain finds it.

A DataFrame says nothing of how it was made that Spark Connect would tell, too; so the step is kept
with the object that the user got. What is made of that, by ``select`` say, is another object and
has none. To be called on the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkawait._plan.chain import Chain
from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkawait.spark.carry import CarryPlan
    from sparkawait.spark.metrics import TaskMetrics

__all__ = ["Step", "remember", "step_of"]

_ATTRIBUTE = "_sparkawait_step"


@dataclass(frozen=True)
class Step:
    """The operators whose output a DataFrame is, and what they get.

    Attributes:
        source: The input of the first operator, with the hidden columns of all behind its own.
        chain: The calls.
        accumulators: Where the metrics of each operator go.
        schema: What the last operator puts out.
        zone: The time zone of the session, which its types have.
        carry: How rows outlive their micro-batch, if they do.
    """

    source: DataFrame
    chain: Chain
    accumulators: tuple[Accumulator[TaskMetrics] | None, ...]
    schema: StructType
    zone: str
    carry: CarryPlan | None = None


def remember(df: DataFrame, step: Step) -> DataFrame:
    """Returns `df`, which now knows how it was made."""
    vars(df)[_ATTRIBUTE] = step
    return df


def step_of(df: DataFrame, zone: str) -> Step:
    """Returns how `df` was made.

    Args:
        df: What the user gave.
        zone: The time zone that the session has now.

    Raises:
        ConfigurationError: If it is not what a wait function returned, or the session's time zone
            was changed since then.
    """
    step: Any = vars(df).get(_ATTRIBUTE)
    if not isinstance(step, Step):
        msg = (
            "`chain` needs the DataFrame that a wait function returned, untouched; this one was"
            " made of it by something else, or of something else. Leave `chain` out, or select and"
            " filter after the last call"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    if step.zone != zone:
        msg = (
            f"`chain` needs one session time zone for all calls, got {step.zone} and then {zone};"
            " set it before the first of them"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    return step
