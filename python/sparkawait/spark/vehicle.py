# SPDX-License-Identifier: Apache-2.0
"""Which operator of Spark carries out steps, and what it needs of a session.

To be called on the driver, from any thread.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark import cloudpickle
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql.types import StructType

from sparkawait._checks import refuse
from sparkawait._plan.plan import Plan, numbered
from sparkawait.exceptions import ErrorKind
from sparkawait.outcomes import CarryOver, Vehicle
from sparkawait.spark.session import is_connect
from sparkawait.spark.shipment import Shipment, by_value
from sparkawait.spark.step import STATE_TYPES, STATE_VERSION, STEP_TYPES, Step

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor


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
