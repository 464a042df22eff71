# SPDX-License-Identifier: Apache-2.0
"""``results.json``: what was measured, in a form that stays.

The keys are explained in ``benches/README.md``. A new version may add keys; `SCHEMA` counts up when
one is removed or means something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, count
from pathlib import Path
from typing import Any

from benches.compare.peer import Peer
from benches.compare.plan import BASELINE
from benches.compare.process import Measured, describe
from benches.compare.samples import ratios, spread, unrest
from benches.compare.workloads import Workload

__all__ = [
    "BASELINES",
    "MOST_UNREST",
    "PARTS",
    "SCHEMA",
    "Results",
    "Rounds",
    "digest",
    "load",
    "set_aside",
]

SCHEMA = 2

PARTS = timedelta(days=1)
"""Runs that begin so long after the first are parts of one measurement."""

BASELINES = (BASELINE, "recipe_gather")
"""What every peer is divided by, round by round, if it was measured too."""

MOST_UNREST = 0.15
"""How far apart the rounds of the baseline may be; further says that the machine was not quiet."""

_SPREAD = ("rows_per_second", "cpu_seconds_per_million_rows", "peak_megabytes", "startup_seconds")

Document = dict[str, Any]


@dataclass
class Rounds:
    """The rounds of a peer at one workload.

    Attributes:
        runs: By number of the round.
        failure: Why there are no more of them, if so.
    """

    runs: dict[int, Measured] = field(default_factory=dict)
    failure: str | None = None

    @property
    def rates(self) -> dict[int, float]:
        """Rows a second by round."""
        return {number: run.rows_per_second for number, run in self.runs.items()}

    def to_json(self, workload: Workload, baselines: Mapping[str, Rounds]) -> Document:
        """Returns the rounds, and what is told of them.

        Args:
            workload: What was done.
            baselines: The rounds of `BASELINES` at the same workload, as far as there are any.
        """
        runs = [describe(run) for run in self.runs.values()]
        document: Document = {"failure": self.failure, "runs": runs, "summary": None}
        if not runs:
            return document
        summary: Document = {
            name: spread([run[name] for run in runs]).to_json() for name in _SPREAD
        }
        bound = workload.bound()
        rates = list(self.rates.values())
        summary["share_of_bound"] = (
            spread([rate / bound for rate in rates]).to_json() if bound is not None else None
        )
        pairs = {name: ratios(self.rates, other.rates) for name, other in baselines.items()}
        summary["ratio_to"] = {
            name: spread(found).to_json() for name, found in pairs.items() if found
        }
        for key in ("latency_ms", "added_latency_ms"):
            summary[key] = _percentiles([run[key] for run in runs])
        return document | {
            "summary": summary,
            "settings": next(iter(self.runs.values())).outcome.settings,
        }


def _percentiles(found: list[dict[str, float] | None]) -> Document | None:
    known = [percentiles for percentiles in found if percentiles]
    if not known:
        return None
    return {name: spread([one[name] for one in known]).to_json() for name in known[0]}


class Results:
    """What is, or is going to be, in the file. A later run replaces what it measures anew."""

    def __init__(self, document: Document | None = None) -> None:
        self.document: Document = document or {
            "schema": SCHEMA,
            "commands": [],
            "commit": "",
            "date": "",
            "began": "",
            "machine": {},
            "method": {},
            "minutes": 0.0,
            "peers": {},
            "workloads": {},
            "results": [],
        }

    def describe(
        self, *, command: str, commit: str, now: datetime, machine: Document, method: Document
    ) -> None:
        """Notes how this run is made, which begins `now`."""
        commands = [*self.document["commands"], command]
        self.document |= {
            "commands": list(dict.fromkeys(commands)),
            "commit": commit,
            "date": now.date().isoformat(),
            "began": self.document.get("began") or now.isoformat(),
            "machine": machine,
            "method": method,
        }

    def add_peer(self, peer: Peer, absent: str | None) -> None:
        """Notes a peer, and why it is absent if it is."""
        known = self.document["peers"].get(peer.name, {})
        self.document["peers"][peer.name] = {
            "title": peer.title,
            "is_ours": peer.is_ours,
            "absent": absent,
            "versions": known.get("versions", {}),
        }

    def add(self, workload: Workload, measured: Mapping[str, Rounds], date: str) -> str | None:
        """Notes what the peers, by name, did at one workload.

        Returns:
            Why the workload is refused, if so: its baseline was not steady.
        """
        runs = [run for rounds in measured.values() for run in rounds.runs.values()]
        refused = _refusal(measured)
        self.document["workloads"][workload.name] = _describe(workload) | {
            "refused": refused,
            "load_before": runs[0].load if runs else None,
            "steal": max((run.steal for run in runs), default=None),
        }
        baselines = {name: measured[name] for name in BASELINES if name in measured}
        kept = [
            result
            for result in self.document["results"]
            if result["workload"] != workload.name or result["peer"] not in measured
        ]
        for name, rounds in measured.items():
            for run in rounds.runs.values():
                self.document["peers"][name]["versions"] = run.outcome.versions
            about = {"workload": workload.name, "peer": name, "date": date}
            about["commit"] = self.document["commit"]
            kept.append(about | rounds.to_json(workload, baselines))
        self.document["results"] = kept
        return refused

    def save(self, path: Path) -> None:
        """Writes the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.document, indent=1) + "\n")


def _refusal(measured: Mapping[str, Rounds]) -> str | None:
    """Says why what was measured is not to be relied on, if so."""
    if BASELINE not in measured or not measured[BASELINE].runs:
        return None
    found = unrest(list(measured[BASELINE].rates.values()))
    if found <= MOST_UNREST:
        return None
    return f"the rounds of {BASELINE} are {found:.0%} apart, more than {MOST_UNREST:.0%}"


def digest(document: Document) -> Document:
    """Returns what the page is made from: everything except the single rounds."""
    results = [{key: it[key] for key in it if key != "runs"} for it in document["results"]]
    return document | {"results": results}


def load(path: Path, machine: Document, now: datetime) -> Results:
    """Returns what the file has, if a run that begins `now` is a part of the same measurement.

    Of another machine, schema or day it is not: then there is nothing to go on from.
    """
    if not path.exists():
        return Results()
    document = json.loads(path.read_text())
    is_same = document["machine"].get("cpu") == machine["cpu"] and document["schema"] == SCHEMA
    began = document.get("began")
    is_part = bool(began) and timedelta(0) <= now - datetime.fromisoformat(began) < PARTS
    return Results(document) if is_same and is_part else Results()


def set_aside(path: Path) -> Path | None:
    """Renames a file of results that a new one would replace; returns what it is called now."""
    if not path.exists():
        return None
    date = json.loads(path.read_text()).get("date") or "unknown"
    names = (f"{path.stem}-{date}{number}{path.suffix}" for number in chain(("",), _numbers()))
    aside = next(other for other in map(path.with_name, names) if not other.exists())
    path.rename(aside)
    return aside


def _numbers() -> Iterator[str]:
    return (f"-{number}" for number in count(2))


def _describe(workload: Workload) -> Document:
    mean = workload.mean_seconds()
    return {
        "title": workload.title,
        "mode": workload.mode,
        "calls": workload.calls,
        "slots": workload.slots,
        "held": workload.held,
        "mean_call_ms": mean * 1e3 if mean is not None else None,
        "rows_per_second_bound": workload.bound(),
        "rows_per_watermark": workload.watermark_every,
        "load": workload.load,
        "timeout_seconds": workload.timeout,
    }
