# SPDX-License-Identifier: Apache-2.0
"""How many instructions does a record cost in each layer, and is that more than it was?

Reads what the benches ``instructions_*`` of Rust left in ``target/instructions`` and compares it
with ``benches/baseline/instructions.json``: ``instructions.py check`` fails where a record costs
more than 2 % more, and where a bench has come or gone; ``instructions.py renew`` writes the
baseline. `make bench-check` and `make bench-baseline` run the benches first.

Callgrind counts, so the load of the machine does not matter. The compiler does, and so do the
functions that the C library chooses for the processor: what differs is told.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RECORDS", "SCHEMA", "Baseline", "Comparison", "compare", "counted", "environment"]

SCHEMA = 1
RECORDS = 10_000
"""Records of each bench; the same as ``RECORDS`` in ``benches/rust/src/lib.rs``."""

ALLOWED_GROWTH = 0.02
RENEW = "run `make bench-baseline`, and commit benches/baseline/instructions.json with the change"

_ROOT = Path(__file__).parents[2]
_COUNTS = _ROOT / "target" / "instructions"
_BASELINE = _ROOT / "benches" / "baseline" / "instructions.json"


@dataclass(frozen=True)
class Baseline:
    """Instructions a record, by bench, and what they were counted on."""

    environment: dict[str, str]
    benches: dict[str, float]

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """Reads what `write` wrote; there is nothing in it if there is no file."""
        if not path.exists():
            return cls({}, {})
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if stored["schema"] != SCHEMA:
            raise SystemExit(
                f"{path} has schema {stored['schema']}, and this program reads {SCHEMA}; {RENEW}"
            )
        return cls(stored["environment"], stored["instructions_per_record"])

    def write(self, path: Path) -> None:
        """Writes a file that differs only in what has changed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "schema": SCHEMA,
            "records": RECORDS,
            "environment": self.environment,
            "instructions_per_record": dict(sorted(self.benches.items())),
        }
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Comparison:
    """What counts are beside those of the baseline."""

    lines: list[str]
    """A table."""
    warnings: list[str]
    failures: list[str]
    """Empty if nothing costs more than is allowed."""


def counted(folder: Path) -> dict[str, float]:
    """Returns instructions a record, by bench, of the last run."""
    benches: dict[str, float] = {}
    for path in sorted(folder.rglob("summary.json")):
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        layer = summary["module_path"].partition("::")[0].removeprefix("instructions_")
        name = "/".join([layer, summary["function_name"], summary["id"]])
        benches[name] = round(_instructions(summary) / RECORDS, 2)
    return benches


def _instructions(summary: dict[str, Any]) -> int:
    callgrind = next(it for it in summary["profiles"] if it["tool"] == "Callgrind")
    return int(callgrind["data"]["total"]["metrics"]["Ir"]["values"]["new"])


def environment() -> dict[str, str]:
    """Returns what counts depend on beside the code."""
    return {
        "target": f"{platform.machine()}-{platform.system().lower()}",
        "processor": _level(),
        "rustc": _first_line("rustc", "--version"),
        "valgrind": _first_line("valgrind", "--version"),
        "libc": " ".join(platform.libc_ver()),
    }


def _level() -> str:
    """Returns the level of the processor as far as Valgrind knows processors, which is AVX2."""
    machine = platform.machine()
    if machine != "x86_64":
        return machine
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set[str]())
    return "x86-64-v3" if {"avx2", "bmi2", "fma"} <= flags else "x86-64-v2 or less"


def _first_line(*command: str) -> str:
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return output.splitlines()[0]


def compare(baseline: Baseline, now: Baseline) -> Comparison:
    """Compares `now` with `baseline`, bench by bench."""
    if baseline.benches and baseline.environment.get("target") != now.environment.get("target"):
        was, here = baseline.environment.get("target"), now.environment.get("target")
        failure = f"the baseline was counted on {was}, which says nothing about {here}; {RENEW}"
        return Comparison([], [], [failure])
    lines: list[str] = []
    failures: list[str] = []
    for name in sorted(baseline.benches.keys() | now.benches.keys()):
        before, after = baseline.benches.get(name), now.benches.get(name)
        lines.append(_line(name, before, after))
        failures += _failures(name, before, after)
    return Comparison(lines, _warnings(baseline, now), failures)


def _line(name: str, before: float | None, after: float | None) -> str:
    was = "-" if before is None else f"{before:,.1f}"
    here = "-" if after is None else f"{after:,.1f}"
    change = "" if before is None or after is None else f"{_growth(before, after):+.2%}"
    return f"{name:<42} {was:>12} {here:>12} {change:>9}"


def _growth(before: float, after: float) -> float:
    return after / before - 1


def _failures(name: str, before: float | None, after: float | None) -> list[str]:
    if before is None:
        return [f"{name} has no baseline; {RENEW}"]
    if after is None:
        return [f"{name} is in the baseline and was not counted; if it is gone for good, {RENEW}"]
    if after <= before * (1 + ALLOWED_GROWTH):
        return []
    more = f"{_growth(before, after):.1%} more than the {before:,.1f} of the baseline"
    allowed = f"{ALLOWED_GROWTH:.0%} are allowed. If it is worth it, {RENEW}"
    return [f"{name} takes {after:,.1f} instructions a record, {more}; {allowed}"]


def _warnings(baseline: Baseline, now: Baseline) -> list[str]:
    warnings = [
        f"{what} is {value}, the baseline's is {baseline.environment.get(what, 'unknown')}"
        for what, value in now.environment.items()
        if baseline.benches and baseline.environment.get(what) != value
    ]
    if warnings:
        warnings.append(
            "counts may differ for that alone: to tell, renew the baseline at the commit before "
            "the change, and check the change with that one"
        )
    fewer = [
        name
        for name, before in baseline.benches.items()
        if name in now.benches and _growth(before, now.benches[name]) < -ALLOWED_GROWTH
    ]
    if fewer:
        warnings.append(f"cheaper than the baseline: {', '.join(fewer)}; to keep it so, {RENEW}")
    return warnings


def main() -> int:
    """Checks the counts of the last run, or makes them the baseline."""
    parser = argparse.ArgumentParser(description="Instructions a record, beside the baseline.")
    parser.add_argument("what", choices=["check", "renew"])
    options = parser.parse_args()
    now = Baseline(environment(), counted(_COUNTS))
    if not now.benches:
        print(f"error: no counts in {_COUNTS}; run `make bench-check`", file=sys.stderr)
        return 2
    comparison = compare(Baseline.load(_BASELINE), now)
    print(f"{'instructions a record':<42} {'baseline':>12} {'now':>12} {'change':>9}")
    print("\n".join(comparison.lines))
    if options.what == "renew":
        now.write(_BASELINE)
        print(f"written: {_BASELINE.relative_to(_ROOT)}")
        return 0
    for warning in comparison.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for failure in comparison.failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
