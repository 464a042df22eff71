# SPDX-License-Identifier: Apache-2.0
"""How `make bench-check` compares counts of instructions with the baseline."""

import json
import re
from dataclasses import replace

import pytest

from benches.python import instructions
from benches.python.instructions import RECORDS, Baseline, compare, counted
from tests.meta.repository import ROOT

HERE = {"target": "x86_64-linux", "rustc": "rustc 1.95.0", "valgrind": "valgrind-3.19.0"}
BEFORE = Baseline(HERE, {"core/queue/ordered": 100.0, "core/queue/unordered": 200.0})


def now(**environment) -> Baseline:
    return replace(BEFORE, environment=HERE | environment)


def with_counts(**counts: float) -> Baseline:
    return replace(BEFORE, benches={f"core/queue/{name}": it for name, it in counts.items()})


def summary(bench: str, name: str, case: str, count: int) -> str:
    total = {"metrics": {"Ir": {"values": {"new": count}}}, "regressions": []}
    return json.dumps(
        {
            "module_path": f"{bench}::benches::{name}",
            "function_name": name,
            "id": case,
            "profiles": [{"tool": "Callgrind", "data": {"parts": [], "total": total}}],
        }
    )


def test_equal_counts_pass_without_a_word():
    comparison = compare(BEFORE, now())

    assert comparison.failures == []
    assert comparison.warnings == []
    assert len(comparison.lines) == 2


def test_growth_up_to_two_percent_passes():
    assert compare(BEFORE, with_counts(ordered=102.0, unordered=196.0)).failures == []


def test_growth_beyond_two_percent_fails_and_says_how_much():
    [failure] = compare(BEFORE, with_counts(ordered=102.1, unordered=200.0)).failures

    assert failure.startswith(
        "core/queue/ordered takes 102.1 instructions a record, 2.1% more than the 100.0"
    )
    assert "make bench-baseline" in failure


def test_a_bench_without_a_baseline_fails():
    [failure] = compare(BEFORE, with_counts(ordered=100.0, unordered=200.0, keyed=9.0)).failures

    assert failure.startswith("core/queue/keyed has no baseline; run `make bench-baseline`")


def test_a_bench_that_has_vanished_fails():
    [failure] = compare(BEFORE, with_counts(ordered=100.0)).failures

    assert failure.startswith("core/queue/unordered is in the baseline and was not counted")
    assert "make bench-baseline" in failure


def test_another_compiler_is_a_warning_that_names_both():
    comparison = compare(BEFORE, now(rustc="rustc 1.96.0"))

    assert comparison.failures == []
    assert comparison.warnings[0] == "rustc is rustc 1.96.0, the baseline's is rustc 1.95.0"
    assert "renew the baseline at the commit before" in comparison.warnings[1]


def test_another_compiler_does_not_excuse_growth():
    grown = replace(with_counts(ordered=120.0, unordered=200.0), environment=HERE | {"rustc": "?"})

    assert len(compare(BEFORE, grown).failures) == 1


def test_another_architecture_is_not_compared():
    comparison = compare(BEFORE, now(target="aarch64-linux"))

    [failure] = comparison.failures
    assert failure.startswith("the baseline was counted on x86_64-linux, which says nothing about")
    assert comparison.lines == []


def test_what_has_become_cheaper_is_worth_a_new_baseline():
    [warning] = compare(BEFORE, with_counts(ordered=80.0, unordered=200.0)).warnings

    assert warning.startswith("cheaper than the baseline: core/queue/ordered; to keep it so, run")


def test_a_first_run_has_no_baseline():
    failures = compare(Baseline({}, {}), now()).failures

    assert [failure.partition(" ")[0] for failure in failures] == sorted(BEFORE.benches)


def test_counts_are_read_by_record(tmp_path):
    for case, count in [("plain", 1_234_500), ("keyed", 70_000)]:
        (tmp_path / case).mkdir()
        text = summary("instructions_core", "queue", case, count)
        (tmp_path / case / "summary.json").write_text(text)

    assert counted(tmp_path) == {"core/queue/plain": 123.45, "core/queue/keyed": 7.0}


def test_a_baseline_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "baseline" / "instructions.json"
    BEFORE.write(path)

    assert Baseline.load(path) == BEFORE
    assert Baseline.load(tmp_path / "none.json") == Baseline({}, {})


def test_a_baseline_of_another_schema_is_refused(tmp_path):
    path = tmp_path / "instructions.json"
    path.write_text('{"schema": 99}')

    with pytest.raises(SystemExit, match="has schema 99, and this program reads 1; run `make"):
        Baseline.load(path)


@pytest.mark.parametrize(("factor", "status"), [(1.0, 0), (1.06, 1)], ids=["equal", "slower"])
def test_the_program_fails_when_a_record_costs_more(tmp_path, monkeypatch, capsys, factor, status):
    counts, path = tmp_path / "counts", tmp_path / "instructions.json"
    counts.mkdir()
    text = summary("instructions_core", "queue", "ordered", int(100 * factor * RECORDS))
    (counts / "summary.json").write_text(text)
    Baseline(HERE, {"core/queue/ordered": 100.0}).write(path)
    monkeypatch.setattr(instructions, "_COUNTS", counts)
    monkeypatch.setattr(instructions, "_BASELINE", path)
    monkeypatch.setattr(instructions, "environment", lambda: HERE)
    monkeypatch.setattr("sys.argv", ["instructions.py", "check"])

    assert instructions.main() == status
    assert ("error: core/queue/ordered takes 106.0" in capsys.readouterr().err) == bool(status)


def test_the_committed_baseline_has_the_benches_of_the_sources():
    baseline = Baseline.load(ROOT / "benches" / "baseline" / "instructions.json")
    listed = {name.rpartition("/")[0] for name in baseline.benches}
    declared = set()
    for path in (ROOT / "benches" / "rust" / "benches").glob("instructions_*.rs"):
        layer = path.stem.removeprefix("instructions_")
        found = re.findall(
            r"^#\[library_benchmark.*?^fn (\w+)", path.read_text(), re.MULTILINE | re.DOTALL
        )
        declared |= {f"{layer}/{name}" for name in found}

    assert listed == declared


def test_records_are_as_many_as_the_benches_handle():
    source = (ROOT / "benches" / "rust" / "src" / "lib.rs").read_text()

    assert f"pub const RECORDS: usize = {RECORDS:_};" in source
