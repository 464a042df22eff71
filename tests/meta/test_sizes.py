# SPDX-License-Identifier: Apache-2.0
"""No file grows past what a reader takes in, and each says what licence it has.

The length of functions is clippy's and ruff's business.
"""

import ast
import tokenize
from io import StringIO
from pathlib import Path

import pytest

from tests.meta.repository import ROOT, tracked_files

MAX_RUST_CODE_LINES = 600
MAX_PYTHON_MODULE_LINES = 450
MAX_TEST_FILE_LINES = 700

GENERATED = {"signatures.pyi", "_arguments.py", "arguments.py"}
"""Each option of each function, as tools/signatures.py spells them out."""

LICENCE = "SPDX-License-Identifier: Apache-2.0"


def code_lines(path: Path) -> int:
    """Lines that are neither blank nor a comment; Rust sources of this project have no `/* */`."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return sum(1 for line in lines if line and not line.startswith("//"))


def python_code_lines(path: Path) -> int:
    """Lines that are neither blank nor a comment nor of a text that stands alone, a docstring."""
    source = path.read_text(encoding="utf-8")
    texts = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - texts)


NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


def all_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(
    ("pattern", "count", "at_most"),
    [
        ("*.rs", code_lines, MAX_RUST_CODE_LINES),
        ("python/*.py", python_code_lines, MAX_PYTHON_MODULE_LINES),
        ("examples/*.py", python_code_lines, MAX_PYTHON_MODULE_LINES),
        ("tests/*.py", all_lines, MAX_TEST_FILE_LINES),
    ],
    ids=["rust", "python", "examples", "tests"],
)
def test_no_file_is_too_long(pattern, count, at_most):
    lengths = {path.relative_to(ROOT).as_posix(): count(path) for path in tracked_files(pattern)}
    too_long = {name for name, length in lengths.items() if length > at_most}
    assert {name for name in too_long if Path(name).name not in GENERATED} == set()


def test_every_source_file_names_the_licence_first():
    sources = tracked_files("*.rs", "*.py", "*.pyi", "*.java")
    nameless = [path for path in sources if LICENCE not in path.read_text(encoding="utf-8")[:200]]
    assert [path.relative_to(ROOT).as_posix() for path in nameless] == []
