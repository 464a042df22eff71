# SPDX-License-Identifier: Apache-2.0
"""Pathway: a UDF with an asynchronous executor, fed by a Python connector.

The one that is faster for the workload: ``async_executor`` waits for all calls of a batch before
the next begins, ``fully_async_executor`` does not, but updates each row twice.
"""

from __future__ import annotations

from importlib.metadata import version
from time import monotonic_ns
from typing import Any

from benches.compare.calls import coroutine_call
from benches.compare.observe import Observer
from benches.compare.peer import Job, Outcome, Peer

AUTOCOMMIT_MILLISECONDS = 100
TIMEOUT_SECONDS = 60.0
"""Longer than that of the function itself, as Pathway would make an error of the whole row."""
FULLY = "fully_async_executor"


def _executor(job: Job) -> str:
    return "async_executor" if job.workload.mean_seconds() is None else FULLY


def _pass(job: Job) -> Observer:
    import pathway as pw
    from pathway.internals.parse_graph import G

    name, url, rows = job.workload.name, job.url, job.rows

    class Ids(pw.Schema):
        number: int = pw.column_definition(primary_key=True)

    class Source(pw.io.python.ConnectorSubject):
        def run(self) -> None:
            for row in range(rows):
                self.next(number=row)

    make = getattr(pw.udfs, _executor(job))
    executor = make(capacity=job.workload.calls, timeout=TIMEOUT_SECONDS)

    @pw.udf(executor=executor)
    async def enrich(row: int) -> tuple[int | None, int]:
        return await coroutine_call(name, url)(row)

    table = pw.io.python.read(Source(), schema=Ids, autocommit_duration_ms=AUTOCOMMIT_MILLISECONDS)
    done = table.select(pw.this.number, call=enrich(pw.this.number))
    if _executor(job) == FULLY:
        done = done.await_futures()
    output = _Output(job)
    pw.io.subscribe(done, on_change=output.on_change, on_time_end=output.on_time_end)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    G.clear()
    return output.observer


class _Output:
    """Collects the changes of one time, which is when Pathway emits them."""

    def __init__(self, job: Job) -> None:
        self.observer = Observer(job)
        self._rows: list[tuple[int, int | None, int, int]] = []

    def on_change(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG002, FBT001 - its interface
        """Takes a row."""
        self._rows.append((row["number"], *row["call"], monotonic_ns()))

    def on_time_end(self, time: int) -> None:  # noqa: ARG002 - its interface
        """Hands the rows on."""
        if self._rows:
            ids, results, admitted, moments = zip(*self._rows, strict=True)
            missing = results.count(None)
            values = [value or 0 for value in results]
            self.observer.emitted(ids, values, admitted, missing, moments)
            self._rows = []


def run(job: Job) -> Outcome:
    """Does the job."""
    if job.warm_up_rows:
        _pass(job.warm_up)
    settings = {
        "executor": _executor(job),
        "capacity": str(job.workload.calls),
        "timeout": f"{TIMEOUT_SECONDS:g} s",
        "autocommit": f"{AUTOCOMMIT_MILLISECONDS} ms",
    }
    return _pass(job).outcome(settings, {"pathway": version("pathway")})


PEER = Peer(
    name="pathway",
    title="Pathway",
    environment="pathway",
    can=frozenset({"unordered", "http"}),
    rows_per_second=8_000,
    start=2.5,
    run=run,
    rates={"no-op-unordered": 25_000, "http": 3_000},
)
