# SPDX-License-Identifier: Apache-2.0
"""What a debug assertion looks at, a release looks at, too.

A value that only a debug assertion looks at is dropped in a release: once it was the refusal of a
row, with the row in it. Calls inside of an assertion that change something are Clippy's to find
(``debug_assert_with_mut_call``).
"""

import re
from itertools import pairwise

import pytest

from tests.meta.repository import ROOT, tracked_files
from tests.meta.rust_modules import TESTS, is_test

FUNCTION = re.compile(
    r"^ *(?:pub(?:\([^)]*\))? +)?(?:const +|async +|unsafe +)*fn \w+", re.MULTILINE
)
ASSERTION = re.compile(r"\bdebug_assert(?:_eq|_ne)?!\(")
RESULT = re.compile(r"\.is_(?:ok|err)\b|\b(?:Ok|Err)\(")
LET = r"\blet (?:mut )?{name}\b[^=;]*="


def assertions(function):
    """The debug assertions of a function, each as its span."""
    for match in ASSERTION.finditer(function):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(function[end], 0)
            end += 1
        yield match.start(), end


def ignored(source):
    """The values that only debug assertions look at, and results that these look into."""
    starts = [match.start() for match in FUNCTION.finditer(source)] + [len(source)]
    for start, end in pairwise(starts):
        function = source[start:end]
        spans = list(assertions(function))
        rest = list(function)
        for first, last in spans:
            rest[first:last] = " " * (last - first)
        rest = "".join(rest)
        for first, last in spans:
            # Not the words of its message.
            looked_at = re.sub(r'"(?:[^"\\]|\\.)*"', "", function[first:last])
            if RESULT.search(looked_at):
                yield looked_at
            for name in set(re.findall(r"(?<![.\w])[a-z_]\w*(?![\w!(])", looked_at)):
                bound = re.search(LET.format(name=name), rest[:first])
                if bound and len(re.findall(rf"(?<![.\w]){name}\b", rest)) == 1:
                    yield name


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('let put = queue.put(row);\n debug_assert!(put.is_ok() || failed(), "no place");', 2),
        ("let left = queue.put(row);\n debug_assert_eq!(left, None);", 1),
        ("let left = queue.put(row);\n debug_assert_eq!(left, None);\n left", 0),
        ('debug_assert!(self.rows > 0, "left");', 0),
        ('if put(row).is_err() {\n debug_assert!(false, "no place for {row}");\n}', 0),
    ],
)
def test_what_only_a_debug_assertion_looks_at_is_found(body, found):
    assert len(list(ignored(f"pub fn f(queue: Queue) {{\n{body}\n}}\n"))) == found


def test_nothing_is_looked_at_by_debug_assertions_alone():
    found = {
        str(path.relative_to(ROOT)): names
        for path in tracked_files("rust/*.rs")
        if not is_test(path)
        if (names := list(ignored(TESTS.sub("", path.read_text(encoding="utf-8")))))
    }
    assert found == {}
