# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of options into docs/options.md, from the fields of `sparkawait.WaitOptions`.

usage: python tools/option_table.py
"""

from pathlib import Path

from sparkawait.options import OPTIONS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"
METRICS = (
    "metrics",
    "`None`",
    "`sa.Metrics()`: counters and latencies of all tasks of this call",
)
CHAIN = (
    "chain",
    "`False`",
    "whether the call joins the Python worker of the one that returned `df`; not of `async_udf`",
)
SETS = ("options", "`None`", "a set of options, `sa.WaitOptions(..)`; options given directly win")


def table(*, is_rare: bool) -> str:
    """Returns one of the tables as Markdown: of what few jobs need, or of the rest."""
    known = OPTIONS.items()
    rows = [(f"`{name}`", it.shown, it.meaning) for name, it in known if it.is_rare == is_rare]
    others = (CHAIN, METRICS, SETS) if is_rare else ()
    rows += [(f"`{name}`", default, meaning) for name, default, meaning in others]
    lines = ["| option | default | meaning |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """Returns the text of the page with the tables of today."""
    for name, is_rare in (("options", False), ("rare options", True)):
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, rest = text.split(begin)
        text = f"{before}{begin}{table(is_rare=is_rare)}{end}{rest.split(end)[1]}"
    return text


def main() -> None:
    """Writes the file."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
