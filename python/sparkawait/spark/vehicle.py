# SPDX-License-Identifier: Apache-2.0
"""Which operator of Spark carries out steps, and what it needs of a session.

To be called on the driver, from any thread.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from sparkawait._plan.checks import refuse
from sparkawait.exceptions import ErrorKind
from sparkawait.spark.metrics import is_connect
from sparkawait.spark.shipment import Shipment, by_value
from sparkawait.spark.step import STATE_TYPES, STATE_VERSION, STEP_TYPES, Step

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, GroupedData, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from sparkawait._emission import Vehicle


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
    """Checks that the session has what a vehicle needs.

    Raises:
        ConfigurationError: If it has not.
    """
    if vehicle != "transform_with_state":
        return
    what = '`vehicle="transform_with_state"`'
    found = _too_old(spark)
    if found is not None:
        msg = (
            f"{what} needs Spark 4.0, over Spark Connect 4.1 on both sides; {found}. Leave"
            " `vehicle` out: a query then has one call with `carry_over`, or one chain of calls,"
            " and no applyInPandasWithState of its own"
        )
        refuse(msg, ErrorKind.OPTION_INVALID)
    store = str(spark.conf.get(_STORE))
    if _WORD not in store:
        msg = (
            f"{what} keeps rows in RocksDB, and {_STORE} is {store}; set it before the first start"
            f' of the query, since its checkpoint keeps the store: spark.conf.set("{_STORE}",'
            f' "{_ROCKS}")'
        )
        refuse(msg, ErrorKind.OPTION_INVALID)
    # The Python of a server says so itself, when it runs the query.
    problem = None if is_connect(spark) else _problem_of_protobuf()
    if problem is not None:
        msg = (
            f"{what} needs protobuf, of a version that this PySpark reads its messages with:"
            f" {problem}; run `pip install --upgrade protobuf`, on the executors too"
        )
        refuse(msg, ErrorKind.MODULE_MISSING)


def way_to_a_second(spark: SparkSession) -> str:
    """Returns what to do for a second operator with state in a query; empty on an old Spark."""
    if _too_old(spark) is not None:
        return ""
    store = "" if _WORD in str(spark.conf.get(_STORE)) else f" and set {_STORE} to {_ROCKS}"
    return (
        f'give this one CarryOver(vehicle="transform_with_state"){store}, of which a query may have'
        " several; or "
    )


def _too_old(spark: SparkSession) -> str | None:
    """Returns which version cannot run it, if one of them cannot."""
    since = _SINCE_CONNECT if is_connect(spark) else _SINCE
    for whose, version in (
        ("session is of Spark", spark.version),
        ("PySpark is", pyspark.__version__),
    ):
        number = re.match(r"(\d+)\.(\d+)", version)
        if number is not None and tuple(map(int, number.groups())) < since:
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
# None is deleted, since Spark does that when it has been handled, and none is registered for a time
# that a micro-batch had: since Spark 4.2 such a one never expires.
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
