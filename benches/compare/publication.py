# SPDX-License-Identifier: Apache-2.0
"""Where the page goes: beside the results, or, when that is asked for, into the documentation.

The documentation has the page's data, too, so that a test can tell whether page and README still
say what was measured. Only a whole run is published: every workload of the page, all peers that
could be installed, one commit, and a steady baseline.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches.compare import environment, page
from benches.compare.peer import all_peers
from benches.compare.results import digest
from benches.compare.workloads import WORKLOADS

__all__ = ["DATA", "IncompleteError", "draw", "lacks", "publish", "stale"]

PAGE = "benchmarks.md"
TABLES = "reference/benchmarks.md"
"""The tables of all workloads."""
CHARTS = "benchmarks"
"""The folder of the charts, beside the page."""
DATA = "benchmarks/results.json"
"""What all of it is made from."""


class IncompleteError(Exception):
    """The results are not those of a whole run."""


def draw(results: Path, folder: Path) -> Path:
    """Writes the page and its charts into a folder; returns the page."""
    environment.ensure("charts")
    command = [str(environment.python_of("charts")), "-m", "benches.compare.charts"]
    subprocess.run([*command, str(results), str(folder / CHARTS)], check=True)  # noqa: S603
    page.write(json.loads(results.read_text()), folder)
    return folder / PAGE


def publish(results: Path, drawn: Path, docs: Path) -> None:
    """Puts a page that was drawn, its charts, data and short table into the documentation.

    Args:
        results: What the page was made from.
        drawn: The folder that `draw` wrote into.
        docs: The folder of the documentation; the README is beside it.

    Raises:
        IncompleteError: If they are not the results of a whole run; nothing was written then.
    """
    document = json.loads(results.read_text())
    if found := list(lacks(document)):
        msg = f"not published: {'; '.join(found)}"
        raise IncompleteError(msg)
    (docs / CHARTS).mkdir(parents=True, exist_ok=True)
    for chart in (docs / CHARTS).glob("*.svg"):
        chart.unlink()
    for chart in (drawn / CHARTS).glob("*.svg"):
        (docs / CHARTS / chart.name).write_bytes(chart.read_bytes())
    (docs / TABLES).parent.mkdir(exist_ok=True)
    for name in (PAGE, TABLES):
        (docs / name).write_bytes((drawn / name).read_bytes())
    (docs / DATA).write_text(json.dumps(digest(document), indent=1) + "\n")
    page.fill(docs.parent, document)


def lacks(document: dict[str, Any]) -> Iterator[str]:
    """Yields why results are not those of a whole run."""
    peers = all_peers().values()
    there = {(it["workload"], it["peer"]): it for it in document["results"]}
    absent = {name for name, peer in document["peers"].items() if peer["absent"]}
    for workload in (it for it in WORKLOADS if it.is_published):
        refused = document["workloads"].get(workload.name, {}).get("refused")
        if refused:
            yield f"{workload.name}: {refused}; measure it again with `--workloads {workload.name}`"
        missing = [
            peer.name
            for peer in peers
            if peer.takes(workload)
            and peer.name not in absent
            and (workload.name, peer.name) not in there
        ]
        if missing:
            yield f"{workload.name} lacks {', '.join(missing)}"
    commits = {it["commit"] for it in document["results"]}
    if len(commits) > 1 or any(commit.endswith("-dirty") for commit in commits):
        yield f"it must be measured at one commit, not at {', '.join(sorted(commits))}"


def stale(docs: Path) -> list[str]:
    """Names the files that do not say what the published data say."""
    document = json.loads((docs / DATA).read_text())
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "docs")
        (copy / CHARTS).mkdir(parents=True)
        for chart in (docs / CHARTS).glob("*.svg"):
            (copy / CHARTS / chart.name).touch()
        page.write(document, copy)
        filled = [name for name in page.FILLED if (docs.parent / name).exists()]
        for name in filled:
            (copy.parent / name).parent.mkdir(exist_ok=True)
            (copy.parent / name).write_bytes((docs.parent / name).read_bytes())
        page.fill(copy.parent, document)
        names = [f"{docs.name}/{PAGE}", f"{docs.name}/{TABLES}", *filled]
        return [name for name in names if _differ(docs.parent / name, copy.parent / name)]


def _differ(there: Path, new: Path) -> bool:
    return there.read_bytes() != new.read_bytes()
