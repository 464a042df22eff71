# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""A job with a journal, run again after it might have died at any moment.

What a crash leaves is a folder with the rows that were committed before it. So the job runs once,
and then once for each of several such folders.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from sparkawait._checks import integer
from sparkawait._worker.feeder import RecordBatches

__all__ = ["Crash", "crashes"]

_ABOUT = "_journal.json"
_MOST = 10_000


@dataclass(frozen=True)
class Crash:
    """What a job did that was run again after a crash.

    Attributes:
        known: Rows whose results were in the journal.
        calls: Calls that it made.
        unknown: Calls that the rest needed in the first run.
    """

    known: int
    calls: int
    unknown: int


def crashes(job: Callable[[str], Any], calls: Callable[[], int], *, cuts: int = 7) -> list[Crash]:
    """Runs a job as if it had died before, at several moments, and compares its calls.

    The job runs once with a new journal. Then it runs with what a crash would have left of that:
    nothing, all rows, and parts of them in the order in which they were committed. Each run must
    have the results of the first one, and call only for what is not known.

    Args:
        job: Runs what is tested with the journal at the path that it gets, on Spark or without, and
            returns its rows, whose order does not count. They are a list of rows or of record
            batches, what has ``__arrow_c_stream__`` (a table, a data frame, the output of a wait
            function), or what else can be compared.
        calls: Returns how many calls the service has counted since it began. It counts rows where a
            call has many.
        cuts: Moments at which the job dies.

    Returns:
        What each run did.

    Raises:
        AssertionError: If a run pays twice, or has other results.

    Examples:
        >>> import sparkawait as sa
        >>> made = []
        >>> @sa.async_function("doubled bigint")
        ... async def double(row):
        ...     made.append(row["x"])
        ...     return {"doubled": 2 * row["x"]}
        >>> def job(folder):
        ...     journal = sa.Journal(folder, version=1)
        ...     rows = [{"x": 1}, {"x": 2}, {"x": 3}]
        ...     return sa.arrow.ordered_wait(rows, double, journal=journal).to_table()
        >>> [crash.calls for crash in sa.testing.crashes(job, lambda: len(made), cuts=4)]
        [3, 2, 1, 0]
    """
    integer(cuts, "cuts", 2, _MOST)
    with tempfile.TemporaryDirectory(prefix="sparkawait-crashes-") as place:
        whole = Path(place) / "whole"
        wanted, counted = _run(job, calls, whole)
        rows = _rows_of(whole)
        found: list[Crash] = []
        for cut in range(cuts):
            count = rows.num_rows * cut // (cuts - 1)
            folder = Path(place) / str(cut)
            paid = _write(folder, whole, rows.slice(0, count))
            results, made = _run(job, calls, folder)
            crash = Crash(count, made, counted - paid)
            _check(crash, results == wanted, rows.num_rows)
            found.append(crash)
            shutil.rmtree(folder)
        return found


def _run(job: Callable[[str], Any], calls: Callable[[], int], folder: Path) -> tuple[object, int]:
    before = calls()
    results = job(str(folder))
    is_batches = isinstance(results, list) and all(
        isinstance(it, pa.RecordBatch) for it in cast("list[Any]", results)
    )
    if is_batches or hasattr(results, "__arrow_c_stream__"):
        # Also the output of a wait function, whose calls are made as it is read.
        batches = RecordBatches(iter(results if is_batches else [results]))
        results = [row for batch in batches for row in batch.to_pylist()]
    if isinstance(results, list):
        results = Counter(map(repr, cast("list[Any]", results)))
    return results, calls() - before


def _rows_of(folder: Path) -> pa.Table:
    """Returns the rows of a journal in the order in which they were committed."""
    from pyarrow import parquet

    files = sorted(folder.glob("[!_.]*.parquet"))
    if not files:
        msg = "the job has committed nothing: give its path to `journal=`, and rows that have calls"
        raise AssertionError(msg)
    tables = [parquet.ParquetFile(path).read() for path in files]
    return pa.concat_tables(tables).sort_by("at")


def _write(folder: Path, whole: Path, rows: pa.Table) -> int:
    """Writes what a crash leaves, and returns the calls that nobody makes again."""
    from pyarrow import parquet

    folder.mkdir()
    shutil.copy(whole / _ABOUT, folder / _ABOUT)
    if rows.num_rows:
        parquet.write_table(rows, folder / "before-the-crash.parquet")
    known = zip(rows["kind"].to_pylist(), rows["attempt"].to_pylist(), strict=True)
    return sum(attempts or 0 for kind, attempts in known if kind == "ok")


def _check(crash: Crash, is_same: bool, rows: int) -> None:  # noqa: FBT001
    after = f"after a crash with {crash.known} of {rows} rows in the journal, the job"
    if crash.calls > crash.unknown:
        msg = (
            f"{after} made {crash.calls} calls, and needed at most {crash.unknown}: some rows were"
            " paid for twice. Does each run read the same from a row, and give the same `version`?"
        )
        raise AssertionError(msg)
    if not is_same:
        msg = f"{after} had other results than without one"
        raise AssertionError(msg)
