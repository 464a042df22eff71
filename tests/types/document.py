# SPDX-License-Identifier: Apache-2.0
"""Writes `docs/reference/types.md` from tables of the tests: `python -m tests.types.document`."""

from __future__ import annotations

import importlib
from pathlib import Path as File

from tests.types.paths import Path

__all__ = ["FILE", "render"]

ROOT = File(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "reference" / "types.md"
NEWEST = (4, 3)
HEAD = """# Types

What happens to a value on each way through sparkawait. A value is what Spark itself would have made
of it, or it is refused with an error, or it differs as said here, without loss: nothing is rounded,
cut or moved to another instant in silence. Where Spark's own functions turn a value that does not
fit into null, it is refused.

This page is written from the tables of `tests/types`, which compare every cell with something that
sparkawait has no part in. A *cell* is one value of one type: null, both ends of a range, NaN and
-0.0, the hours that daylight saving time skips and repeats, years 1 to 9999, nested values.
"""


def paths() -> list[Path]:
    """Returns the tables of all test files that have one, in the order of their names."""
    names = sorted(file.stem for file in File(__file__).parent.glob("test_*.py"))
    modules = [importlib.import_module(f"tests.types.{name}") for name in names]
    return [found for module in modules for found in getattr(module, "PATHS", ())]


def render() -> str:
    """Returns the whole page."""
    summary = [
        "| way | compared with | cells | equal | refused | differ, as said |",
        "|---|---|---:|---:|---:|---:|",
    ]
    sections: list[str] = []
    for path in paths():
        counts = path.counts(NEWEST)
        numbers = [len(path.cells), counts["equal"], counts["refused"], counts["differs"]]
        link = path.title.lower().replace(" ", "-").replace(",", "").replace("`", "")
        link = link.replace(".", "").replace("(", "").replace(")", "")
        row = " | ".join(map(str, numbers))
        summary.append(f"| [{path.title}](#{link}) | {path.oracle} | {row} |")
        sections.append(_section(path))
    return "\n".join([HEAD, *summary, "", *sections])


def _section(path: Path) -> str:
    lines = [f"## {path.title}", ""]
    if path.text:
        lines += [path.text.strip(), ""]
    if path.rules:
        lines += ["| type | value | what happens | why |", "|---|---|---|---|"]
        lines += [
            f"| {_shown(rule.types)} | {_shown(rule.names)} | {rule.verdict} | {rule.why} |"
            for rule in path.rules
        ]
        lines.append("")
    return "\n".join(lines)


def _shown(pattern: str) -> str:
    """Shows a pattern as a person would write it."""
    if pattern == ".*":
        return "any"
    plain = pattern.replace("\\", "").replace(".*", "..").replace("|", ", ")
    return f"`{plain}`"


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
