# SPDX-License-Identifier: Apache-2.0
"""Do results of 2 MB all arrive, and what does the Python worker need for them?

A coroutine that suspends, 5 000 rows, one task, ``on_error="drop"``, otherwise the defaults: 10 GB
go through. The function notes the most memory that was resident in its process so far. Goal: no
row is lost, and the worker stays below 1 GB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from figures import Figure, Settings
from pyspark.sql.functions import count, length
from pyspark.sql.functions import sum as total
from resident import most_resident_megabytes
from session import local_spark

import sparkawait as sa

BYTES = 2_000_000
ROWS = 5_000


class Large(sa.AsyncFunction):
    """Returns a text of 2 MB of its own for each row."""

    schema = "body string"

    def __init__(self, notes: str) -> None:
        """Keeps the path of the file for the notes."""
        self._notes = notes

    async def async_invoke(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns after a moment."""
        await asyncio.sleep(0.005)
        return {"body": f"{row['id']:08}" * (BYTES // 8)}

    def close(self) -> None:
        """Notes the most that was resident."""
        Path(self._notes).write_text(str(most_resident_megabytes()))


def figures(settings: Settings) -> list[Figure]:
    """Counts the rows and their characters in a job of one task."""
    rows = ROWS // 10 if settings.quick else ROWS
    with TemporaryDirectory() as directory, local_spark() as spark:
        notes = Path(directory) / "notes.txt"
        frame = spark.range(rows, numPartitions=1)
        out = sa.unordered_wait(frame, Large(str(notes)), on_error="drop")
        found = out.agg(count("*").alias("rows"), total(length("body")).alias("bytes")).first()
        megabytes = float(notes.read_text())
    assert found is not None  # noqa: S101 - an aggregate has a row
    arrived = {"rows": found["rows"], "bytes": found["bytes"]}
    lost = Figure(
        "results of 2 MB, rows lost",
        "rows",
        [float(rows - found["rows"])],
        "",
        [],
        goal=0.0,
        of_ratio=False,
        at_most=True,
        details={"rows": rows, **arrived},
    )
    memory = Figure(
        "results of 2 MB, most resident memory of the worker",
        "MB",
        [megabytes],
        "",
        [],
        goal=1000.0,
        of_ratio=False,
        at_most=True,
    )
    return [lost, memory]
