# SPDX-License-Identifier: Apache-2.0
"""A step as ``transformWithStateInPandas`` carries it out: often in a query, since Spark 4.0.

```text
  micro-batch of time t:  init   handleInputRows        handleExpiredTimer
                                 if rows came:          if a timer has expired, and no rows
                                 the step,              came: the step,
                                 timer at t + 1         timer at t + 1
```

A timer that expires in a micro-batch with rows is handled behind them: by then the step is done.
None is deleted, since Spark does that when it has been handled, and none is registered for a time
that a micro-batch had: since Spark 4.2 such a one never expires.

Made on the driver. Spark carries out ``init`` on the driver once, in a Python of the workers, which
needs no sparkawait for it; all else is called on the task thread of an executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.types import StructType

from sparkawait.spark.shipment import by_value
from sparkawait.spark.step import STATE_TYPES, STATE_VERSION, Step

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

__all__ = ["StateProcessor"]


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
