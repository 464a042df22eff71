# SPDX-License-Identifier: Apache-2.0
"""A step as ``applyInPandasWithState`` carries it out: on every Spark, once in a query.

Made on the driver, called on the task thread of an executor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparkawait.spark.shipment import Shipment
from sparkawait.spark.step import STATE_VERSION, Step

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StateFunction"]


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
