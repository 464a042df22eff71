# SPDX-License-Identifier: Apache-2.0
"""The guard on instruction counts, `make bench-check`."""

import json

from benches.instructions.check import compare, counts
from tests.meta.repository import ROOT


def summary(name: str, identifier: str, instructions: int) -> str:
    total = {"metrics": {"Ir": {"values": {"new": instructions, "old": 1}}, "Dr": {}}}
    callgrind = {"tool": "Callgrind", "data": {"parts": [], "total": total}}
    return json.dumps({"function_name": name, "id": identifier, "profiles": [callgrind]})


def test_counts_are_read_from_what_gungraun_prints():
    output = f"{summary('queue', 'plain', 10)}\n{summary('queue', 'armed', 20)}\n"
    assert counts(output) == {"queue::plain": 10, "queue::armed": 20}


def test_growth_of_five_percent_passes_and_more_fails():
    lines, failures = compare({"a": 1_000, "b": 1_000}, {"a": 1_050, "b": 1_051})
    assert [line.split()[-1] for line in lines] == ["+5.0%", "+5.1%"]
    assert failures == ["`b` takes 5.1% more instructions, 5% may be"]


def test_a_bench_without_its_counterpart_fails():
    _, failures = compare({"old": 1}, {"new": 1})
    assert failures == [
        "`new` is not in the baseline: run `make bench-check ARGS=--update`",
        "`old` is not counted: run `make bench-check ARGS=--update`",
    ]


def test_the_committed_baseline_has_a_count_for_every_bench_of_the_core():
    folder = ROOT / "benches" / "instructions"
    baseline = json.loads((folder / "instructions.json").read_text(encoding="utf-8"))
    source = (folder / "benches" / "core.rs").read_text(encoding="utf-8")
    assert len(baseline["instructions"]) == source.count("#[bench::")
