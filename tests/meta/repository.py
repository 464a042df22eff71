# SPDX-License-Identifier: Apache-2.0
"""The repository as the tests about it see it."""

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "sparkawait"


def run(*command: str) -> str:
    """Runs a program in the root of the repository and returns what it prints."""
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr}"
    return result.stdout


def cargo_metadata(*arguments: str) -> Any:
    return json.loads(run("cargo", "metadata", "--format-version", "1", "--locked", *arguments))


def tracked_files(*patterns: str) -> list[Path]:
    """Files that are, or are about to be, part of the repository."""
    listing = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns)
    return [path for line in listing.splitlines() if (path := ROOT / line).is_file()]


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
