# SPDX-License-Identifier: Apache-2.0
"""Writes where the project is published into pyproject.toml, from where wheels and errors have it.

usage: python tools/project_urls.py REPOSITORY REVISION [SITE]

e.g. the address of a fork, v0.1.0, and where the documentation site of that version is published;
without it the files in the repository are the documentation.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
TABLE = re.compile(r"^\[project\.urls\]\n(?:[^\[\n][^\n]*\n)*", re.MULTILINE)


def urls(repository: str, revision: str, site: str = "") -> dict[str, str]:
    """Returns the addresses by what PyPI calls them."""
    tree = f"{repository}/blob/{revision}"
    return {
        "Repository": repository,
        "Documentation": f"{site}/index.html" if site else f"{tree}/README.md",
        "Changelog": f"{tree}/CHANGELOG.md",
        "Errors": f"{site}/errors.html" if site else f"{tree}/docs/errors.md",
        "Issues": f"{repository}/issues",
    }


def read_urls() -> dict[str, str]:
    """Returns the addresses that pyproject.toml has today, by what PyPI calls them."""
    found = TABLE.search(PYPROJECT.read_text(encoding="utf-8"))
    return dict(re.findall(r'^(\w+) = "([^"]+)"$', found[0], re.MULTILINE)) if found else {}


def with_urls(text: str, repository: str, revision: str, site: str = "") -> str:
    """Returns pyproject.toml with the addresses in it."""
    for address in (repository, site or repository):
        if not re.fullmatch(r"https://[^\s\"]+[^\s\"/]", address):
            raise SystemExit(f"error: an https address without a slash at its end, not {address!r}")
    lines = [f'{name} = "{url}"\n' for name, url in urls(repository, revision, site).items()]
    changed, found = TABLE.subn("".join(["[project.urls]\n", *lines]), text)
    if found != 1:
        raise SystemExit("error: pyproject.toml has no [project.urls]")
    return changed


if __name__ == "__main__":
    PYPROJECT.write_text(with_urls(PYPROJECT.read_text(encoding="utf-8"), *sys.argv[1:4]))
