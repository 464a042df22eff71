# SPDX-License-Identifier: Apache-2.0
"""The texts of the repository are plain English, as far as rules can tell: see `prose`."""

import re
from pathlib import Path

import pytest

from tests.meta import prose
from tests.meta.repository import ROOT, tracked_files

PAGES = tracked_files("*.md")

HOW_TO = [path for path in PAGES if path.parent.name in {"connectors", "cookbook", "guides"}]


def rules_in(text: str) -> list[str]:
    return [rule for _, rule, _, _ in prose.check(prose.page(text))]


@pytest.mark.parametrize("rule", prose.RULES, ids=lambda rule: rule.name)
def test_a_rule_catches_what_it_is_for_and_nothing_that_is_right(rule: prose.Rule):
    assert rules_in(rule.catches) == [rule.name]
    assert rules_in(rule.passes) == []


def test_a_sentence_has_a_bound():
    words = ["word"] * prose.LONGEST
    assert rules_in(" ".join(words) + ".") == []
    assert rules_in(" ".join([*words, "more"]) + ".") == ["long-sentence"]
    assert rules_in(f"{' '.join(words)}. And {' '.join(words[1:])}.") == []


def test_cells_and_points_are_sentences_of_their_own():
    text = " ".join(["word"] * 30)
    assert rules_in(f"| {text} | {text} |\n| {text} |") == []
    assert rules_in(f"* {text}\n* {text}\n\n{text}") == []


def test_code_is_not_prose():
    block = "```python\n# such a call is none of which\n```"
    text = f"Of two:\n\n{block}\n\n`such a` [link](such-a.md) <!-- such a -->"
    assert rules_in(text) == []


def test_texts_of_python_are_found_with_their_lines(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text(
        '"""Says such a\nthing as this is none of yours."""\n\n'
        'name = "such a"\nraise ValueError(f"the value {name} is none, which is a fault")\n'
        "# such a comment is none\n"
    )
    found = [(it.line, it.rule) for it in prose.findings(tmp_path / "a.py")]
    assert found[:2] == [(6, "is-no-noun"), (6, "such-a")]
    assert found[2:] == [(2, "is-no-noun"), (1, "such-a"), (5, "is-no-noun")]


def test_comments_and_messages_of_rust_are_found_with_their_lines(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / "a.rs").write_text(
        "//! Such a file.\n\n// such a note\n    /// Waits for\n    /// whoever comes.\n"
        'let end = \'"\';\nlet message = format!("the value {of} is \\\n    none of yours");\n'
    )
    found = [(it.line, it.rule) for it in prose.findings(tmp_path / "a.rs")]
    assert found == [(1, "such-a"), (3, "such-a"), (5, "archaic"), (7, "is-no-noun")]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_is_plain(path: Path):
    assert [str(it) for it in prose.findings(path)] == []


@pytest.mark.parametrize("pattern", ["python/**/*.py", "rust/**/*.rs"])
def test_comments_docstrings_and_messages_are_plain(pattern: str):
    assert [str(it) for path in tracked_files(pattern) for it in prose.findings(path)] == []


@pytest.mark.parametrize("path", HOW_TO, ids=lambda path: path.stem)
def test_a_page_that_says_how_speaks_to_you(path: Path):
    text = prose.page(path.read_text(encoding="utf-8"))
    assert re.search(r"\byou(?:r|rs)?\b", text, re.IGNORECASE), "who does it?"


GENERATED = {"docs/reference/types.md", "docs/reference/benchmarks.md"}
MOST_WORDS, MOST_LINES = 1_800, 120


@pytest.mark.parametrize(
    "path",
    [path for path in tracked_files("docs/*.md") if path.stem != "design"],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_a_page_is_read_in_ten_minutes(path: Path):
    if path.relative_to(ROOT).as_posix() not in GENERATED:
        assert len(path.read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_the_readme_is_a_page_to_begin_with():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES
