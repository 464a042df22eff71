# SPDX-License-Identifier: Apache-2.0
"""Which operator of Spark carries out steps, and what it needs of a session.

To be called on the driver, from any thread.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import pyspark

from sparkawait._plan.checks import refuse
from sparkawait.exceptions import ErrorKind
from sparkawait.spark.metrics import is_connect
from sparkawait.spark.state_function import StateFunction
from sparkawait.spark.state_processor import StateProcessor
from sparkawait.spark.step import STATE_TYPES, STEP_TYPES, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, GroupedData, SparkSession

    from sparkawait.carry_over import Vehicle

__all__ = ["check_vehicle", "stepped_by", "way_to_a_second"]

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
