# SPDX-License-Identifier: Apache-2.0
"""Writes the table of options into docs/options.md, from the fields of `sparkawait.WaitOptions`.

usage: python tools/option_table.py
"""

from pathlib import Path

from sparkawait.wait_options import OPTIONS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"
BEGIN, END = "<!-- options: begin -->\n", "<!-- options: end -->\n"
METRICS = (
    "metrics",
    "`None`",
    "`sa.Metrics(spark)`: counters and call latencies of all tasks; classic sessions",
)
CHAIN = (
    "chain",
    "`False`",
    "whether the call joins the Python worker of the one that returned `df`; not of `async_udf`",
)
SETS = ("options", "`None`", "a set of these, `sa.WaitOptions(..)`, over which they win")


def table() -> str:
    """Returns the table as Markdown."""
    rows = [(f"`{name}`", it.shown, it.meaning) for name, it in OPTIONS.items()]
    rows += [(f"`{name}`", default, meaning) for name, default, meaning in (CHAIN, METRICS, SETS)]
    lines = ["| option | default | meaning |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """Returns the text of the page with the table of today."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> None:
    """Writes the file."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
