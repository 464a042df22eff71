# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of the core, and compares them with the committed ``instructions.json``.

``check.py`` fails if a bench takes over 5 % more than it did; ``check.py --update`` writes the file
anew, which belongs into the commit that changes the counts, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["LIMIT", "compare", "counts"]

LIMIT = 0.05
"""Growth that is let pass, as a share."""

_BASELINE = Path(__file__).with_name("instructions.json")
_COMMAND = ("cargo", "bench", "--quiet", "--locked", "--package", "sparkawait-instructions")
_OPTIONS = ("--features", "counted", "--", "--output-format=json")


def main() -> None:
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write instructions.json anew")
    options = parser.parse_args()
    ran = subprocess.run([*_COMMAND, *_OPTIONS], stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if ran.returncode != 0:
        sys.exit(ran.returncode)
    found = counts(ran.stdout)
    compiler = _compiler()
    if options.update:
        document = {"compiler": compiler, "instructions": found}
        _BASELINE.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
        print(f"wrote {os.path.relpath(_BASELINE)}")
        return
    baseline = json.loads(_BASELINE.read_text())
    if baseline["compiler"] != compiler:
        print(f"note: the baseline was made by {baseline['compiler']}, this is {compiler}")
    lines, failures = compare(baseline["instructions"], found)
    print("\n".join(lines))
    if failures:
        sys.exit("error: " + "; ".join(failures))


def counts(output: str) -> dict[str, int]:
    """Returns the instructions of each bench, from the lines of JSON that Gungraun prints."""
    found = {}
    for line in output.splitlines():
        summary = json.loads(line)
        (profile,) = (it for it in summary["profiles"] if it["tool"] == "Callgrind")
        name = f"{summary['function_name']}::{summary['id']}"
        found[name] = profile["data"]["total"]["metrics"]["Ir"]["values"]["new"]
    return found


def compare(baseline: Mapping[str, int], found: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Returns a line for each bench, and what is wrong."""
    lines, failures = [], []
    for name in sorted({*baseline, *found}):
        if name not in found or name not in baseline:
            where = "counted" if name not in found else "in the baseline"
            failures.append(f"`{name}` is not {where}: run `make bench-check ARGS=--update`")
            continue
        growth = found[name] / baseline[name] - 1
        lines.append(f"{name:32} {baseline[name]:>10,} -> {found[name]:>10,}  {growth:+.1%}")
        if found[name] > baseline[name] * (1 + LIMIT):
            failures.append(f"`{name}` takes {growth:.1%} more instructions, {LIMIT:.0%} may be")
    return lines, failures


def _compiler() -> str:
    return subprocess.run(
        ["rustc", "--version"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


if __name__ == "__main__":
    main()
