# SPDX-License-Identifier: Apache-2.0
"""Draws what a terminal and a notebook show, out of real runs, into docs/pictures.

usage: python -m tools.pictures [NAME ..]

``demo`` is the screen of `sparkawait demo` while it runs and at its end, over a part of the
flights; the others are the notebooks, each cell with what it printed. No browser is needed: rich
writes the pictures. Run it on a machine that does nothing else, after `make release`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "pictures"
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
COLUMNS = 100
FLIGHTS = 40_000

# What rich writes on a terminal to draw a line again, and to end it.
PARTS = re.compile(r"(\n|\r(?:\x1b\[1A)?\x1b\[2K)")
CURSOR = re.compile(r"\x1b\[\?25[lh]")
DONE = re.compile(r"(\d+)/(\d+)")
# Fonts of another host, which nobody is to be asked for.
FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def terminal() -> Console:
    """Returns where a picture is drawn."""
    return Console(record=True, file=StringIO(), width=COLUMNS, force_terminal=True)


def write(name: str, title: str, shown: Console) -> None:
    """Writes what is on a terminal, in colours that a terminal has."""
    picture = FONT_FACE.sub("", shown.export_svg(title=title, theme=MONOKAI, unique_id=name))
    OUT.mkdir(parents=True, exist_ok=True)
    lines = (line.rstrip() for line in picture.splitlines())
    (OUT / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


def screens(written: str) -> tuple[str, str]:
    """Returns the screen when about two thirds of the first run were done, and the last one."""
    lines, total, bars = [""], "", list[tuple[float, str]]()
    for part in PARTS.split(CURSOR.sub("", written)):
        if part == "\n":
            lines.append("")
        elif not PARTS.fullmatch(part):
            lines[-1] += part
        else:  # the line is drawn again, or is gone
            found = DONE.search(Text.from_ansi(lines[-1]).plain)
            if found and found[2] == (total or found[2]):
                total = found[2]
                bars.append((abs(int(found[1]) / int(total) - 2 / 3), "\n".join(lines)))
            if "\x1b[1A" in part:
                lines.pop()
            lines[-1] = ""
    if not bars:
        msg = "the demo showed no bar"
        raise RuntimeError(msg)
    return min(bars)[1], "\n".join(lines)


def demo() -> None:
    """Draws the demo while it runs and at its end."""
    from sparkawait._flights.program import run
    from sparkawait._flights.settings import Settings

    file = StringIO()
    console = Console(file=file, width=COLUMNS, force_terminal=True, color_system="truecolor")
    if not run(Settings(rows=FLIGHTS, sample=FLIGHTS // 4), console):
        msg = "the output of the demo was not right"
        raise RuntimeError(msg)
    running, ended = screens(file.getvalue())
    for name, screen in (("demo-running", running), ("demo", ended)):
        shown = terminal()
        shown.print(Text.from_ansi(screen.rstrip("\n")))
        write(name, f"sparkawait demo --rows {FLIGHTS}", shown)


def notebook(path: Path) -> None:
    """Runs the cells of a notebook and draws each with what it printed."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    shown, names = terminal(), {"__name__": "__main__"}
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for number, code in enumerate(codes, 1):
        with redirect_stdout(StringIO()) as printed:
            exec(compile(code, path.name, "exec"), names)  # noqa: S102 - a file of this repository
        shown.print(f"[bold blue]In [{number}]:[/]")
        shown.print(Syntax(code, "python", theme="monokai", background_color="default"))
        shown.print(Text(printed.getvalue().rstrip() + "\n" if printed.getvalue() else ""))
    write(path.stem, path.name, shown)


def main(names: list[str]) -> None:
    """Draws the pictures that are named, or all."""
    known = {"demo": demo} | {path.stem: lambda path=path: notebook(path) for path in NOTEBOOKS}
    if len(names) == 1:
        known[names[0]]()
        return
    for name in names or known:
        # Each has a Spark of its own, whose workers see what the notebook has set before.
        command = [sys.executable, "-m", "tools.pictures", name]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - itself


if __name__ == "__main__":
    main(sys.argv[1:])
