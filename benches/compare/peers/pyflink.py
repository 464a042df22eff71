# SPDX-License-Identifier: Apache-2.0
"""PyFlink: `AsyncDataStream` of the DataStream API with an `AsyncFunction` in Python.

Rows are looked at by a Python function behind it, in the same worker.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benches.compare.calls import coroutine_call
from benches.compare.observe import Observer
from benches.compare.peer import Job, Outcome, Peer

ROWS_PER_LOOK = 1_000


def _pass(job: Job) -> Outcome:
    from pyflink.common import Configuration, Time, Types
    from pyflink.datastream import (
        AsyncDataStream,
        AsyncFunction,
        MapFunction,
        StreamExecutionEnvironment,
    )

    workload, url, rows = job.workload, job.url, job.rows

    class Enrich(AsyncFunction):  # type: ignore[misc]
        """The function of the job."""

        async def async_invoke(self, value: int) -> list[tuple[int, int | None, int]]:
            return [(value, *await coroutine_call(workload.name, url)(value))]

        def timeout(self, value: int) -> list[tuple[int, int | None, int]]:
            return [(value, None, time.monotonic_ns() - round(workload.timeout * 1e9))]

    class Look(MapFunction):  # type: ignore[misc]
        """Observes the rows in groups, and leaves the report in a file."""

        def __init__(self, path: str) -> None:
            self._path = path

        def open(self, runtime_context: Any) -> None:  # noqa: ARG002 - its interface
            self._observer = Observer(Job(workload, rows, 0, url))
            self._rows: list[Any] = []
            self._seen = 0

        def map(self, value: Any) -> int:
            self._rows.append((*value, time.monotonic_ns()))
            self._seen += 1
            if len(self._rows) == ROWS_PER_LOOK or self._seen == rows:
                self._look()
            return 0

        def _look(self) -> None:
            ids, results, admitted, moments = zip(*self._rows, strict=True)
            self._rows = []
            missing = results.count(None)
            values = [value or 0 for value in results]
            self._observer.emitted(ids, values, admitted, missing, moments)
            if self._seen == rows:
                from dataclasses import asdict

                Path(self._path).write_text(json.dumps(asdict(self._observer.outcome({}, {}))))

    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        configuration = Configuration()
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(1)
        wait = (
            AsyncDataStream.ordered_wait
            if workload.mode == "ordered"
            else AsyncDataStream.unordered_wait
        )
        kind = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
        ids = env.from_source(_sequence(rows), _no_watermarks(), "ids", Types.LONG())
        timeout = Time.milliseconds(round(workload.timeout * 1e3))
        done = wait(ids, Enrich(), timeout, workload.calls, kind)
        sink = done.map(Look(str(report)), output_type=Types.INT())
        sink.filter(lambda value: value != 0).print()
        env.execute()
        return Outcome(**json.loads(report.read_text()))


def _sequence(rows: int) -> Any:
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource

    return NumberSequenceSource(0, rows - 1)


def _no_watermarks() -> Any:
    from pyflink.common import WatermarkStrategy

    return WatermarkStrategy.no_watermarks()


def run(job: Job) -> Outcome:
    """Does the job."""
    from dataclasses import replace

    if job.warm_up_rows:
        _pass(job.warm_up)
    settings = {
        "capacity": str(job.workload.calls),
        "timeout": f"{job.workload.timeout:g} s",
        "parallelism": "1",
        "execution mode": "process",
    }
    python = sys.version.split()[0]
    versions = {"apache-flink": version("apache-flink"), "python": python}
    return replace(_pass(job), settings=settings, versions=versions)


PEER = Peer(
    name="pyflink",
    title="PyFlink",
    environment="pyflink",
    can=frozenset({"ordered", "unordered", "http"}),
    rows_per_second=2_400,
    start=10.5,
    run=run,
    rates={"stragglers-ordered": 560, "http": 1_600},
)
