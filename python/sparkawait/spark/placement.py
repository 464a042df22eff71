# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Where the tasks of a job run: what limits that they share have to know of the cluster.

To be used on the driver, from any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pyarrow as pa
from pyspark.sql.types import DayTimeIntervalType, StructType

from sparkawait._plan.arrow_types import fields_within
from sparkawait._plan.checks import refuse, warn_once
from sparkawait._plan.plan import Plan
from sparkawait._plan.resolve import tell_of_threads
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.native_function import NativeFunction
from sparkawait.spark.schemas import Times, columns_for_spark, types_within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_arguments", "check_columns", "cores_of", "executor_cores_of", "placed"]


_PlanT = TypeVar("_PlanT", bound=Plan)

# Of local[N, F] the second number is how often a task may fail.
_LOCAL = re.compile(r"local\[(?P<cores>\*|\d+)(?:\s*,.*)?\]|local")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<workers>\d+)\s*,\s*(?P<cores>\d+)\s*,.*\]")


def placed(
    plan: _PlanT,
    spark: SparkSession | None,
    times: Times,
    *,
    is_streaming: bool = False,
    case_sensitive: bool = True,
) -> _PlanT:
    """Returns the plan as its tasks run it: with the types of a session, and where they run.

    Args:
        plan: The call.
        spark: The session.
        times: What it takes times for.
        is_streaming: Whether the tasks are those of micro-batches.
        case_sensitive: Whether the session tells names apart that differ in case only.

    Raises:
        ConfigurationError: If a returned column has a type that Spark does not know, or a limit of
            the job must be split and the number of cores is unknown.
    """

    def told(one: Plan) -> dict[str, Any]:
        tell_of_threads(one, lambda: _known_cores(spark))
        cluster = _cluster(one, spark, is_streaming=is_streaming)
        return {"declared_schema": columns_for_spark(one, times), **cluster}

    return plan.at(told, case_sensitive=case_sensitive)


def _cluster(plan: Plan, spark: SparkSession | None, *, is_streaming: bool) -> dict[str, Any]:
    """Returns what the limits in time of a plan have to know of the cluster."""
    scopes = {limit.scope for limit in plan.options.rate_limit.known}
    if None in scopes and spark is not None:
        _warn_of_tasks(plan, spark, is_streaming=is_streaming)
    if not scopes & {"host", "job"}:
        return {}
    if spark is None:
        _refuse("there is no active session to ask for them")
    application = _conf(spark, "spark.app.id") or _conf(spark, "spark.app.name") or "spark"
    if "job" not in scopes or _is_on_one_host(spark):
        # What all processes of a host keep together is that of the job: nothing is split.
        return {"application": application}
    cores, executor_cores = cores_of(spark), executor_cores_of(spark)
    return {"application": application, "cores": cores, "executor_cores": executor_cores}


def _known_cores(spark: SparkSession | None) -> int | None:
    try:
        return None if spark is None else cores_of(spark)
    except ConfigurationError:
        return None


def _warn_of_tasks(plan: Plan, spark: SparkSession, *, is_streaming: bool) -> None:
    """Says what limits come to that each task has for itself, where nobody said they are so."""
    cores = _known_cores(spark)
    if cores == 1:
        return
    for limit in plan.options.rate_limit.known:
        if limit.scope is None:
            together = "as many times that as tasks run at once"
            if cores is not None:
                together = f"on {cores} cores that is up to {limit.times(cores)}"
            warn_once(
                'rate_limit="%s" of `%s` is a limit of each task: %s%s; say scope="job" for %s in'
                ' all, or scope="task" if you mean each task',
                limit.rate.strip(),
                plan.function_name,
                together,
                ", and each micro-batch begins with a whole burst" if is_streaming else "",
                limit.rate.strip(),
            )


def _is_on_one_host(spark: SparkSession) -> bool:
    """Whether all tasks of a session run on one host, whose processes share its limits."""
    return _LOCAL.fullmatch(_master(spark)) is not None


def cores_of(spark: SparkSession) -> int:
    """Returns how many tasks of a session may run at once, at most.

    Raises:
        ConfigurationError: If that is not known.
    """
    cores, _ = _cores(spark)
    if cores is None:
        _refuse(
            "set `spark.cores.max`, or `spark.executor.cores` and `spark.executor.instances`"
            " (`spark.dynamicAllocation.maxExecutors` with dynamic allocation)"
        )
    return max(cores // int(_conf(spark, "spark.task.cpus") or 1), 1)


def executor_cores_of(spark: SparkSession) -> int | None:
    """Returns how many tasks of a session an executor may run at once, if that is known."""
    _, cores = _cores(spark)
    return cores and max(cores // int(_conf(spark, "spark.task.cpus") or 1), 1)


def _refuse(way_out: str) -> NoReturn:
    msg = (
        "the application and its cores are not known, which `rate_limit` of scope 'host' and 'job'"
        f" needs: {way_out}; or use a part of the limit with scope 'task'"
    )
    raise ConfigurationError(msg, ErrorKind.RATE_LIMIT_INVALID)


def _cores(spark: SparkSession) -> tuple[int | None, int | None]:
    """Returns the cores of all executors at most, and those of one, as far as they are known."""
    master = _master(spark)
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        each = int(cluster["cores"])
        return int(cluster["workers"]) * each, each
    local = _LOCAL.fullmatch(master)
    if local is not None and (cores := _local_cores(spark, local["cores"] or "1")):
        return cores, cores
    most, of_one = _conf(spark, "spark.cores.max"), _conf(spark, "spark.executor.cores")
    is_dynamic = _conf(spark, "spark.dynamicAllocation.enabled") == "true"
    count = _conf(
        spark,
        "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances",
    )
    bounds = [int(most)] if most else []
    if of_one and count:
        bounds.append(int(of_one) * int(count))
    return min(bounds, default=None), int(of_one) if of_one else None


def _local_cores(spark: SparkSession, said: str) -> int | None:
    if said != "*":
        return int(said)
    # The machine of the driver runs all of it, which may be another one with Spark Connect.
    default = _conf(spark, "spark.default.parallelism")
    context = getattr(spark, "_sc", None)
    found = default if context is None else context.defaultParallelism
    return None if found is None else int(found)


def _master(spark: SparkSession) -> str:
    return (_conf(spark, "spark.master") or "").strip()


def _conf(spark: SparkSession, name: str) -> str | None:
    try:
        return spark.conf.get(name, None)
    except Exception:  # noqa: BLE001 - not every server shows all of its configuration
        return None


# -- intervals that become texts, which Spark writes with the units of their type.
#
# ``INTERVAL '5' DAY`` and ``INTERVAL '5 00:00:00' DAY TO SECOND`` are one interval and two texts.
# Arrow data say nothing of units, so that a function in the extension module would write the second
# for both, and look up what nobody has stored. Pure functions, for any thread.


def check_columns(plan: Plan, schema: StructType) -> None:
    """Checks the columns of `schema` that `plan` makes texts of.

    Raises:
        ConfigurationError: If one of them has intervals that do not go from days to seconds.
    """
    for branch in plan.branches:
        check_columns(branch, schema)
    function = plan.function
    if plan.branches or not isinstance(function, NativeFunction) or not function.writes_texts:
        return
    for column in function.input_columns:
        for found in types_within(schema[column].dataType):
            if isinstance(found, DayTimeIntervalType) and found != DayTimeIntervalType():
                refuse(
                    f"column `{column}` has type {found.simpleString()}, whose texts in Spark have"
                    " other units than those that would be sent; cast it to a string, or to"
                    " interval day to second",
                    ErrorKind.INPUT_INVALID,
                )


def check_arguments(function: NativeFunction, schema: pa.Schema) -> None:
    """Checks the arguments of a column function, whose types only the executor knows.

    Raises:
        ConfigurationError: If texts are made of one with intervals.
    """
    if not function.writes_texts:
        return
    for field in schema:
        if any(pa.types.is_duration(it.type) for it in fields_within(field)):
            refuse(
                f"argument `{field.name}` has intervals, whose units a column function is not told,"
                " and which are in Spark's texts; cast it to a string",
                ErrorKind.INPUT_INVALID,
            )
