# SPDX-License-Identifier: Apache-2.0
"""What the documents say is so: their Python runs, and their commands exist.

A block opened by ```python run is executed, all of one document in one process and in order. A
block opened by ```python is an excerpt and has to be valid Python.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.repository import ROOT, tracked_files

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTS = [path.relative_to(ROOT).as_posix() for path in tracked_files("*.md")]


def blocks(document: str, *infos: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [match["text"] for match in FENCE.finditer(text) if match["info"].strip() in infos]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_in_a_document_is_valid(document: str):
    for block in blocks(document, "python", "python run"):
        # An excerpt may await at its top level.
        compile(block, document, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.spark
@pytest.mark.parametrize("document", [name for name in DOCUMENTS if blocks(name, "python run")])
def test_examples_in_a_document_run(document: str, tmp_path: Path):
    program = tmp_path / "example.py"
    program.write_text("\n".join(blocks(document, "python run")), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_in_a_document_exist(document: str):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):.*## ", makefile, re.MULTILINE))
    text = (ROOT / document).read_text(encoding="utf-8")
    commands = "\n".join(
        [
            *blocks(document, "", "sh", "bash", "console", "shell"),
            *re.findall(r"`(make [^`]*)`", text),
        ]
    )
    named = set(
        re.findall(r"^\s*(?:\$ )?make (?:[A-Z]+=\S+ )*([a-z][\w-]*)", commands, re.MULTILINE)
    )
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_a_document_links_to_exist(document: str):
    text = (ROOT / document).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
    folder = (ROOT / document).parent
    assert [link for link in links if not (folder / link).exists()] == []
