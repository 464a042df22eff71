# SPDX-License-Identifier: Apache-2.0
"""Where the page of benches/compare goes, and what is refused there."""

import json
from pathlib import Path

import pytest

from benches.compare import publication
from tests.meta.repository import ROOT

TABLE = "| peer | rows/s |\n| --- | ---: |\n"


def page(**tables: list[str]) -> str:
    """Returns a page with a table for each workload, of the peers that it names."""
    parts = [
        f"### {title}\n\nabout it.\n\n{TABLE}" + "".join(f"| {peer} | 1 |\n" for peer in peers)
        for title, peers in tables.items()
    ]
    return "\n".join(["# Benchmarks", "## Results", *parts, "## Peers", "- **a** (`a`): 1.0"])


def folder(path: Path, text: str, charts: tuple[str, ...] = ()) -> Path:
    """Makes a folder with a page and its charts."""
    (path / "benchmarks").mkdir(parents=True)
    (path / "reference").mkdir()
    (path / "benchmarks.md").write_text(f"a page of {path.name}")
    (path / "reference" / "benchmarks.md").write_text(text)
    for chart in charts:
        (path / "benchmarks" / chart).write_text(f"<svg>{path.name}</svg>")
    return path


@pytest.fixture
def results(tmp_path):
    path = tmp_path / "results.json"
    document = {"peers": {}, "results": [], "machine": {"cores": "2"}, "date": "2026-11-22"}
    path.write_text(json.dumps(document))
    return path


def everything(path: Path) -> dict[str, str]:
    """Returns all files below a folder and what is in them."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_text() for file in files}


def test_a_page_tells_its_workloads_and_their_peers():
    text = page(slow=["**ours**", "flink"], fast=["daft (then failed: it \\| broke)", "ray | x"])
    assert publication.contents(text) == {"slow": {"ours", "flink"}, "fast": {"daft", "ray"}}


def test_the_committed_page_is_understood():
    found = publication.contents((ROOT / "docs/reference/benchmarks.md").read_text())
    assert "sparkawait, native function" in found["Calls that return at once, unordered"]
    assert all(peers for peers in found.values())
    assert not any("|" in peer or "*" in peer for peers in found.values() for peer in peers)


def test_what_has_all_that_is_there_and_more_is_published(tmp_path, results):
    docs = folder(tmp_path / "docs", page(slow=["ours"]), ("cost.svg",))
    drawn = folder(tmp_path / "out", page(slow=["ours", "b"], c=["d"]), ("cost.svg", "new.svg"))
    (tmp_path / "README.md").write_text("<!-- benchmarks: begin -->old<!-- benchmarks: end -->")
    publication.publish(results, drawn, docs)
    assert everything(docs) == everything(drawn)
    assert "old" not in (tmp_path / "README.md").read_text()


def test_the_first_page_is_published(tmp_path, results):
    drawn = folder(tmp_path / "out", page(slow=["ours"]), ("cost.svg",))
    publication.publish(results, drawn, tmp_path / "docs")
    assert everything(tmp_path / "docs") == everything(drawn)


@pytest.mark.parametrize(
    ("text", "charts", "named"),
    [
        (page(slow=["ours"]), ("cost.svg",), "workload 'fast'"),
        (page(slow=[], fast=["daft"]), ("cost.svg",), "ours at 'slow'"),
        (page(slow=["ours"], fast=["daft"]), (), "chart cost.svg"),
    ],
)
def test_nothing_that_is_published_is_dropped(tmp_path, results, text, charts, named):
    docs = folder(tmp_path / "docs", page(slow=["ours"], fast=["daft"]), ("cost.svg",))
    readme = "<!-- benchmarks: begin -->old<!-- benchmarks: end -->"
    (tmp_path / "README.md").write_text(readme)
    before = everything(docs)
    with pytest.raises(publication.DroppedError, match=named):
        publication.publish(results, folder(tmp_path / "out", text, charts), docs)
    assert everything(docs) == before
    assert (tmp_path / "README.md").read_text() == readme
