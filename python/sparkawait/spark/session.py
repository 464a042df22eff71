# SPDX-License-Identifier: Apache-2.0
"""What a session says: the times it means, how it tells names apart, and where its tasks run.

Each thing is asked once, when it is needed: over Spark Connect every question goes to the server.
`Session` is used on the driver, from any thread; `zone_of_task` in the executor, where Spark tells
each task what the session said that runs the query.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, NamedTuple

from pyspark import TaskContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

__all__ = ["Session", "Times", "is_connect", "zone_of_task"]

_ZONE = "spark.sql.session.timeZone"

# Of local[N, F] the second number is how often a task may fail.
_LOCAL = re.compile(r"local\[(?P<cores>\*|\d+)(?:\s*,.*)?\]|local")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<workers>\d+)\s*,\s*(?P<cores>\d+)\s*,.*\]")


class Times(NamedTuple):
    """What a session takes times for that do not say more.

    Attributes:
        zone: The time zone of those with a zone.
        are_naive: Whether the word ``timestamp`` in a schema is one without a zone.
    """

    zone: str = "UTC"
    are_naive: bool = False


class Session:
    """A session, or none, and what it says.

    Attributes:
        spark: The session of Spark; ``None`` where there is none yet.
    """

    def __init__(self, spark: SparkSession | None) -> None:
        """Asks nothing yet."""
        self.spark = spark

    @classmethod
    def active(cls) -> Session:
        """Returns the session of this thread, or the one that other threads began with."""
        try:
            # `getActiveSession` returns nothing in threads that did not start the session.
            return cls(SparkSession.active())
        except PySparkRuntimeError:
            return cls(None)

    @cached_property
    def times(self) -> Times:
        """What it takes times for."""
        if self.spark is None:
            return Times()
        kind = self.spark.conf.get("spark.sql.timestampType") or ""
        return Times(self.spark.conf.get(_ZONE) or "UTC", kind.upper() == "TIMESTAMP_NTZ")

    @cached_property
    def usual_zone(self) -> str:
        """The zone of a session of this application in which nobody has set one.

        Spark Connect has no way to ask for it: there it is what this session says.
        """
        if self.spark is None or is_connect(self.spark):
            return self.times.zone
        context: Any = self.spark.sparkContext
        return str(context._jvm.java.util.TimeZone.getDefault().getID())  # noqa: SLF001

    @cached_property
    def is_case_sensitive(self) -> bool:
        """Whether it tells columns apart whose names differ in case only."""
        return self.spark is not None and self.spark.conf.get("spark.sql.caseSensitive") == "true"

    @cached_property
    def application(self) -> str:
        """Names the application, for limits that its workers share."""
        return self._asked("spark.app.id") or self._asked("spark.app.name") or "spark"

    @property
    def is_on_one_host(self) -> bool:
        """Whether all tasks run on one host, whose processes share its limits."""
        return _LOCAL.fullmatch(self._master) is not None

    @property
    def cores(self) -> int | None:
        """How many tasks may run at once, at most, if that is known."""
        return self._tasks_at_once[0]

    @property
    def executor_cores(self) -> int | None:
        """How many tasks an executor may run at once, if that is known."""
        return self._tasks_at_once[1]

    @cached_property
    def _tasks_at_once(self) -> tuple[int | None, int | None]:
        """Those of all executors, and of one."""
        of_all, of_one = self._cores
        of_task = int(self._asked("spark.task.cpus") or 1)
        return of_all and max(of_all // of_task, 1), of_one and max(of_one // of_task, 1)

    @property
    def _cores(self) -> tuple[int | None, int | None]:
        """The cores of all executors at most, and those of one, as far as they are known."""
        if cluster := _LOCAL_CLUSTER.fullmatch(self._master):
            each = int(cluster["cores"])
            return int(cluster["workers"]) * each, each
        local = _LOCAL.fullmatch(self._master)
        if local is not None and (cores := self._local_cores(local["cores"] or "1")):
            return cores, cores
        most, of_one = self._asked("spark.cores.max"), self._asked("spark.executor.cores")
        is_dynamic = self._asked("spark.dynamicAllocation.enabled") == "true"
        count = self._asked(
            "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances"
        )
        bounds = [int(most)] if most else []
        if of_one and count:
            bounds.append(int(of_one) * int(count))
        return min(bounds, default=None), int(of_one) if of_one else None

    def _local_cores(self, said: str) -> int | None:
        if said != "*":
            return int(said)
        # The machine of the driver runs all of it, which may be another one with Spark Connect.
        default = self._asked("spark.default.parallelism")
        context = getattr(self.spark, "_sc", None)
        found = default if context is None else context.defaultParallelism
        return None if found is None else int(found)

    @cached_property
    def _master(self) -> str:
        return (self._asked("spark.master") or "").strip()

    def _asked(self, name: str) -> str | None:
        if self.spark is None:
            return None
        try:
            return self.spark.conf.get(name, None)
        except Exception:  # noqa: BLE001 - not every server shows all of its configuration
            return None


def is_connect(thing: object) -> bool:
    """Tells whether a session or DataFrame belongs to Spark Connect, without importing gRPC."""
    return type(thing).__module__.startswith("pyspark.sql.connect")


def zone_of_task(usual: str) -> str:
    """Returns the time zone of the session that runs the query, in a task of it.

    Args:
        usual: The zone where nobody has set one. Spark tells a task only what was set.
    """
    context = TaskContext.get()
    told = None if context is None else context.getLocalProperty(_ZONE)
    return told or usual
