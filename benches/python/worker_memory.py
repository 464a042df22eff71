# SPDX-License-Identifier: Apache-2.0
"""Does the Python worker's memory grow while 10 million rows pass through it?

A coroutine that suspends now and then, one task, capacity 1 000. The function itself notes the
resident memory of its process every 100 000 rows. Goal: less than 150 MB from the first note to the
highest one, and no slope once the first fifth of the rows has warmed it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from statistics import linear_regression
from tempfile import TemporaryDirectory
from typing import Any

from figures import Figure, Settings
from resident import resident_megabytes
from session import local_spark, write_rate

import sparkawait as sa

CAPACITY = 1_000
ROWS_PER_NOTE = 100_000
ROWS_PER_SLEEP = 100


class NotesMemory(sa.AsyncFunction):
    """Doubles the id; sleeps for one row in a hundred, so that not all rows end at once."""

    schema = "doubled bigint, text string"

    def __init__(self, notes: str) -> None:
        """Keeps the path of the file for the notes."""
        self._notes = notes
        self._calls = 0

    async def async_invoke(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns two columns."""
        call, self._calls = self._calls, self._calls + 1
        if call % ROWS_PER_NOTE == 0:
            _note(self._notes, call)
        if call % ROWS_PER_SLEEP == 0:
            await asyncio.sleep(0.001)
        return {"doubled": row["id"] * 2, "text": f"value {row['id']}"}


def figures(settings: Settings) -> list[Figure]:
    """Runs one long task."""
    rows = settings.rows(10_000_000)
    with TemporaryDirectory() as directory, local_spark() as spark:
        notes = Path(directory) / "notes.txt"
        frame = spark.range(rows, numPartitions=1)
        out = sa.unordered_wait(frame, NotesMemory(str(notes)), max_concurrency=CAPACITY)
        taken = write_rate(out, rows)
        lines = [line.split() for line in notes.read_text().splitlines()]
    calls = [int(line[0]) for line in lines]
    megabytes = [float(line[1]) for line in lines]
    warm = len(calls) // 5
    slope = linear_regression(calls[warm:], megabytes[warm:]).slope * 1e6
    growth = Figure(
        "Spark worker, growth of resident memory",
        "MB",
        [max(megabytes) - megabytes[0]],
        "at the first row",
        [megabytes[0]],
        goal=150.0,
        of_ratio=False,
        at_most=True,
        details={"calls": calls, "megabytes": megabytes, "rows_per_second": taken},
    )
    flatness = Figure(
        "Spark worker, memory after warm-up",
        "MB per million rows",
        [slope],
        "",
        [],
        goal=1.0,
        of_ratio=False,
        at_most=True,
        details={"warm_up_rows": calls[warm], "at_the_end": megabytes[-1]},
    )
    return [growth, flatness]


def _note(path: str, call: int) -> None:
    with Path(path).open("a") as notes:
        notes.write(f"{call} {resident_megabytes()}\n")
