# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of the site: those in docs/, and those that stand elsewhere in the repository.

usage: python tools/site_source.py FOLDER

The README, the changelog and the notebooks become pages; links between files become links between
pages, and those to files that are no page lead to the repository, where pyproject.toml has an
address for it, or else are plain words. What comes out is Markdown that any generator reads.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

from sparkawait.__main__ import main as command_line
from tools.project_urls import read_urls

ROOT = Path(__file__).resolve().parents[1]
# Files of the repository by the pages that they are.
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "benches/README.md": "benches.md",
}

# The first page has no others beside it; its code takes their room.
FIRST = "index.md"
ALONE = "---\nhide: [navigation]\n---\n\n"

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
# What says how the tests run an example is not for readers.
FENCE = re.compile(r"^```python .*$", re.MULTILINE)
PICTURE = re.compile(r"^<!-- picture: ([a-z_-]+) -->$", re.MULTILINE)
HELP = re.compile(r"^<!-- help: ([a-z]+) -->$", re.MULTILINE)


def pages() -> dict[str, str]:
    """Returns the page of each file that is one, by paths of the repository and of the site."""
    docs = {f"docs/{name}": name for name in _files(ROOT / "docs")}
    notebooks = {f"examples/{path.name}": path for path in (ROOT / "examples").glob("*.ipynb")}
    return (
        docs
        | ELSEWHERE
        | {source: f"examples/{path.stem}.md" for source, path in sorted(notebooks.items())}
    )


def write(folder: Path) -> None:
    """Writes all pages into `folder`, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    repository = read_urls().get("Repository", "")
    found = pages()
    for source, page in found.items():
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.endswith(".md"):
            target.write_text(_page(source, found, repository), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, target)


def _files(folder: Path) -> list[str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path.relative_to(folder).as_posix() for path in paths]


def _page(source: str, found: dict[str, str], repository: str) -> str:
    """Returns the text of a page: that of the file with what is meant for the site."""
    text = (ROOT / source).read_text(encoding="utf-8")
    text = _notebook(text, Path(source).stem) if source.endswith(".ipynb") else text
    here = posixpath.dirname(found[source]) or "."

    def link(match: re.Match[str]) -> str:
        picture, words, path, anchor = match.groups(default="")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if path in found:
            return f"{picture}[{words}]({posixpath.relpath(found[path], here)}{anchor})"
        return f"[{words}]({repository}/blob/main/{path})" if repository else words

    text = FENCE.sub("```python", LINK.sub(link, text))
    text = PICTURE.sub(lambda match: _picture(match[1], here), text)
    text = HELP.sub(lambda match: _help(match[1]), text)
    return f"{ALONE}{text}" if found[source] == FIRST else text


def _notebook(text: str, name: str) -> str:
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(
        [f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells]
        + [f"<!-- picture: {name} -->"]
    )


def _picture(name: str, here: str) -> str:
    """Returns what `tools/pictures.py` has drawn, if it has."""
    if not (ROOT / "docs" / "pictures" / f"{name}.svg").exists():
        return ""
    return f"![]({posixpath.relpath(f'pictures/{name}.svg', here)})"


def _help(command: str) -> str:
    """Returns what the program says of itself on a terminal of 100 columns."""
    words = [] if command == "sparkawait" else [command]
    with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
        command_line([*words, "--help"])
    return f"```text\n{shown.getvalue()}```"


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    write(Path(sys.argv[1]))
