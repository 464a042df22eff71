# SPDX-License-Identifier: Apache-2.0
"""Where the page of benches/compare goes, and what is refused there."""

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from benches.compare import page, publication
from benches.compare.peer import Outcome, all_peers
from benches.compare.process import Measured
from benches.compare.results import Results, Rounds
from benches.compare.workloads import WORKLOADS, Workload
from tests.meta.repository import ROOT

NOW = datetime(2026, 11, 25, 9, tzinfo=timezone.utc)
README = "before\n<!-- benchmarks: begin -->\nold\n<!-- benchmarks: end -->\nafter\n"


def rounds(rate: int) -> Rounds:
    done = Outcome(1, 2, rate, 0, 0, latency_ms={"p50": 7.0, "p99": 31.0, "p99.9": 53.0})
    return Rounds({0: Measured(done, 0.5, 1.0, 2.0, 100.0, {})})


def add(found: Results, workload: Workload, *without: str) -> None:
    peers = {name: peer for name, peer in all_peers().items() if peer.takes(workload)}
    taken = {name: rounds(1_000 + 7 * place) for place, name in enumerate(peers)}
    measured = {name: it for name, it in taken.items() if name not in without}
    found.add(workload, measured, "2026-11-25")


def whole(*without: str, commit: str = "c0ffee") -> Results:
    """Returns the results of a run of all workloads of the page."""
    found = Results()
    method = {"rounds": 7, "rounds_of_others": 3}
    machine = {"cores": "2"}
    found.describe(command="it", commit=commit, now=NOW, machine=machine, method=method)
    for peer in all_peers().values():
        found.add_peer(peer, None)
    for workload in WORKLOADS:
        if workload.is_published and workload.name not in without:
            add(found, workload)
    return found


def drawn(folder: Path, found: Results) -> Path:
    """Draws the page without matplotlib."""
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "cost.svg").write_text("<svg>new</svg>")
    found.save(folder / "results.json")
    page.write(found.document, folder)
    return folder


def publish(folder: Path, found: Results) -> Path:
    """Publishes results below a folder; returns the folder of the documentation."""
    docs = folder / "docs"
    (docs / "benchmarks").mkdir(parents=True)
    (docs / "benchmarks" / "latency.svg").write_text("<svg>old</svg>")
    (folder / "README.md").write_text(README)
    (docs / "guides").mkdir()
    (docs / "guides" / "tuning.md").write_text(README)
    out = drawn(folder / "out", found)
    publication.publish(out / "results.json", out, docs)
    return docs


def test_a_whole_run_is_published_with_its_data(tmp_path: Path):
    docs = publish(tmp_path, whole())
    assert publication.stale(docs) == []
    assert "2026-11-25, c0ffee." in (tmp_path / "README.md").read_text()
    assert [it.name for it in (docs / "benchmarks").glob("*.svg")] == ["cost.svg"]
    data = json.loads((docs / publication.DATA).read_text())
    assert data["results"]
    tuning = (docs / "guides" / "tuning.md").read_text()
    assert "| 10 000 | 0.001 | 0.001 | 0.001 |" in tuning
    assert "lookups take 1986 s of CPU with `sa.http`, and 1972 s" in tuning
    assert [key for it in data["results"] for key in it if key == "runs"] == []


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("README.md", "1 0"),
        ("docs/benchmarks.md", "1 0"),
        ("docs/reference/benchmarks.md", "1 0"),
        ("docs/guides/tuning.md", "0.0"),
    ],
)
def test_a_number_that_somebody_changed_is_found(tmp_path: Path, name: str, old: str):
    docs = publish(tmp_path, whole())
    changed = tmp_path / name
    changed.write_text(changed.read_text().replace(old, "9 9", 1))
    assert publication.stale(docs) == [name]


def test_the_documentation_says_what_was_measured():
    docs = ROOT / "docs"
    if not (docs / publication.DATA).exists():
        pytest.skip("the page is older than its data")
    assert publication.stale(docs) == []


def refusals(found: Results) -> list[str]:
    return list(publication.lacks(found.document))


def test_a_run_without_a_workload_is_not_published(tmp_path: Path):
    found = whole("half-load")
    assert refusals(found) == ["half-load lacks sparkawait_arrow_python, flink_java"]
    with pytest.raises(publication.IncompleteError, match="not published: half-load lacks"):
        publish(tmp_path, found)
    assert (tmp_path / "README.md").read_text() == README
    assert not (tmp_path / "docs" / "benchmarks.md").exists()


def test_a_peer_may_be_absent_but_not_forgotten():
    found = whole("http")
    http = next(it for it in WORKLOADS if it.name == "http")
    add(found, http, "daft")
    assert refusals(found) == ["http lacks daft"]
    found.add_peer(all_peers()["daft"], "no wheel for this machine")
    assert refusals(found) == []


def test_a_run_with_a_shaky_baseline_is_not_published():
    found = whole()
    found.document["workloads"]["http"]["refused"] = "shaky"
    assert refusals(found) == ["http: shaky; measure it again with `--workloads http`"]


def test_a_page_is_of_one_commit():
    found = whole()
    found.document["results"][3]["commit"] = "decaf"
    assert refusals(found) == ["it must be measured at one commit, not at c0ffee, decaf"]
    assert refusals(whole(commit="c0ffee-dirty")) == [
        "it must be measured at one commit, not at c0ffee-dirty"
    ]
