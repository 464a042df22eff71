# SPDX-License-Identifier: Apache-2.0
"""Writes where the project is published into pyproject.toml, from where wheels and errors have it.

usage: python tools/project_urls.py REPOSITORY REVISION     e.g. the address of a fork, and v0.1.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
TABLE = re.compile(r"^\[project\.urls\]\n(?:[^\[\n][^\n]*\n)*", re.MULTILINE)


def urls(repository: str, revision: str) -> dict[str, str]:
    """Returns the addresses by what PyPI calls them."""
    tree = f"{repository}/blob/{revision}"
    return {
        "Repository": repository,
        "Documentation": f"{tree}/README.md",
        "Changelog": f"{tree}/CHANGELOG.md",
        "Errors": f"{tree}/docs/errors.md",
        "Issues": f"{repository}/issues",
    }


def with_urls(text: str, repository: str, revision: str) -> str:
    """Returns pyproject.toml with the addresses in it."""
    if not re.fullmatch(r"https://[^\s\"]+[^\s\"/]", repository):
        raise SystemExit(f"error: an https address without a slash at its end, not {repository!r}")
    lines = [f'{name} = "{url}"\n' for name, url in urls(repository, revision).items()]
    changed, found = TABLE.subn("".join(["[project.urls]\n", *lines]), text)
    if found != 1:
        raise SystemExit("error: pyproject.toml has no [project.urls]")
    return changed


if __name__ == "__main__":
    PYPROJECT.write_text(with_urls(PYPROJECT.read_text(encoding="utf-8"), *sys.argv[1:3]))
