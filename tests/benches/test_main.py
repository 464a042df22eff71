# SPDX-License-Identifier: Apache-2.0
"""A run of benches/compare from the command line, whose peers are scripted."""

import json
import sys
from pathlib import Path

import pytest

from benches.compare import __main__ as program
from benches.compare import publication
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.process import Failure, Measured

ARGUMENTS = ["--workloads", "half-load,http", "--peers", "flink_java,sparkawait_native,daft"]


class Script:
    """Runs of peers, told instead of made: rows a second of Flink's rounds; of others, 1009."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, out: Path, *flink: int) -> None:
        self.calls: list[tuple[str, str]] = []
        self._flink = flink
        self._rounds = 0
        monkeypatch.setattr(program, "run", self._run)
        monkeypatch.setattr(program, "_install", lambda *_, **__: None)
        monkeypatch.setattr(program, "adopt_orphans", lambda: None)
        monkeypatch.setattr(program.signal, "signal", lambda *_: None)
        monkeypatch.setattr(publication, "draw", lambda *_: out / "benchmarks.md")
        monkeypatch.setattr(sys, "argv", ["compare", *ARGUMENTS, "--out", str(out)])

    def _run(self, peer: Peer, job: Job, limit_seconds: float) -> Measured:
        assert limit_seconds > 60
        self.calls.append((job.workload.name, peer.name))
        if peer.name == "daft":
            msg = "no room"
            raise Failure(msg)
        rate = 1_009
        if peer.name == "flink_java":
            rate = self._flink[self._rounds % len(self._flink)]
            self._rounds += 1
        return Measured(Outcome(1, 2, rate, 0, 0), 0.5, 1.0, 2.0, 100.0, {}, 0.25, 0.013)


def test_a_run_takes_turns_and_notes_what_it_measured(tmp_path: Path, monkeypatch, capsys):
    script = Script(monkeypatch, tmp_path, 1_009, 1_013, 1_019)
    program.main()
    assert script.calls[:7] == [("half-load", "flink_java")] * 7
    first, second = script.calls[7:10], script.calls[10:12]
    assert [name for _, name in first] == ["flink_java", "sparkawait_native", "daft"]
    assert [name for _, name in second] == ["sparkawait_native", "flink_java"]
    assert sum(name == "daft" for _, name in script.calls) == 1, "a failed peer is left alone"
    document = json.loads((tmp_path / "results.json").read_text())
    counts = {(it["workload"], it["peer"]): len(it["runs"]) for it in document["results"]}
    assert counts[("http", "sparkawait_native")] == counts[("http", "flink_java")] == 7
    assert counts[("http", "daft")] == 0
    assert document["workloads"]["http"]["steal"] == 0.013
    assert document["method"]["rounds_of_others"] == 3
    assert "http: 0.0 min, planned " in capsys.readouterr().out


def test_a_run_on_a_machine_that_is_not_quiet_is_refused(tmp_path: Path, monkeypatch):
    Script(monkeypatch, tmp_path, 1_009, 1_009, 1_301)
    with pytest.raises(
        SystemExit, match=r"refused: half-load; http\. .*--workloads half-load,http"
    ):
        program.main()
    document = json.loads((tmp_path / "results.json").read_text())
    assert "29% apart" in document["workloads"]["http"]["refused"]


def test_a_plan_measures_nothing(tmp_path: Path, monkeypatch, capsys):
    script = Script(monkeypatch, tmp_path, 1)
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--plan"])
    program.main()
    assert script.calls == []
    assert not (tmp_path / "results.json").exists()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["workload", "half-load", "http", "all"]
    assert lines[2].endswith("flink_java 7, sparkawait_native 7, daft 3")
