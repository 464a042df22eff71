# SPDX-License-Identifier: Apache-2.0
"""A stream whose rows outlive their micro-batch, as tests drive it and see what comes of it."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import Row

import sparkawait as sa
from tests.spark.calls import CallLog
from tests.support.sql_conf import sql_conf
from tests.support.waiting import wait_until

SLOW = 7
"""The row whose call waits for the gate."""

STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
OFTEN = "transform_with_state"
"""The vehicle that a query may have several of."""

often = pytest.param(OFTEN, marks=pytest.mark.since_spark(4, 0))
at_night = pytest.param(OFTEN, marks=[pytest.mark.since_spark(4, 0), pytest.mark.nightly])
of_each_vehicle = pytest.mark.parametrize("stream", [None, at_night], indirect=True)
"""Their steps are the same code; what `of_each_emit` and `with_several` mark has both each time."""
of_each_emit = pytest.mark.parametrize(
    ("stream", "emit"),
    [
        (None, "next_batch"),
        pytest.param(None, "at_once", marks=pytest.mark.nightly),
        pytest.param(OFTEN, "next_batch", marks=pytest.mark.since_spark(4, 0)),
    ],
    indirect=["stream"],
)
with_several = pytest.mark.parametrize("stream", [often], indirect=True)


@contextmanager
def session_for(vehicle: str | None, spark) -> Iterator[None]:
    """Sets what a vehicle needs, for a while."""
    if vehicle != OFTEN:
        yield
        return
    with sql_conf(spark, {STORE: ROCKS}):
        yield


def lookup(calls: CallLog, gate: Path, slow=frozenset({SLOW})):
    """Doubles each row; those of `slow` when the gate is open."""
    path = str(gate)

    @sa.async_function("doubled bigint")
    async def double(row):
        calls.add(row["id"])
        calls.add(f"pid {row['id']} {os.getpid()}")
        if row["id"] == SLOW:
            # Each executor of a cluster has its own.
            calls.add(f"folder {os.getcwd()}")  # noqa: PTH109
        while row["id"] in slow and not os.path.exists(path):  # noqa: ASYNC110, ASYNC240, PTH110
            await asyncio.sleep(0.01)
        return {"doubled": 2 * row["id"]}

    return double


class Stream:
    """A query over files that a test adds, whose sink keeps the rows of each micro-batch."""

    def __init__(self, spark, folder: Path, calls: CallLog, vehicle=None) -> None:
        self.spark = spark
        self.vehicle = vehicle
        self.folder = folder
        self.calls = calls
        self.gate = folder / "gate"
        self.batches: dict[int, list[int]] = {}
        self.executed: Counter[int] = Counter()
        self.told: dict[int, Row] = {}
        """What the column `call` tells, if there is one."""
        self.actions = 1
        self.sink_fails = False
        self.failing: frozenset[int] = frozenset()
        """Rows that come out without a result."""
        self.between: Callable[[], None] | None = None
        """What happens when the tasks of a micro-batch with results have ended, and none runs."""
        self.query = None
        self._files = 0
        (folder / "source").mkdir()
        calls.add("none so far")

    def put(self, ids) -> None:
        """Adds a file, which is read in a micro-batch of its own."""
        self._files += 1
        lines = [json.dumps({"id": id_, "key": id_ % 3}) for id_ in ids]
        path = self.folder / f"{self._files}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (self._files, self._files))
        path.rename(self.folder / "source" / path.name)

    @property
    def source(self):
        reader = self.spark.readStream.schema("id bigint, key bigint")
        return reader.option("maxFilesPerTrigger", 1).json(str(self.folder / "source"))

    def carried(self, *, capacity: int = 100, info: str | None = None, **options):
        """Returns the rows with their doubles, the call for `SLOW` being carried over."""
        function = lookup(self.calls, self.gate)
        carry_over = sa.CarryOver(vehicle=self.vehicle, **options)
        return sa.unordered_wait(
            self.source,
            function,
            timeout=None,
            capacity=capacity,
            carry_over=carry_over,
            info=info,
        )

    def start(self, out, **trigger) -> None:
        """Starts the query, from its checkpoint if it has one."""
        self.query = self._started(out.writeStream.foreachBatch(self._keep), trigger)

    def _started(self, writer, trigger):
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(**(trigger or {"processingTime": "50 milliseconds"})).start()

    def _keep(self, batch, number: int) -> None:
        actions = [batch.collect() for _ in range(self.actions)]
        rows, *again = ([(row.id, row.doubled) for row in rows] for rows in actions)
        assert all(sorted(other) == sorted(rows) for other in again)
        doubles = {id_: None if id_ in self.failing else 2 * id_ for id_, _ in rows}
        assert all(doubled == doubles[id_] for id_, doubled in rows)
        if "call" in batch.columns:
            self.told |= {row.id: row.call for row in actions[0]}
        self.executed[number] += 1
        # As a sink does that knows a micro-batch by its number.
        self.batches.setdefault(number, [id_ for id_, _ in rows])
        if rows and self.between is not None:
            self.between()
        if self.sink_fails:
            message = "the sink fails"
            raise RuntimeError(message)

    @property
    def rows(self) -> list[int]:
        """What came out, in order."""
        return [id_ for number in sorted(self.batches) for id_ in self.batches[number]]

    def until(self, condition) -> None:
        """Waits for a condition, as long as the query runs."""

        def is_met() -> bool:
            if self.query.exception() is not None:
                raise self.query.exception()
            return condition()

        wait_until(is_met, patience=90)

    def until_out(self, ids) -> None:
        wanted = set(ids)
        self.until(lambda: wanted <= set(self.rows))

    def calls_of(self, id_: int) -> int:
        return self.calls.counts()[str(id_)]

    def numbers(self) -> list[dict]:
        """What the progress of each micro-batch says of rows in flight."""
        # Spark 3.5 has them for batches with new rows only.
        progress = self.query.recentProgress
        found = [it.get("observedMetrics", {}).get("sparkawait") for it in progress]
        rows = (row for row in found if row is not None)
        return [row if isinstance(row, dict) else row.asDict() for row in rows]

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
