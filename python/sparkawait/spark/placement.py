# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Where the tasks of a job run: what limits that they share have to know of the cluster.

To be used on the driver, from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.types import DayTimeIntervalType, StructType

from sparkawait._checks import fields_within, refuse, warn_once
from sparkawait._plan.plan import ALONE, Place, Plan, Sharing
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunction, NativeFunction
from sparkawait.rate_limit import RateLimit
from sparkawait.spark.schemas import columns_for_spark, types_within
from sparkawait.spark.session import Session
from sparkawait.spark.zones import rules_of

__all__ = ["PlaceOfSession", "check_arguments", "check_columns"]


class PlaceOfSession(Place):
    """The executors of a session, as a plan has to know them.

    Args:
        session: The session, or none.
        is_streaming: Whether the tasks are those of micro-batches.
        is_case_sensitive: Whether names of columns are told apart that differ in case only.
        usual_zone: Another time zone that they may have to do with.
    """

    def __init__(
        self,
        session: Session,
        *,
        is_streaming: bool = False,
        is_case_sensitive: bool = True,
        usual_zone: str | None = None,
    ) -> None:
        """Asks nothing yet."""
        self._session = session
        self._usual_zone = usual_zone
        self._is_streaming = is_streaming
        self.is_case_sensitive = is_case_sensitive

    @property
    def tasks(self) -> int | None:
        """How many tasks of the call run at once, if that is known."""
        return self._session.cores

    @property
    def zones(self) -> tuple[tuple[str, bytes], ...]:
        """The rules of the time zones that the tasks may have to do with, as Spark has them."""
        zones = dict.fromkeys((self._session.times.zone, self._usual_zone))
        rules = [(it, rules_of(self._session.spark, it)) for it in zones if it is not None]
        return tuple((it, found) for it, found in rules if found is not None)

    def columns(self, declared: pa.Schema, function: AsyncFunction | NativeFunction) -> pa.Schema:
        """Returns the columns in the types of Spark, in the time zone of the session.

        Raises:
            ConfigurationError: If one of them has a type that Spark does not know.
        """
        return columns_for_spark(declared, function, self._session.times)

    def sharing(self, name: str, limits: Sequence[RateLimit]) -> Sharing:
        """Returns who shares the `limits` of the function `name`.

        Raises:
            ConfigurationError: If a limit of the job must be split and the number of cores is
                unknown.
        """
        session, scopes = self._session, {limit.scope for limit in limits}
        if None in scopes and session.spark is not None:
            _warn_of_tasks(name, limits, session, is_streaming=self._is_streaming)
        if not scopes & {"host", "job"}:
            return ALONE
        if session.spark is None:
            _refuse("there is no session to ask for them, start one first")
        if "job" not in scopes or session.is_on_one_host:
            # What all processes of a host keep together is that of the job: nothing is split.
            return Sharing(session.application)
        if session.cores is None:
            _refuse(
                "set `spark.cores.max`, or `spark.executor.cores` and `spark.executor.instances`"
                " (`spark.dynamicAllocation.maxExecutors` with dynamic allocation)"
            )
        return Sharing(session.application, session.cores, session.executor_cores)


def _warn_of_tasks(
    name: str, limits: Sequence[RateLimit], session: Session, *, is_streaming: bool
) -> None:
    """Says what limits come to that each task has for itself, where nobody said they are so."""
    if session.cores == 1:
        return
    for limit in limits:
        if limit.scope is None:
            together = "as many times that as tasks run at once"
            if session.cores is not None:
                together = f"on {session.cores} cores that is up to {limit.times(session.cores)}"
            warn_once(
                'rate_limit="%s" of `%s` is a limit of each task: %s%s; say scope="job" for %s in'
                ' all, or scope="task" if you mean each task',
                limit.rate.strip(),
                name,
                together,
                ", and each micro-batch begins with a whole burst" if is_streaming else "",
                limit.rate.strip(),
            )


def _refuse(way_out: str) -> NoReturn:
    msg = (
        "the application and its cores are not known, which `rate_limit` of scope 'host' and 'job'"
        f" needs: {way_out}; or use a part of the limit with scope 'task'"
    )
    raise ConfigurationError(msg, ErrorKind.RATE_LIMIT_INVALID)


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
