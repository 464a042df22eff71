# SPDX-License-Identifier: Apache-2.0
"""Each case of Flink's `AsyncWaitOperatorTest` has a test here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

CASE = re.compile(r"(AWO-\w+) (?:test[A-Z]\w+|\(FLINK-\d+\))")
EXPECTED = [f"AWO-{number:02}" for number in range(1, 37)] + ["AWO-N1", "AWO-N2", "AWO-N3"]


def cases_in(path: Path) -> list[str]:
    """Returns the cases that docstrings and parameter ids of a test file begin with."""
    strings = [
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [match[1] for match in map(CASE.match, strings) if match]


def test_every_case_has_exactly_one_test() -> None:
    files = Path(__file__).parent.glob("test_flink_*.py")

    found = [case for path in files for case in cases_in(path)]

    assert sorted(found) == EXPECTED
