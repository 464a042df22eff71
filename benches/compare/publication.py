# SPDX-License-Identifier: Apache-2.0
"""Where the page goes: beside the results, or, when that is asked for, into the documentation.

What is published is only ever added to or measured anew. A page that would lack a workload, a peer
at a workload or a chart of the one that is there is refused.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from benches.compare import environment, page

__all__ = ["DroppedError", "contents", "draw", "publish"]

PAGE = "benchmarks.md"
TABLES = "reference/benchmarks.md"
"""The tables of all workloads."""
CHARTS = "benchmarks"
"""The folder of the charts, beside the page."""

_HEADING = re.compile(r"^### (.+)$")
_ROW = re.compile(r"^\| \*{0,2}(.+?)\*{0,2}(?: \(then failed: .*?\))? \|")
_HEAD_OF_TABLE = {"peer", "---"}


class DroppedError(Exception):
    """What is to be published lacks something that is published."""


def draw(results: Path, folder: Path) -> Path:
    """Writes the page and its charts into a folder; returns the page."""
    environment.ensure("charts")
    command = [str(environment.python_of("charts")), "-m", "benches.compare.charts"]
    subprocess.run([*command, str(results), str(folder / CHARTS)], check=True)  # noqa: S603
    page.write(results, folder)
    return folder / PAGE


def publish(results: Path, drawn: Path, docs: Path) -> None:
    """Puts a page that was drawn, its charts and its short table into the documentation.

    Args:
        results: What the page was made from.
        drawn: The folder that `draw` wrote into.
        docs: The folder of the documentation; the README is beside it.

    Raises:
        DroppedError: If that would take a workload, a peer or a chart out of the documentation;
            nothing was written then.
    """
    dropped = _dropped(drawn, docs)
    if dropped:
        msg = (
            f"not published: {docs / TABLES} has what these results lack: {'; '.join(dropped)};"
            " measure that too, on this machine within a day, or remove it from the page first"
        )
        raise DroppedError(msg)
    (docs / CHARTS).mkdir(parents=True, exist_ok=True)
    for chart in (drawn / CHARTS).glob("*.svg"):
        (docs / CHARTS / chart.name).write_bytes(chart.read_bytes())
    (docs / TABLES).parent.mkdir(exist_ok=True)
    for name in (PAGE, TABLES):
        (docs / name).write_bytes((drawn / name).read_bytes())
    page.fill(docs.parent / "README.md", json.loads(results.read_text()))


def contents(text: str) -> dict[str, set[str]]:
    """Returns the titles of the workloads of the tables, and of the peers in the table of each."""
    found: dict[str, set[str]] = {}
    peers: set[str] | None = None
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            peers = found.setdefault(heading.group(1), set())
        elif line.startswith("#"):
            peers = None
        elif peers is not None and (row := _ROW.match(line)):
            peers |= {row.group(1)} - _HEAD_OF_TABLE
    return found


def _dropped(drawn: Path, docs: Path) -> list[str]:
    """Names what the documentation has and the page that was drawn has not."""
    if not (docs / TABLES).exists():
        return []
    there = contents((docs / TABLES).read_text())
    new = contents((drawn / TABLES).read_text())
    dropped = [f"workload '{title}'" for title in there if title not in new]
    dropped += [
        f"{peer} at '{title}'"
        for title in there
        if title in new
        for peer in sorted(there[title] - new[title])
    ]
    charts = {chart.name for chart in (docs / CHARTS).glob("*.svg")}
    return dropped + [
        f"chart {name}" for name in sorted(charts) if not (drawn / CHARTS / name).exists()
    ]
